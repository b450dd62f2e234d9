"""Regions computed by an external library: ONNX Runtime or OpenVINO, if installed.

The regions are those of the native engine, imported into the same graph (docs/native.md); a `Target` builds the library's
graph from it. Operations that a target lacks stay with the native engine's kernels and numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fluidtool.errors import DeviceError
from fluidtool.records import dataclass
from fluidtool.runtime.engines.base import Engine, Kernel, Watch
from fluidtool.runtime.engines.delegate.target import Target
from fluidtool.runtime.engines.delegate.translating import translate
from fluidtool.runtime.engines.registry import engine_for
from fluidtool.runtime.engines.threads import thread_count
from fluidtool.runtime.graph.importers.quantization import OPERATORS as QUANTIZATION
from fluidtool.runtime.graph.importers.registry import FOR_GPUS, Lod
from fluidtool.runtime.graph.ir import Shape
from fluidtool.runtime.graph.pipeline import ImportedRegion, import_region
from fluidtool.runtime.graph.spec import RegionSpec
from fluidtool.tensor.files import check_unchanged

Call = Callable[[Mapping[str, NDArray[Any]]], Sequence[NDArray[Any]]]


class Package(Protocol):
    """The interface of an engine's module."""

    def version(self) -> str:
        """The version of the library; raises ImportError if it is not installed."""

    def target(self) -> Target:
        """A new, empty graph."""

    def load(self, target: Any, outputs: Sequence[Any], shapes: Sequence[Shape], threads: int) -> Call:
        """Compile a complete graph."""


@dataclass(frozen=True, slots=True)
class DelegatedRegion:
    """A region computed by an external library; `memory`: bytes of the constants, which it copies."""

    engine: str
    imported: ImportedRegion
    outputs: tuple[str, ...]
    memory: int
    call: Call
    runs_to_pay: int = 0
    marks_ids: bool = False

    @property
    def lods(self) -> Mapping[str, list[list[int]]]:
        """The LoDs of the outputs, by name."""
        return self.imported.lods

    def run(
        self, given: Mapping[str, Any], watch: Watch | None = None, lods: Mapping[str, Lod] | None = None
    ) -> dict[str, Any]:
        """Compute the outputs (fresh arrays) from the inputs, by name."""
        self.imported.check_bounds(given)
        graph = self.imported.graph
        arrays = {value.name: np.ascontiguousarray(given[value.name], value.dtype) for value in graph.inputs}
        found = self.call(arrays) if watch is None else watch.delegated(self.engine, graph, lambda: self.call(arrays))
        return dict(zip(self.outputs, found, strict=True))


@dataclass(frozen=True, slots=True)
class DelegateEngine:
    """An engine that compiles regions with an external library; single operators run on the kernels of `others`, if any."""

    name: str
    version: str
    threads: int
    package: Package
    others: Engine | None = None
    any_rows: bool = False
    precision: str = "float32"
    left_out: frozenset[str] = FOR_GPUS | QUANTIZATION

    def compile(self, spec: RegionSpec, packed: Any = None) -> DelegatedRegion:
        """Compile operators for inputs of these shapes and LoDs; raises UnsupportedError if an operation is missing."""
        check_unchanged(spec.constants.values())
        imported = import_region(spec)
        target = self.package.target()
        outputs = translate(imported.graph, target)
        shapes = [value.shape for value in imported.graph.outputs]
        call = self.package.load(target, outputs, shapes, self.threads)
        memory = sum(array.nbytes for array in spec.constants.values())
        return DelegatedRegion(self.name, imported, tuple(spec.outputs), memory, call)

    @property
    def loops(self) -> None:
        """Loops run operator by operator."""

    @property
    def step_compiler(self) -> None:
        """Training programs run operator by operator."""

    def packing(self, constants: tuple[NDArray[Any], ...]) -> None:
        """None: the library packs its constants itself."""

    def kernel(self, type: str, own: Kernel) -> Kernel:
        """The kernel of the other engine."""
        return own if self.others is None else self.others.kernel(type, own)

    def updates(self, type: str) -> Mapping[str, str]:
        """The in-place changes of the other engine's kernel for a type."""
        return {} if self.others is None else self.others.updates(type)

    def run_updates(self, pending: list[Any]) -> None:
        """Run what the other engine's kernels of updates have put off."""
        assert self.others is not None
        self.others.run_updates(pending)

    def overwrites(self, type: str) -> tuple[str, ...]:
        """The inputs in whose place the other engine's kernel for a type can compute."""
        return () if self.others is None else self.others.overwrites(type)

    def add_rows(self, total: Any, rows: Any, values: Any) -> bool:
        """total[rows[i]] += values[i] by the other engine."""
        return self.others is not None and self.others.add_rows(total, rows, values)


def delegate_engine(name: str, package: Package) -> DelegateEngine:
    """The engine of a package; raises DeviceError if it is not installed. `others` compute what is not delegated."""
    try:
        version = package.version()
    except ImportError as error:
        raise DeviceError(
            f"the engine {name} is not available ({error}); install it: pip install 'fluidtool[{name}]'"
        ) from error
    return DelegateEngine(name, version, thread_count(), package, engine_for())
