"""Cutting parameters into pieces of whole rows (Paddle 1.8.5 distribute_transpiler.py, slice_variable)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from fluidtool.ir import Variable
from fluidtool.proto.enums import VarType

SMALLEST_BLOCK = 8192


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive rows of a variable, under the name that they have of their own.

    parameter: the parameter that this is a piece of, or of the gradient of. index: which piece. offset: elements before
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

    def renamed(self, name: str) -> Piece:
        """The same under another name."""
        return replace(self, name=name)


def row_counts(shape: Sequence[int], servers: int, min_block_size: int) -> list[int]:
    """Rows of each piece of a tensor: at most `servers` pieces of at least `min_block_size` elements, whole rows.

    Sizes follow Paddle: ceil(elements / pieces), rounded up to whole rows; the last piece takes what is left.
    """
    elements, width = prod(shape), prod(shape[1:])
    pieces = min(servers, max(elements // min_block_size, 1))
    block = -(-elements // pieces)
    block = -(-block // width) * width if width else 0
    if block <= 0:
        return [shape[0]]
    return [min(block, elements - start) // width for start in range(0, elements, block)]


def cut_variable(var: Variable, parameter: str, servers: int, min_block_size: int) -> tuple[Piece, ...]:
    """The pieces of a parameter, or of its gradient: `<name>.block<k>`, or the variable itself when it stays whole."""
    rows = row_counts(var.shape, servers, min_block_size)
    if len(rows) == 1:
        return (Piece(var.name, parameter, 0, 0, var.shape, var.dtype, var.type, var.lod_level),)
    width, pieces, first = prod(var.shape[1:]), [], 0
    for index, count in enumerate(rows):
        name, shape = f"{var.name}.block{index}", (count, *var.shape[1:])
        pieces.append(Piece(name, parameter, index, first * width, shape, var.dtype, var.type, 0, cut=True))
        first += count
    return tuple(pieces)
