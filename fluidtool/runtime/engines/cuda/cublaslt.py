"""cuBLASLt, by nvmath-python: products of matrices, with a bias, an addend and an activation as epilogue.

Of float32 they are computed in float32, or on request with factors that are rounded to TF32 or halves; of halves in memory with
sums in float32.

cuBLASLt counts by columns: a matrix row by row is to it a matrix of as many rows as there are columns. So y' x' is computed, which
is the product row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from fluidtool.records import dataclass
from fluidtool.runtime.engines.cuda.calls import Matrix, Pointer, Product
from fluidtool.runtime.engines.cuda.plans import Choices

WORKSPACE = 32 << 20  # bytes; what NVIDIA advises for sm_90
TYPES = {"": 0, "fp16": 2, "bf16": 14}  # cudaDataType_t (library_types.h) by what is in memory
COMPUTE = {"float32": 68, "tf32": 77, "bf16": 75, "fp16": 74}  # cublasComputeType_t (cublas_api.h): CUBLAS_COMPUTE_32F…
EPILOGUES = {
    (False, ""): "DEFAULT", (True, ""): "BIAS", (False, "relu"): "RELU", (True, "relu"): "RELU_BIAS",
    (False, "gelu"): "GELU", (True, "gelu"): "GELU_BIAS",
}  # fmt: skip
ALIGNED = 256  # bytes; what cuBLASLt takes for granted unless it is told
Address = Callable[[Pointer], int]


def module() -> Any:
    """The bindings; raises ImportError without them."""
    from nvmath.bindings import cublasLt

    return cublasLt


@dataclass(frozen=True, slots=True)
class Planned:
    """A product as cuBLASLt computes it: descriptions and an algorithm. They live as long as the process."""

    description: int
    layouts: tuple[int, int, int, int]
    algorithm: Any
    scalars: Any  # alpha and beta


class CublasLt:
    """cuBLASLt on the current device; plans are kept by sizes and by the alignment of addresses."""

    def __init__(self, xp: Any, precision: str = "float32") -> None:
        self._xp, self._lt, self._precision = xp, module(), precision
        self._handle = self._lt.create()
        self._workspace = xp.empty(WORKSPACE, np.uint8)
        self._plans: dict[Any, Planned] = {}
        self._choices = Choices(xp, "cublaslt", self.version, precision)

    @property
    def version(self) -> int:
        """The version of the library."""
        return int(self._lt.get_version())

    def run(self, call: Product, address: Address) -> None:
        """Compute a product on the current stream. address: a pointer's number."""
        found = self.plan(call, address)
        if call.bias is not None:
            self._set_description(found.description, "BIAS_POINTER", address(call.bias))
        added = 0 if call.added is None else address(call.added.pointer)
        out, scalars = address(call.out.pointer), found.scalars.ctypes.data
        stream = self._xp.cuda.get_current_stream().ptr
        x, y = address(call.x.pointer), address(call.y.pointer)
        of_y, of_x, of_added, of_out = found.layouts
        self._lt.matmul(
            self._handle, found.description, scalars, y, of_y, x, of_x, scalars + 4, added or out, of_added, out, of_out,
            found.algorithm.ctypes.data, self._workspace.data.ptr, WORKSPACE, stream,
        )  # fmt: skip

    def plan(self, call: Product, address: Address) -> Planned:
        """The plan of a product, from an earlier one of the same sizes if there is one."""
        operands: tuple[Matrix, ...] = (call.y, call.x, call.added or call.out, call.out)
        alignments = tuple(aligned(address(each.pointer)) for each in operands)
        key = (
            call.rows, call.depth, call.columns, call.matrices, call.alpha, call.epilogue, call.bias is not None, alignments,
            *(
                each and (each.step, each.turned, each.batch, each.pointer.buffer.half)
                for each in (call.x, call.y, call.out, call.added)
            ),
        )  # fmt: skip
        found = self._plans.get(key)
        if found is None:
            found = self._plans[key] = self._planned(call, alignments, key)
        return found

    def _planned(self, call: Product, alignments: tuple[int, ...], key: Any) -> Planned:
        lt = self._lt
        halves = bool(call.x.pointer.buffer.half)
        description = lt.matmul_desc_create(COMPUTE["float32" if halves else self._precision], TYPES[""])
        self._set_description(description, "TRANSA", int(call.y.turned))
        self._set_description(description, "TRANSB", int(call.x.turned))
        epilogue = EPILOGUES[call.bias is not None, call.epilogue]
        self._set_description(description, "EPILOGUE", int(getattr(lt.Epilogue, epilogue)))
        added = call.out if call.added is None else call.added
        layouts = (
            self._layout(call.y, call.depth, call.columns, call.matrices),
            self._layout(call.x, call.rows, call.depth, call.matrices),
            self._layout(added, call.rows, call.columns, call.matrices),
            self._layout(call.out, call.rows, call.columns, call.matrices),
        )
        kind = self._lt.matmul_heuristic_result_dtype["algo"]

        def choose() -> bytes:
            return bytes(self._algorithm(description, layouts, alignments).tobytes())

        algorithm = np.frombuffer(self._choices.get((WORKSPACE, key), kind.itemsize, choose), kind).copy()
        scalars = np.array([call.alpha, 0.0 if call.added is None else 1.0], np.float32)
        return Planned(description, layouts, algorithm, scalars)

    def _layout(self, matrix: Matrix, rows: int, columns: int, matrices: int) -> int:
        """A matrix as cuBLASLt sees it: its lines are columns."""
        lines, length = (columns, rows) if matrix.turned else (rows, columns)
        kind = TYPES[matrix.pointer.buffer.half]
        found = self._lt.matrix_layout_create(kind, length, lines, max(matrix.step, length))
        if matrices > 1:
            self._set_layout(found, "BATCH_COUNT", matrices)
            self._set_layout(found, "STRIDED_BATCH_OFFSET", matrix.batch)
        return int(found)

    def _algorithm(self, description: int, layouts: tuple[int, int, int, int], alignments: tuple[int, ...]) -> Any:
        """The first algorithm that cuBLASLt proposes; raises RuntimeError if it has none."""
        lt = self._lt
        results, count = np.zeros(1, lt.matmul_heuristic_result_dtype), np.zeros(1, np.int32)
        with self._preference(alignments) as preference:
            lt.matmul_algo_get_heuristic(
                self._handle, description, *layouts, preference, 1, results.ctypes.data, count.ctypes.data
            )
        if not count[0]:
            raise RuntimeError("cuBLASLt has no algorithm for a product of these matrices")
        return results["algo"].copy()

    @contextmanager
    def _preference(self, alignments: tuple[int, ...]) -> Iterator[int]:
        """What an algorithm may use: memory, and how matrices are aligned."""
        lt = self._lt
        preference = lt.matmul_preference_create()
        names = ("MAX_WORKSPACE_BYTES", *(f"MIN_ALIGNMENT_{letter}_BYTES" for letter in "ABCD"))
        for name, value in zip(names, (WORKSPACE, *alignments), strict=True):
            attribute = getattr(lt.MatmulPreferenceAttribute, name)
            number = np.array([value], lt.get_matmul_preference_attribute_dtype(attribute))
            lt.matmul_preference_set_attribute(preference, attribute, number.ctypes.data, number.nbytes)
        yield preference
        lt.matmul_preference_destroy(preference)

    def _set_description(self, description: int, name: str, value: int) -> None:
        attribute = getattr(self._lt.MatmulDescAttribute, name)
        number = np.array([value], self._lt.get_matmul_desc_attribute_dtype(attribute))
        self._lt.matmul_desc_set_attribute(description, attribute, number.ctypes.data, number.nbytes)

    def _set_layout(self, layout: int, name: str, value: int) -> None:
        attribute = getattr(self._lt.MatrixLayoutAttribute, name)
        number = np.array([value], self._lt.get_matrix_layout_attribute_dtype(attribute))
        self._lt.matrix_layout_set_attribute(layout, attribute, number.ctypes.data, number.nbytes)


def aligned(address: int) -> int:
    """The bytes to which an address is aligned, as far as cuBLASLt cares."""
    return min(address & -address, ALIGNED)
