"""The engine for NVIDIA GPUs: what computes there unless FLUIDTOOL_CUDA=0 (docs/adr/0015)."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any

from fluidtool.errors import FluidError, UsageError
from fluidtool.ops.context import Device
from fluidtool.records import dataclass
from fluidtool.runtime.engines.base import Kernel
from fluidtool.runtime.engines.cuda import attention, convolutions, decoding, images, pooling, ranking, sequences
from fluidtool.runtime.engines.cuda.cublaslt import COMPUTE
from fluidtool.runtime.engines.cuda.lowering import HALVES, lower
from fluidtool.runtime.engines.cuda.region import Constants, CudaRegion, Libraries, bind
from fluidtool.runtime.engines.cuda.training.compiled import StepCompiler
from fluidtool.runtime.engines.cupy.uncompiled import can_compile
from fluidtool.runtime.graph.filling import Filled, fill_up
from fluidtool.runtime.graph.importers.quantization import OPERATORS as QUANTIZATION
from fluidtool.runtime.graph.ir import EngineFaultError
from fluidtool.runtime.graph.pipeline import ImportedRegion, import_region, rewritten
from fluidtool.runtime.graph.spec import RegionSpec

SWITCH = "FLUIDTOOL_CUDA"
PRECISION = "FLUIDTOOL_CUDA_PRECISION"
PACKAGES = {"cublaslt": "nvmath-python", "cudnn": "nvidia-cudnn-frontend"}
CALLS = {"cublaslt": "products", "cudnn": "convolutions"}
"""What the libraries compute."""
LOWERING = (attention, convolutions, decoding, images, pooling, ranking, sequences)
"""The modules that lower further kinds of nodes."""
BUGS = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError)  # of the lowering


@dataclass(frozen=True, slots=True)
class CudaEngine:
    """The engine on one GPU. libraries: those that can be loaded; regions are split at what needs another one."""

    device: Device
    libraries: frozenset[str]
    opened: Libraries
    name: str = "cuda"
    threads: int = 1
    precision: str = "float32"
    any_rows: bool = False
    left_out: frozenset[str] = QUANTIZATION

    @property
    def version(self) -> str:
        """The version of cupy, and the libraries beside it."""
        return " ".join([str(self.device.xp.__version__), *sorted(self.libraries)])

    @property
    def loops(self) -> None:
        """Loops run operator by operator."""

    @property
    def step_compiler(self) -> StepCompiler:
        """Training steps run as CUDA graphs, too."""
        return StepCompiler(self.device, self.libraries, self.opened, self.half)

    def compile(self, spec: RegionSpec, packed: Constants | None = None) -> CudaRegion:
        """Compile a region; raises UnsupportedError if a kernel is missing, OutOfMemoryError."""
        constants = self.packing(tuple(spec.constants.values())) if packed is None else packed
        with naming_bugs(dict.fromkeys(op.type for op, _ in spec.operators)):
            return self._bound(_imported(spec, constants), spec.outputs, constants, spec.pooled)

    def fill_up(self, spec: RegionSpec, packed: Constants) -> Filled:
        """A region with its rows filled up; raises UnsupportedError if it has none, or a kernel is missing."""
        with naming_bugs(dict.fromkeys(op.type for op, _ in spec.operators)):
            filled = fill_up(_imported(spec, packed), spec.outputs)
        with self.device.active():
            return replace(filled, numbers=self.device.array(filled.numbers))

    def compile_filled(self, filled: Filled, outputs: Sequence[str], packed: Constants) -> CudaRegion:
        """Compile it, for all inputs with the same key; raises UnsupportedError, OutOfMemoryError."""
        with naming_bugs(dict.fromkeys(node.kind for node in filled.imported.graph.nodes)):
            return self._bound(filled.imported, outputs, packed)

    def _bound(
        self, imported: ImportedRegion, outputs: Sequence[str], constants: Constants, pooled: Collection[str] = ()
    ) -> CudaRegion:
        imported = replace(imported, graph=rewritten(imported.graph, pooled))
        lowered = lower(imported.graph, self.libraries, constants.buffers, self.half)
        first = self.opened.channels_first(lowered)
        if first:
            lowered = lower(imported.graph, self.libraries, constants.buffers, first=first)
        return bind(imported, tuple(outputs), lowered, constants, self.opened)

    @property
    def half(self) -> str:
        """The type of what regions and training steps keep in memory; '' for float32."""
        return self.precision if self.precision in HALVES else ""

    def packing(self, constants: tuple[Any, ...]) -> Constants:
        """The constants of a region, on the host and on the GPU."""
        return Constants(self.device, constants)

    def kernel(self, type: str, own: Kernel) -> Kernel:
        """The operator's own kernel, which computes with cupy."""
        return own

    def updates(self, type: str) -> Mapping[str, str]:
        """Nothing is changed in place."""
        return {}

    def run_updates(self, pending: list[Any]) -> None:
        """Never called: no kernel of updates puts anything off."""

    def overwrites(self, type: str) -> tuple[str, ...]:
        """No kernel computes in the place of an input."""
        return ()

    def add_rows(self, total: Any, rows: Any, values: Any) -> bool:
        """The device adds."""
        return False


