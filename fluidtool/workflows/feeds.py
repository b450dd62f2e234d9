"""Values of inputs from files and standard input, and the sequence lengths that go with them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fluidtool.errors import FeedError, Hint, Location, LoDError, UsageError
from fluidtool.io.arrays import parse_lengths, read_stream, read_values
from fluidtool.io.json_files import read_json
from fluidtool.model import Model
from fluidtool.proto.enums import VarType
from fluidtool.tensor import LoDTensor
from fluidtool.workflows.names import are_unnamed, did_you_mean, in_order, listed


class Argument(NamedTuple):
    """What gave a text: how messages call it, the argument of a call, the option of a command."""

    what: str
    argument: str
    option: str

    def named(self, text: str) -> Hint:
        """The hint to name the input."""
        return Hint(f"name the input: {self.argument}=['NAME={text}']", f"name the input: {self.option} NAME={text}")


FEED = Argument("the file", "feeds", "--feed")
DATA = Argument("the file", "files", "--data")
LENGTHS = Argument("the sequence lengths", "lods", "--lod")
SHAPE = Argument("the shape", "shapes", "--shape")


def read_feed(model: Model, spec: str, by: Argument = FEED) -> dict[str, LoDTensor]:
    """'x.npy', 'NAME=x.npy', 'all.npz', '-', 'NAME=-' -> values by input; `by` is what gave them."""
    name, file = split_spec(spec)
    if not file:
        raise FeedError(f"no file is given for input {name}" if name else "the name of a file is empty")
    values = _read_stdin() if file == "-" else read_values(Path(file))
    if name:
        return {_known(model, name): _single(values, name, file)}
    if "" in values:
        return {_guess(model, file, by): values[""]}
    if are_unnamed(values) and not any(model.has_variable(key) for key in values):
        meant = in_order(model.feeds)
        if not values.keys() <= meant.keys():
            text = f"{file} has the unnamed arrays {', '.join(values)}, but {listed(model.feeds)}"
            raise FeedError(text, hint="name them", location=Location(file))
        return {meant[key]: value for key, value in values.items()}
    return {_known(model, key): value for key, value in values.items()}


def split_spec(spec: str) -> tuple[str, str]:
    """'NAME=FILE' -> (NAME, FILE), 'FILE' -> ('', FILE)."""
    if os.path.isfile(spec):
        return "", spec
    name, equals, file = spec.partition("=")
    return (name, file) if equals else ("", spec)


def _read_stdin() -> dict[str, LoDTensor]:
    if sys.stdin.isatty():
        raise FeedError("- is a .npy or .npz file on standard input, which is a terminal", hint="pipe a file to it")
    return read_stream(sys.stdin.buffer, "standard input")


def _single(values: Mapping[str, LoDTensor], name: str, file: str) -> LoDTensor:
    if name in values:
        return values[name]
    if len(values) == 1:
        return next(iter(values.values()))
    hint = did_you_mean(name, list(values)) or f"it has {', '.join(values)}"
    raise FeedError(f"{file} has no array {name!r}", hint=hint, location=Location(file, variable=name))


def _known(model: Model, name: str) -> str:
    """An input, or another variable of the program (which is then given instead of computed)."""
    if model.has_variable(name):
        return name
    hint = did_you_mean(name, [*model.feeds, *model.program.global_block().vars]) or listed(model.feeds)
    raise FeedError(f"there is no input {name!r}", hint=hint, location=Location(variable=name))


def _guess(model: Model, file: str, by: Argument) -> str:
    """The input that a file without a name is for."""
    stem = Path(file).stem
    if stem in model.feeds:
        return stem
    if len(model.feeds) == 1:
        return model.feeds[0]
    text = f"{file} does not say which input it is for; {listed(model.feeds)}"
    raise FeedError(text, hint=by.named(file), location=Location(file))


def as_declared(model: Model, name: str, value: LoDTensor) -> LoDTensor:
    """bfloat16 as numpy files hold it (two bytes without a meaning, or uint16) becomes bfloat16."""
    if model.declared(name).dtype == VarType.BF16 and str(value.numpy().dtype) in ("|V2", "void16", "uint16"):
        from fluidtool.tensor import numpy_dtype

        return LoDTensor(value.numpy().view(numpy_dtype(VarType.BF16)), value.lod())
    return value


def _rows(value: LoDTensor) -> int:
    shape = value.shape()
    return shape[0] if shape else 1


# ---------------------------------------------------------------- LoD
def set_lengths(model: Model, lods: Sequence[str], values: Mapping[str, LoDTensor]) -> dict[str, str]:
    """Give values the sequence lengths that `lods` says; returns them all, by name, as JSON."""
    lengths = _lengths(model, lods, list(values))
    for name, value in values.items():
        if name in lengths:
            value.offsets = parse_lengths(lengths[name], _rows(value), f"the input {name}")
    return lengths


def _lengths(model: Model, options: Sequence[str], fed: Sequence[str]) -> dict[str, str]:
    """'NAME=[[2,3]]', '[[2,3]]' or a JSON file {NAME: [[2, 3]]} -> the JSON text of each input."""
    found: dict[str, str] = {}
    inputs = list(fed) if len(fed) == 1 and not any("=" in option for option in options) else [*fed, *model.feeds]
    inputs = list(dict.fromkeys(inputs))
    for option in options:
        if os.path.isfile(option):
            for name, value in _lod_file(Path(option)).items():
                found[_known(model, name)] = json.dumps(value)
        else:
            name, text = split_name(option, inputs, LENGTHS)
            found[name] = text
    return found


def _lod_file(path: Path) -> dict[str, object]:
    content = read_json(path)
    if not isinstance(content, dict):
        raise LoDError(f'{path} must contain an object with the lengths of each input, such as {{"words": [[2, 3]]}}')
    return content


def split_name(text: str, inputs: Sequence[str], by: Argument) -> tuple[str, str]:
    """'NAME=VALUE' -> (NAME, VALUE); raises UsageError for a name that is no input."""
    name, equals, value = text.rpartition("=")
    if not equals:
        if len(inputs) != 1:
            said = f"{by.what} {text!r}: it does not say which input it is for; {listed(inputs)}"
            raise UsageError(said, hint=by.named(text))
        return inputs[0], text
    if name not in inputs:
        hint = did_you_mean(name, inputs) or listed(inputs)
        raise UsageError(f"{by.what} {text!r}: {name!r} is not an input", hint=hint, location=Location(variable=name))
    return name, value
