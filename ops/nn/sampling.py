"""Reading images between their cells: linear interpolation at free positions, zeros outside, and its gradients.

x is [B, C, D1, ..., Dk]; a position is one array [B, P] per axis, in cells.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

from fluidtool.ops.context import OpContext
from fluidtool.ops.nn.pooling import scatter_sum

Positions = list[Any]


def read_cells(xp: Any, x: Any, cells: Positions, within: Any = None) -> tuple[Any, Any, Any]:
    """(values [B, C, P] of whole cells with zeros outside, flat cells in a plane, which are inside).

    `within` says of each position whether it counts as inside, beyond being so.
    """
    inside: Any = within
    for cell, size in zip(cells, x.shape[2:], strict=True):
        here = (cell >= 0) & (cell <= size - 1)
        inside = here if inside is None else inside & here
    flat: Any = 0
    for cell, size in zip(cells, x.shape[2:], strict=True):
        flat = flat * size + xp.where(inside, cell, 0).astype("int64")
    values = xp.take_along_axis(x.reshape(*x.shape[:2], -1), flat[:, None], axis=2)
    return values * inside[:, None], flat, inside


def scatter_cells(ctx: OpContext, shape: tuple[int, ...], flat: Any, values: Any) -> Any:
    """An array of this shape, each cell the sum of the `values` [B, C, P] that `flat` [B, P] sends there."""
    planes = ctx.xp.arange(shape[0] * shape[1]).reshape(shape[0], shape[1], 1) * prod(shape[2:])
    return scatter_sum(ctx, planes + flat[:, None], values, prod(shape)).reshape(shape)


def _corners(xp: Any, positions: Positions) -> list[tuple[Positions, list[Any], tuple[int, ...]]]:
    """The cells around each position: (cells by axis, weights by axis, 0 or 1 by axis for below or above)."""
    below = [xp.floor(position) for position in positions]
    corners = []
    for choice in product((0, 1), repeat=len(positions)):
        cells = [low + bit for low, bit in zip(below, choice, strict=True)]
        weights = [
            position - low if bit else low + 1 - position
            for position, low, bit in zip(positions, below, choice, strict=True)
        ]
        corners.append((cells, weights, choice))
    return corners


def sample(xp: Any, x: Any, positions: Positions) -> Any:
    """[B, C, P]: x at the positions, by linear interpolation."""
    out = xp.zeros((*x.shape[:2], positions[0].shape[1]), dtype=x.dtype)
    for cells, weights, _ in _corners(xp, positions):
        out += read_cells(xp, x, cells)[0] * prod(weights)[:, None]
    return out


def sample_grad(ctx: OpContext, x: Any, positions: Positions, grad: Any) -> tuple[Any, Positions]:
    """(gradient by x, gradients by the positions) of `sample`, from the gradient [B, C, P] of what it gave."""
    xp = ctx.xp
    x_grad = xp.zeros(x.shape, dtype=x.dtype)
    slopes = [xp.zeros_like(position) for position in positions]
    for cells, weights, choice in _corners(xp, positions):
        values, flat, inside = read_cells(xp, x, cells)
        x_grad += scatter_cells(ctx, x.shape, flat, grad * (prod(weights) * inside)[:, None])
        pull = (values * grad).sum(axis=1)
        for axis, bit in enumerate(choice):
            others = prod((weight for i, weight in enumerate(weights) if i != axis), start=1 if bit else -1)
            slopes[axis] += pull * others
    return x_grad, slopes
