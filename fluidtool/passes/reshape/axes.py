"""Sizes of inputs that change, and operators that contain the old ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fluidtool.ir import Program
from fluidtool.ops.inference import declared_meta
from fluidtool.records import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Axis:
    """One size of an input: before, after (-1: known only at run time), and the size to try in place of an open one."""

    name: str
    index: int
    old: int
    new: int
    tried: int


@dataclass(frozen=True, slots=True)
class Baked:
    """An operator that contains a size of the old inputs: its place, the attribute, why it cannot stay, its repair.

    `attribute` and `value` are empty if no attribute is at fault, and `repair` if there is none.
    """

    block: int
    operator: int
    type: str
    output: str
    attribute: str
    value: str
    reason: str
    repair: str
    written_in: str


def changed_axes(program: Program, shapes: Mapping[str, Shape]) -> tuple[Axis, ...]:
    """The sizes that differ between the declarations and `shapes`."""
    variables = program.global_block().vars
    found = []
    for name, shape in shapes.items():
        meta = declared_meta(variables[name])
        assert meta is not None
        pairs = enumerate(zip(meta.shape, shape, strict=True))
        found += [Axis(name, at, old, new, _tried(at, old, new)) for at, (old, new) in pairs if old != new]
    return tuple(found)


def _tried(index: int, old: int, new: int) -> int:
    """A batch has no factor in common with the old one; images keep the factors that pooling needs."""
    return new if new >= 0 else 2 * old + 1 if index == 0 else 2 * old


def tried_shape(shape: Sequence[int], axes: Sequence[Axis], name: str) -> Shape:
    """The shape of an input with the sizes that are tried."""
    tried = {axis.index: axis.tried for axis in axes if axis.name == name}
    return tuple(tried.get(index, size) for index, size in enumerate(shape))
