"""Weights of a product that are several matrices, or a matrix and a scale: they are put together while they are packed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fluidtool.records import dataclass
from fluidtool.runtime.graph.ir import Shape

Matrix = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ScaledColumns:
    """A matrix whose columns are multiplied by a vector. No such matrix is kept unless it is converted to an array."""

    weights: NDArray[Any]
    scale: NDArray[Any]

    @property
    def shape(self) -> Shape:
        """That of the matrix."""
        return self.weights.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.weights * self.scale, dtype)

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        product: NDArray[Any] = self.weights[rows] * self.scale
        return product

    def __mul__(self, scale: NDArray[Any]) -> ScaledColumns:
        return ScaledColumns(self.weights, self.scale * scale)


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Matrices with the same number of rows, side by side; they are packed one by one."""

    parts: tuple[Any, ...]

    @property
    def shape(self) -> Shape:
        """Rows, and total columns."""
        return self.parts[0].shape[0], sum(part.shape[1] for part in self.parts)


def scaled(weights: Any, scale: NDArray[Any]) -> ScaledColumns:
    """Weights with their columns multiplied by a vector."""
    return weights * scale if isinstance(weights, ScaledColumns) else ScaledColumns(weights, scale)


def matrices(weights: Any) -> Iterator[tuple[Matrix, Matrix | None]]:
    """Each matrix that is packed, with the scale of its columns, or None."""
    for part in weights.parts if isinstance(weights, SideBySide) else (weights,):
        if isinstance(part, ScaledColumns):
            yield _floats(part.weights), np.ascontiguousarray(part.scale, np.float32)
        else:
            yield _floats(part), None


def _floats(matrix: NDArray[Any]) -> Matrix:
    return matrix if matrix.dtype == np.float32 else matrix.astype(np.float32)
