"""Shapes as people read them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fluidtool.shapes import shape_text, shapes_text


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ((2, 3), "(2, 3)"),
        ([2, 3], "(2, 3)"),
        ((-1, 3), "(-1, 3)"),
        ((3,), "(3,)"),
        ((), "()"),
        (None, "?"),
        (np.array([2, 3]), "(2, 3)"),
    ],
)
def test_a_shape_is_a_tuple_of_sizes(shape: Sequence[int] | None, text: str) -> None:
    assert shape_text(shape) == text


def test_shapes_are_listed() -> None:
    assert shapes_text([(2, 3), [3], None]) == "(2, 3), (3,), ?"
