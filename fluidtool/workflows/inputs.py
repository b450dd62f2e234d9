"""What a model is fed: files, and random values for the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fluidtool.errors import FeedError, Hint, Location, UsageError
from fluidtool.io.arrays import parse_lengths
from fluidtool.model import Model
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text
from fluidtool.tensor import LoDTensor
from fluidtool.tensor.lod import LoD
from fluidtool.workflows.feeds import SHAPE, as_declared, read_feed, set_lengths, split_name
from fluidtool.workflows.watcher import SILENT, Watcher


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the inputs of a model are made of.

    feeds: the values, {"x": array}; or files: 'NAME=FILE', or 'FILE' (.npy, .npz, '-' for standard input). lods:
    'NAME=[[2,3]]', or a JSON file with the lengths by name. random: random values for every input that is not fed; `shapes`,
    'NAME=1,3,224,224', and `batch` (by default what the model declares, or 1) say how large, `seed` which.
    """

    feeds: Sequence[str] | Mapping[str, Any] = ()
    lods: Sequence[str] = ()
    random: bool = False
    shapes: Sequence[str] = ()
    batch: int | None = None
    seed: int = 0


def gather(model: Model, inputs: Inputs, watcher: Watcher = SILENT) -> dict[str, LoDTensor]:
    """The value of each input that is given, or made at random.

    Raises FeedError for what does not fit the model, UnreadableError for a file, LoDError for lengths, UsageError for an
    option that names no input.
    """
    values = model.tensors(inputs.feeds) if isinstance(inputs.feeds, Mapping) else {}
    for spec in () if isinstance(inputs.feeds, Mapping) else inputs.feeds:
        for name, value in read_feed(model, spec).items():
            if name in values:
                raise FeedError(f"the input {name} is fed twice", location=Location(variable=name))
            values[name] = as_declared(model, name, value)
    lengths = set_lengths(model, inputs.lods, values)
    if inputs.random:
        values |= _random(model, values, lengths, inputs, watcher)
    elif inputs.shapes:
        raise FeedError("shapes apply to random inputs", hint=Hint("give random=True too", "give --random too"))
    unfed = [name for name in lengths if name not in values]
    if unfed:
        raise FeedError(
            f"{unfed[0]} has sequence lengths, but is not fed",
            hint=Hint(f"give feeds={{'{unfed[0]}': array}} or random=True", f"give --feed {unfed[0]}=FILE or --random"),
            location=Location(variable=unfed[0]),
        )
    return values


def parse_shapes(options: Sequence[str], inputs: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """['image=1,3,224,224'] -> {'image': (1, 3, 224, 224)}; the name may be left out where there is one input."""
    shapes = {}
    for option in options:
        name, text = split_name(option, inputs, SHAPE)
        sizes = text.strip("[]() ").split(",") if text.strip("[]() ") else []
        if not all(size.strip().isdecimal() for size in sizes):
            text = f"the shape {option!r}: expected sizes separated by commas, such as {name}=1,3,224,224"
            raise UsageError(text, location=Location(variable=name))
        shapes[name] = tuple(int(size) for size in sizes)
    return shapes


def _random(
    model: Model, given: Mapping[str, LoDTensor], lengths: Mapping[str, str], inputs: Inputs, watcher: Watcher
) -> dict[str, LoDTensor]:
    from fluidtool.random_feed import random_feed
    from fluidtool.workflows.batch import require_batch

    names = [name for name in model.feeds if name not in given]
    shapes = parse_shapes(inputs.shapes, names)
    require_batch(model, inputs.batch, [name for name in names if name not in shapes], watcher)
    lods: dict[str, LoD] = {}
    for name in names:
        if name in lengths:
            lods[name] = parse_lengths(lengths[name], None, f"the input {name}")
    values = random_feed(model, names, batch=inputs.batch or 1, shapes=shapes, lods=lods, seed=inputs.seed)
    for name, value in values.items():
        lod = f", sequence lengths {value.recursive_sequence_lengths()}" if value.offsets else ""
        watcher.say(f"random input {name}: {value.numpy().dtype} {shape_text(value.shape())}{lod}")
    return values
