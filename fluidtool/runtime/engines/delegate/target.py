"""The operations that an external library must support: graphs are translated to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from fluidtool.runtime.graph.ir import Shape

BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
UNARY = ("relu", "sigmoid", "tanh", "exp", "sqrt", "abs")


class Target(Protocol):
    """A graph of another library under construction. Operands have the library's type; arrays are float32 by default."""

    def input(self, name: str, shape: Shape, integer: bool) -> Any:
        """An input: float32, or int64."""

    def constant(self, array: NDArray[Any]) -> Any:
        """An array, in its own data type."""

    def convolution(self, x: Any, weights: Any, strides: Shape, pads: Shape, dilations: Shape, groups: int) -> Any:
        """NCHW; weights [O, C / groups, kh, kw]; pads top, left, bottom, right."""

    def pool(self, x: Any, window: Shape, strides: Shape, pads: Shape, mode: int) -> Any:
        """mode: 0 maximum, 1 mean of the elements inside, 2 mean of the whole window."""

    def product(self, a: Any, b: Any) -> Any:
        """A product of (stacks of) matrices."""

    def binary(self, name: str, a: Any, b: Any) -> Any:
        """One of BINARY, broadcasting."""

    def unary(self, name: str, x: Any) -> Any:
        """One of UNARY."""

    def clip(self, x: Any, low: float, high: float) -> Any:
        """min(max(x, low), high)."""

    def leaky_relu(self, x: Any, slope: float) -> Any:
        """x where x > 0, else slope * x."""

    def gelu(self, x: Any, by_tanh: bool) -> Any:
        """x * Φ(x), or its approximation."""

    def softmax(self, x: Any) -> Any:
        """Along the last axis."""

    def normalize_rows(self, x: Any, scale: Any, shift: Any, epsilon: float) -> Any:
        """(x - mean) / sqrt(variance + epsilon) * scale + shift along the last axis."""

    def rows(self, table: Any, ids: Any) -> Any:
        """The rows of a table selected by ids."""

    def reshape(self, x: Any, shape: Shape) -> Any:
        """A reshape."""

    def transpose(self, x: Any, axes: Sequence[int]) -> Any:
        """A transpose."""

    def slice(self, x: Any, starts: Sequence[int], ends: Sequence[int]) -> Any:
        """A slice of every axis."""

    def concat(self, parts: Sequence[Any], axis: int) -> Any:
        """A concatenation."""
