"""The native engine: regions compiled to kernel calls, and kernels for single operators."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from fluidtool.errors import DeviceError, FluidError
from fluidtool.ops.control_flow.compiled import LoopCompiler
from fluidtool.records import dataclass
from fluidtool.runtime.engines.base import Kernel
from fluidtool.runtime.engines.native.compiler import compile_region
from fluidtool.runtime.engines.native.constants import Packed, PackedConstants
from fluidtool.runtime.engines.native.library import (
    BUILD,
    INT8,
    SWITCH,
    Library,
    absence,
    is_off,
    library,
    switched_off,
)
from fluidtool.runtime.engines.native.region import NativeRegion
from fluidtool.runtime.graph.importers.quantization import OPERATORS as QUANTIZATION
from fluidtool.runtime.graph.importers.registry import FOR_GPUS
from fluidtool.runtime.graph.ir import EngineFaultError
from fluidtool.runtime.graph.spec import RegionSpec

BUGS = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError)  # of an importer or of the lowering


@dataclass(frozen=True, slots=True)
class NativeEngine:
    """The engine on a library."""

    library: Library
    any_rows: bool = True
    int8: bool = True
    name: str = "native"

    @property
    def version(self) -> str:
        """The instruction set that the library uses."""
        return self.library.instructions

    @property
    def threads(self) -> int:
        """The number of threads."""
        return self.library.threads

    @property
    def precision(self) -> str:
        """The precision of products and convolutions."""
        return self.library.precision

    def compile(self, spec: RegionSpec, packed: Packed | None = None) -> NativeRegion:
        """Compile a region (compiler.py); raises UnsupportedError if a kernel is missing."""
        try:
            return compile_region(spec, self.library, packed)
        except BUGS as error:
            if isinstance(error, FluidError):
                raise
            types = ", ".join(dict.fromkeys(op.type for op, _ in spec.operators))
            raise EngineFaultError(f"{types} cannot be compiled: {type(error).__name__}: {error}") from error

    @property
    def left_out(self) -> frozenset[str]:
        """What has kernels for GPUs only; quantizers, unless it computes in 8 bits."""
        return FOR_GPUS if self.int8 else FOR_GPUS | QUANTIZATION

    @property
    def step_compiler(self) -> None:
        """Training programs run operator by operator."""

    @property
    def loops(self) -> LoopCompiler | None:
        """What compiles loops, in float32."""
        if self.library.precision != "float32":
            return None
        from fluidtool.runtime.engines.native.loops.running import NativeLoops  # most programs have no loop

        return NativeLoops(self.library)

    def packing(self, constants: tuple[NDArray[Any], ...]) -> PackedConstants:
        """Storage for packed constants."""
        return PackedConstants(constants, self.library)

    def kernel(self, type: str, own: Kernel) -> Kernel:
        """The kernel for operators of a type (kernels/)."""
        from fluidtool.runtime.engines.native.kernels import fastest_kernel  # many programs never need it

        return fastest_kernel(type, own, self.library)

    def updates(self, type: str) -> Mapping[str, str]:
        """The in-place changes of its kernel for a type."""
        from fluidtool.runtime.engines.native.kernels import UPDATES  # many programs never need it

        return UPDATES.get(type, {})

    def run_updates(self, pending: Any) -> None:
        """Run what kernels of updates have put off."""
        from fluidtool.runtime.engines.native.kernels.direct import run_calls  # many programs never need it

        run_calls(self.library, pending)

    def overwrites(self, type: str) -> tuple[str, ...]:
        """The inputs that its kernel for a type can compute in the place of."""
        from fluidtool.runtime.engines.native.kernels import OVERWRITES  # many programs never need it

        return OVERWRITES.get(type, ())

    def add_rows(self, total: Any, rows: Any, values: Any) -> bool:
        """total[rows[i]] += values[i], in this order, for floats and row numbers."""
        from fluidtool.runtime.engines.native.kernels.rows import add_rows, are_places  # many programs never need it

        if not are_places(total, rows, values):
            return False
        add_rows(self.library, total, rows, values)
        return True


def open_engine(precision: str, *, required: bool) -> NativeEngine | None:
    """The engine; None if it is switched off or not available, unless it is required: then raises DeviceError."""
    if switched_off() and not required:
        return None
    found = library()
    if found is None:
        if required:
            raise DeviceError(f"the native engine is not available; {absence() or f'build it with {BUILD}'}")
        return None
    library_of_it = found if precision == "float32" else replace(found, precision=precision)
    return NativeEngine(library_of_it, int8=not is_off(INT8))


def why_not() -> str:
    """Why the native engine is not in use."""
    return absence() or f"switched off by {SWITCH}={os.environ.get(SWITCH)}"
