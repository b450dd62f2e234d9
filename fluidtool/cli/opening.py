"""From the options of a command to an open model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fluidtool.errors import UsageError

if TYPE_CHECKING:
    from fluidtool.model import Model
    from fluidtool.runtime import Policy
    from fluidtool.tensor import Place


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
            path,
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
    raise UsageError(f"--device {text} is not a device; expected cpu, gpu or gpu:N")
