"""Cutting parameters into shards of whole rows (Paddle 1.8.5 distribute_transpiler.py, slice_variable)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from fluidtool.ir import Variable
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass

SMALLEST_BLOCK = 8192


@dataclass(frozen=True, slots=True)
class Shard:
    """Consecutive rows of a variable, under the name that they have of their own.

    parameter: the parameter that this is a shard of, or of the gradient of. index: which shard. offset: elements before
    it. cut: False when it is the whole variable.
    """

    name: str
    parameter: str
    index: int
    offset: int
    shape: tuple[int, ...]
    dtype: VarType | None
    type: VarType | int
    lod_level: int = 0
    cut: bool = False

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return prod(self.shape)

    def renamed(self, name: str) -> Shard:
        """The same under another name."""
        return replace(self, name=name)


def row_counts(shape: Sequence[int], servers: int, min_block_size: int) -> list[int]:
    """Rows of each shard of a tensor: at most `servers` shards of at least `min_block_size` elements, whole rows.

    Sizes follow Paddle: ceil(elements / shards), rounded up to whole rows; the last shard takes what is left.
    """
    elements, width = prod(shape), prod(shape[1:])
    shards = min(servers, max(elements // min_block_size, 1))
    block = -(-elements // shards)
    block = -(-block // width) * width if width else 0
    if block <= 0:
        return [shape[0]]
    return [min(block, elements - start) // width for start in range(0, elements, block)]


def cut_variable(var: Variable, parameter: str, servers: int, min_block_size: int) -> tuple[Shard, ...]:
    """The shards of a parameter, or of its gradient: `<name>.block<k>`, or the variable itself when it stays whole."""
    rows = row_counts(var.shape, servers, min_block_size)
    if len(rows) == 1:
        return (Shard(var.name, parameter, 0, 0, var.shape, var.dtype, var.type, var.lod_level),)
    width, shards, first = prod(var.shape[1:]), [], 0
    for index, count in enumerate(rows):
        name, shape = f"{var.name}.block{index}", (count, *var.shape[1:])
        shards.append(Shard(name, parameter, index, first * width, shape, var.dtype, var.type, 0, cut=True))
        first += count
    return tuple(shards)
