"""Shapes as people read them, the same in every message, table and drawing. JSON has lists."""

from __future__ import annotations

from collections.abc import Iterable


def shape_text(shape: Iterable[int] | None) -> str:
    """[-1, 3] -> '(-1, 3)', [3] -> '(3,)', [] -> '()'; '?' where nothing is known of the shape."""
    return "?" if shape is None else str(tuple(int(size) for size in shape))


def shapes_text(shapes: Iterable[Iterable[int] | None]) -> str:
    """[[2, 3], [3]] -> '(2, 3), (3,)'."""
    return ", ".join(map(shape_text, shapes))
