"""`random_feed(model)`: inputs of the declared data types and shapes, to try a model with."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

import numpy as np

from fluidtool.errors import FeedError
from fluidtool.feeding import describe_variable
from fluidtool.ir import Program, Variable
from fluidtool.ir.variable import data_type_name
from fluidtool.model import Model
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text
from fluidtool.tensor import LoDTensor, numpy_dtype
from fluidtool.tensor.lod import LoD, check_lod, lengths_to_offsets

UNKNOWN_LENGTH, UNKNOWN_HEIGHT = 32, 64  # for what is neither the batch nor declared: of a sentence, of an image
ROWS = 4  # of one sequence
IDS = 100  # ids that look up a table are below this, and below its height
TABLES = frozenset({"lookup_table", "lookup_table_v2", "embedding", "lookup_sparse_table"})


def random_feed(
    model: Model,
    names: Iterable[str] | None = None,
    *,
    batch: int = 1,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    lods: Mapping[str, LoD] | None = None,
    seed: int = 0,
) -> dict[str, LoDTensor]:
    """A value for each input (or those of `names`); the same seed gives the same values.

    A first size of -1 becomes `batch`, another one 32 (64 in an image, of 4 dimensions), unless `shapes` has the input.
    An input with one level of LoD gets `batch` sequences of 4 to 6 rows, one with more levels `batch` sequences of one
    row, unless `lods` has its offsets. Floats are uniform in [0, 1), ids are below the height of the table that they look
    up (and below 100), other integers are 0 or 1.
    Raises FeedError for an input whose declaration does not say enough.
    """
    generator = np.random.default_rng(seed)
    shapes, lods = shapes or {}, lods or {}
    block = model.program.global_block()
    feed = {}
    for name in model.feeds if names is None else names:
        var = block.vars.get(name)
        if var is None or var.type != VarType.LOD_TENSOR or var.dtype is None or not (var.has_shape or name in shapes):
            shown = describe_variable(var) if var is not None else name
            raise FeedError(f"input {shown} has no declared shape and data type to make random values of; feed it")
        lod = lods[name] if name in lods else _sequences(var.lod_level, batch)
        shape = shapes.get(name) or _sizes(var, batch, lod)
        check_lod(lod, shape[0] if shape else 1, f"the input {name} of shape {shape_text(shape)}")
        feed[name] = LoDTensor(_values(generator, model.program, var, shape), lod)
    return feed


def _sequences(levels: int, batch: int) -> LoD:
    """Offsets of `batch` sequences; several levels hold one row each, which is how a beam search starts."""
    if levels == 1:
        return lengths_to_offsets([[ROWS + index % 3 for index in range(batch)]])
    return lengths_to_offsets([[1] * batch] * levels)


def _sizes(var: Variable, batch: int, lod: LoD) -> tuple[int, ...]:
    first = lod[-1][-1] if lod else batch
    unknown = UNKNOWN_HEIGHT if len(var.shape) > 3 else UNKNOWN_LENGTH
    sizes = [first if axis == 0 else unknown if size < 0 else size for axis, size in enumerate(var.shape)]
    if sizes and var.shape[0] >= 0 and not lod:
        sizes[0] = var.shape[0]
    return tuple(sizes)


def _values(generator: np.random.Generator, program: Program, var: Variable, shape: tuple[int, ...]) -> Any:
    assert var.dtype is not None
    dtype = numpy_dtype(var.dtype)
    if prod(shape) * dtype.itemsize > sys.maxsize:
        raise FeedError(
            f"input {describe_variable(var)} would have {prod(shape)} elements, more than any memory; feed it"
        )
    kind = "f" if dtype.name == "bfloat16" else dtype.kind
    if kind == "f":
        return generator.random(shape, np.float32).astype(dtype)
    if kind == "c":
        return (generator.random(shape) + 1j * generator.random(shape)).astype(dtype)
    if kind in "iub":
        return generator.integers(0, _bound(program, var.name), shape).astype(dtype)
    raise FeedError(f"cannot make random {data_type_name(var.dtype)} for input {var.name}; feed it")


def _bound(program: Program, name: str) -> int:
    """The least height of the tables that an input looks up, 100 at most; 2 for an input that looks up none."""
    heights = [
        op.block.var_recursive(table).shape[0]
        for block in program.blocks
        for op in block.ops
        if op.type in TABLES and name in op.input("Ids")
        for table in op.input("W")
        if op.block.has_var_recursive(table) and op.block.var_recursive(table).shape
    ]
    return max(1, min([IDS, *heights])) if heights else 2
