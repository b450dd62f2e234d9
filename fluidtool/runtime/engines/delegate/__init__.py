"""Regions of a program that a library outside computes: ONNX Runtime or OpenVINO, where they are installed.

The regions are those of the native engine, read into the same graph (docs/native.md); a `Target` builds the library's own
graph of it. What a target has no operation for stays with the native engine's kernels and numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fluidtool.errors import DeviceError
from fluidtool.ir import Operator
from fluidtool.runtime.engines.delegate.target import Target
from fluidtool.runtime.engines.delegate.translating import translate
from fluidtool.runtime.engines.native.compiler import Watch, check_bounds, import_region
from fluidtool.runtime.engines.native.library import thread_count
from fluidtool.runtime.engines.native.packed import Packed
from fluidtool.runtime.graph.importers.refusals import Attributes
from fluidtool.runtime.graph.importers.registry import Lod
from fluidtool.runtime.graph.ir import Graph, Shape
from fluidtool.tensor.files import check_unchanged

DELEGATES = ("onnxruntime", "openvino")
Call = Callable[[Mapping[str, NDArray[Any]]], Sequence[NDArray[Any]]]


class Package(Protocol):
    """What the module of an engine offers."""

    def version(self) -> str:
        """Of the library; raises ImportError where it is not installed."""

    def target(self) -> Target:
        """A new, empty graph."""

    def load(self, target: Any, outputs: Sequence[Any], shapes: Sequence[Shape], threads: int) -> Call:
        """Compile a graph that is complete."""


@dataclass(frozen=True, slots=True)
class Handed:
    """A region that a library computes."""

    engine: str
    graph: Graph
    wanted: tuple[str, ...]
    bounds: list[tuple[str, int]]
    lods: dict[str, list[list[int]]]
    memory: int  # bytes of the constants, of which the library has its own copy
    call: Call

    def run(
        self, given: Mapping[str, Any], watch: Watch | None = None, lods: Mapping[str, Lod] | None = None
    ) -> dict[str, Any]:
        """Compute the outputs (fresh arrays) from the inputs, by name."""
        check_bounds(self.bounds, given)
        arrays = {value.name: np.ascontiguousarray(given[value.name], value.dtype) for value in self.graph.inputs}
        found = (
            self.call(arrays) if watch is None else watch.delegated(self.engine, self.graph, lambda: self.call(arrays))
        )
        return dict(zip(self.wanted, found, strict=True))


@dataclass(frozen=True, slots=True)
class DelegateEngine:
    """An engine that compiles regions by a library outside."""

    name: str
    version: str
    threads: int
    package: Package
    any_rows: bool = False

    def compile(
        self,
        ops: Sequence[tuple[Operator, Attributes]],
        given: Mapping[str, NDArray[Any]],
        constants: Mapping[str, NDArray[Any]],
        wanted: Sequence[str],
        lods: Mapping[str, Lod] | None = None,
        packed: Packed | None = None,
        pooled: Collection[str] = (),
    ) -> Handed:
        """Compile operators for inputs of these shapes and LoDs; raises UnsupportedError where an operation is missing.

        The library outside packs what it packs by itself, not in `packed`.
        """
        check_unchanged(constants.values())
        understood = import_region(ops, given, constants, wanted, lods)
        graph = understood.graph
        target = self.package.target()
        outputs = translate(graph, target)
        shapes = [value.shape for value in graph.outputs]
        call = self.package.load(target, outputs, shapes, self.threads)
        memory = sum(array.nbytes for array in constants.values())
        return Handed(self.name, graph, tuple(wanted), understood.bounds, understood.lods, memory, call)


def delegate_engine(name: str) -> DelegateEngine:
    """The engine of that name; raises DeviceError where its package is not installed."""
    package: Any = import_module(f"fluidtool.runtime.engines.{name}")
    try:
        version = package.version()
    except ImportError as error:
        raise DeviceError(
            f"the engine {name} is not here ({error}); install it: pip install 'fluidtool[{name}]'"
        ) from error
    return DelegateEngine(name, version, thread_count(), package)