def _imported(spec: RegionSpec, constants: Constants) -> ImportedRegion:
    hosted = {name: constants.on_host(array) for name, array in spec.constants.items()}
    return import_region(replace(spec, constants=hosted, for_gpus=True))


@contextmanager
def naming_bugs(what: Iterable[str]) -> Iterator[None]:
    """Turns errors that only bugs raise into one that says what cannot be compiled."""
    try:
        yield
    except BUGS as error:
        if isinstance(error, FluidError):
            raise
        raise EngineFaultError(f"{', '.join(what)} cannot be compiled: {type(error).__name__}: {error}") from error


def switched_on() -> bool:
    """Whether the engine computes on a GPU: unless FLUIDTOOL_CUDA=0."""
    return os.environ.get(SWITCH) != "0"


def open_engine(device: Device) -> CudaEngine | None:
    """The engine on a GPU; None if it is switched off, or cupy compiles no kernels. Raises UsageError for a precision that it
    does not have.
    """
    if not switched_on() or not can_compile(device.xp):
        return None
    precision, libraries = wanted_precision(), frozenset(name for name in PACKAGES if missing(name) is None)
    return CudaEngine(device, libraries, Libraries(device, precision), precision=precision)


def wanted_precision() -> str:
    """The precision of products, convolutions and memory that FLUIDTOOL_CUDA_PRECISION asks for; raises UsageError for others."""
    asked = os.environ.get(PRECISION) or "float32"
    if asked not in COMPUTE:
        raise UsageError(f"{PRECISION}={asked}: the precisions on a GPU are {', '.join(COMPUTE)}")
    return asked


def missing(library: str) -> str | None:
    """Why a library cannot be loaded; None if it can."""
    try:
        import_module(f"fluidtool.runtime.engines.cuda.{library}").module()
    except (ImportError, OSError, RuntimeError) as error:
        return " ".join(str(error).split())
    return None


def state() -> str:
    """Whether the engine is used on a GPU, and why, in a line."""
    if not switched_on():
        return f"off ({SWITCH}=0): on a GPU every operator is computed by cupy, one at a time"
    if not can_compile(import_module("cupy")):
        return "off, since this cupy compiles no kernels: on a GPU every operator is computed by cupy, one at a time"
    without = [
        f"without {PACKAGES[name]} ({why:.80}) {CALLS[name]} run by cupy"
        for name in PACKAGES
        if (why := missing(name)) is not None
    ]
    precision = os.environ.get(PRECISION) or "float32"
    kept = f"{precision} in memory, except for parameters that are trained, their gradients and sums"
    rounded = {"float32": [], "tf32": ["products and convolutions in tf32"]}.get(precision, [kept])
    return "; ".join(["on, for regions of inference programs and training steps", *rounded, *without])
