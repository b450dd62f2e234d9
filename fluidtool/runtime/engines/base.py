"""What an engine is: it compiles regions, and may have faster kernels for single operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fluidtool.runtime.graph.importers.registry import Lod
from fluidtool.runtime.graph.ir import Graph
from fluidtool.runtime.graph.spec import RegionSpec

Kernel = Callable[..., Any]


class Watch(Protocol):
    """An observer that wants to know how long everything takes."""

    def kernel_calls(self, region: Any, seconds: NDArray[np.float64]) -> None:
        """The kernel calls of a region have run, each in so many seconds."""

    def delegated(self, engine: str, graph: Graph, call: Callable[[], Any]) -> Any:
        """Run a region that another library computes, and return what it returns."""

    def __call__(self, step: Any, block: int) -> None:
        """Run a step of a plan."""


class CompiledRegion(Protocol):
    """A region compiled for the shapes and LoDs of its inputs; `lods` are those of its outputs."""

    @property
    def lods(self) -> Mapping[str, list[list[int]]]:
        """By name."""

    @property
    def memory(self) -> int:
        """The bytes that it takes for itself."""

    def run(
        self, given: Mapping[str, Any], watch: Watch | None = None, lods: Mapping[str, Lod] | None = None
    ) -> dict[str, Any]:
        """Compute the outputs (fresh arrays) from the inputs and, of those that are pooled, their LoDs, by name."""


class Engine(Protocol):
    """What computes a program beside the kernels of its operators."""

    @property
    def name(self) -> str:
        """As --engine takes it."""

    @property
    def version(self) -> str:
        """Of the library that computes, or the instructions that it uses."""

    @property
    def threads(self) -> int:
        """How many compute."""

    @property
    def precision(self) -> str:
        """What products and convolutions are rounded to: 'float32', or 'bf16'."""

    @property
    def any_rows(self) -> bool:
        """Whether what is compiled takes pooled inputs of any number of rows."""

    def compile(self, spec: RegionSpec, packed: Any = None) -> CompiledRegion:
        """Compile a region; raises UnsupportedError where a kernel is missing.

        packed: what `packing` gave for the constants of the region; other specializations of them have used it.
        """

    def packing(self, constants: tuple[NDArray[Any], ...]) -> Any:
        """Where what is packed from these constants is kept, for all specializations of a region."""

    def kernel(self, type: str, own: Kernel) -> Kernel:
        """The kernel to run for single operators of a type: `own`, or a faster one in front of it."""

    def updates(self, type: str) -> Mapping[str, str]:
        """The inputs that its kernel for a type can change where they lie, and the outputs that take their places."""

    def add_rows(self, total: Any, rows: Any, values: Any) -> bool:
        """total[rows[i]] += values[i], in this order; False where it has no kernel for that."""
