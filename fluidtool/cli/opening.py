"""From the options of a command to an open model."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fluidtool.errors import UnreadableError, UsageError

if TYPE_CHECKING:
    from fluidtool.model import Model
    from fluidtool.runtime import Policy
    from fluidtool.tensor import Place


STDIN = "-"


class StandardInput(BytesIO):
    """What came through standard input, once."""

    name = "standard input"


def source_of(path: str) -> str | StandardInput:
    """Where a model is read: the path, or the program on standard input for `-`.

    Raises UsageError for a terminal, UnreadableError for more bytes than a program may have.
    """
    if path != STDIN:
        return path
    from fluidtool.io.layout import LARGEST_PROGRAM

    if sys.stdin.isatty():
        raise UsageError(
            "- reads a program from standard input, which is a terminal", hint="pipe a program's file to it"
        )
    data = sys.stdin.buffer.read(LARGEST_PROGRAM + 1)
    if not data:
        raise UnreadableError("standard input is empty, expected a program", hint="a pipe can be read only once")
    if len(data) > LARGEST_PROGRAM:
        raise UnreadableError(f"standard input has more than {LARGEST_PROGRAM} bytes, too many for a program")
    return StandardInput(data)


def require_one_stdin(values: Iterable[Any]) -> None:
    """Raise UsageError if several arguments of a command, among these values, read standard input."""
    texts = [text for value in values for text in (value if isinstance(value, (list, tuple)) else [value])]
    count = sum(isinstance(text, str) and (text == STDIN or text.endswith(f"={STDIN}")) for text in texts)
    if count > 1:
        raise UsageError(
            f"standard input can be read only once, but {count} inputs are -", hint="give the others as files"
        )


def require_no_empty(words: Sequence[str]) -> None:
    """Raise UsageError if an argument of a command is empty: as a path it would be the current folder."""
    if "" in words:
        place = words.index("")
        which = f"the argument after {words[place - 1]}" if place else "the first argument"
        raise UsageError(f"{which} is empty", hint="a variable of the shell that is not set is empty")


def open_model(
    path: str,
    model_file: str | None = None,
    params: str | None = None,
    *,
    device: str = "cpu",
    engine: str = "auto",
    precision: str = "float32",
    seed: int = 0,
    allow_files: Sequence[Path] = (),
    allow_network: bool = False,
    need_parameters: bool = True,
    validate: bool = True,
) -> Model:
    """The model of a command; its operators touch no file and no network unless the options say so."""
    from fluidtool.cli.terminal import TERMINAL
    from fluidtool.model import load

    with TERMINAL.progress(f"reading {path}"):
        return load(
            source_of(path),
            model_filename=model_file,
            params=params,
            place=parse_device(device),
            policy=policy_of(allow_files, allow_network),
            seed=seed,
            engine=engine,
            precision=precision,
            need_parameters=need_parameters,
            validate=validate,
        )


def policy_of(allow_files: Sequence[Path], allow_network: bool) -> Policy:
    """What operators may do; raises UsageError for a folder that is not there."""
    from fluidtool.runtime import Policy

    for folder in allow_files:
        if not folder.is_dir():
            raise UsageError(f"--allow-files {folder} is not a folder")
    return Policy(file_roots=tuple(allow_files), endpoints=None if allow_network else frozenset())


def parse_device(text: str) -> Place:
    """'cpu', 'gpu', 'gpu:1' -> a place."""
    from fluidtool.tensor import CPUPlace, CUDAPlace

    name, colon, number = text.partition(":")
    if text == "cpu":
        return CPUPlace()
    if name == "gpu" and (not colon or number.isdecimal()):
        return CUDAPlace(int(number or 0))
    raise UsageError(f"--device must be cpu, gpu or gpu:N, found {text!r}")
