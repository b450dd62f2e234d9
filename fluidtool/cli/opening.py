"""From the options of a command to an open model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
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
    from fluidtool.model import load

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


def parse_shapes(options: Sequence[str], inputs: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """['image=1,3,224,224'] -> {'image': (1, 3, 224, 224)}; the name may be left out where there is one input."""
    shapes = {}
    for option in options:
        name, text = split_name(option, inputs, "--shape")
        sizes = text.strip("[]() ").split(",") if text.strip("[]() ") else []
        if not all(size.strip().isdecimal() for size in sizes):
            raise UsageError(f"--shape {option}: expected sizes separated by commas, such as {name}=1,3,224,224")
        shapes[name] = tuple(int(size) for size in sizes)
    return shapes


def split_name(option: str, inputs: Sequence[str], flag: str) -> tuple[str, str]:
    """'NAME=VALUE' -> (NAME, VALUE); raises UsageError for a name that is no input."""
    name, equals, value = option.rpartition("=")
    if not equals:
        if len(inputs) != 1:
            raise UsageError(f"{flag} {option}: say which input is meant, {flag} NAME={option}; {listed(inputs)}")
        return inputs[0], option
    if name not in inputs:
        raise UsageError(f"{flag} {option}: {name!r} is not an input; {did_you_mean(name, inputs) or listed(inputs)}")
    return name, value


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """'did you mean a or b?', or ''."""
    near = get_close_matches(name, list(dict.fromkeys(names)), n=3)
    return f"did you mean {' or '.join(near)}?" if near else ""


def listed(inputs: Sequence[str]) -> str:
    """'the inputs are a, b'."""
    return f"the inputs are {', '.join(inputs)}" if inputs else "the model has no inputs"
