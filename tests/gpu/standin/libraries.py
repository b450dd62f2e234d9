"""cuBLASLt (nvmath-python 1.0) and cuDNN (nvidia-cudnn-frontend 1.32): the functions that the engine calls, with their signatures.

They compute with numpy, on the memory that the pointers name, and refuse descriptions that do not fit one another.
"""

from __future__ import annotations

import ctypes
import enum
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from tests.gpu.standin.devices import MACHINE

COMPUTE_32F, R_32F = 68, 0
HEURISTIC = np.dtype(
    [
        ("algo", [("data_", "<u8", (8,))]),
        ("workspace_size", "<u8"),
        ("state", "<i4"),
        ("waves_count", "<f4"),
        ("reserved", "<i4", (4,)),
    ],
    align=True,
)


def floats(pointer: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """An array of floats at an address."""
    if pointer % 4 or not pointer:
        raise ValueError(f"an address of floats is {pointer}")
    last = sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
    memory = (ctypes.c_float * (last + 1)).from_address(pointer)
    return np.ndarray(shape, np.float32, memory, 0, tuple(4 * step for step in strides))


def bytes_at(pointer: int, size: int) -> bytes:
    """The bytes at an address."""
    return ctypes.string_at(pointer, size)


# ---------------------------------------------------------------- cuBLASLt
class Epilogue(enum.IntEnum):
    DEFAULT, RELU, BIAS, RELU_BIAS = 1, 2, 4, 6


class MatmulDescAttribute(enum.IntEnum):
    TRANSA, TRANSB, EPILOGUE, BIAS_POINTER = 3, 4, 7, 8


class MatrixLayoutAttribute(enum.IntEnum):
    BATCH_COUNT, STRIDED_BATCH_OFFSET = 5, 6


class MatmulPreferenceAttribute(enum.IntEnum):
    MAX_WORKSPACE_BYTES = 1


DESCRIPTIONS = {3: np.int32, 4: np.int32, 7: np.uint32, 8: np.int64}
LAYOUTS = {5: np.int32, 6: np.int64}


@dataclass
class Layout:
    rows: int
    columns: int
    step: int
    attributes: dict[int, int] = field(default_factory=dict)

    def array(self, pointer: int, turned: bool = False) -> Any:
        """The matrices at an address: [batch, rows, columns]."""
        count, apart = self.attributes.get(5, 1), self.attributes.get(6, 0)
        found = floats(pointer, (count, self.rows, self.columns), (apart, 1, self.step))
        return found.swapaxes(1, 2) if turned else found


class CublasLt(ModuleType):
    """nvmath.bindings.cublasLt."""

    Epilogue, MatmulDescAttribute = Epilogue, MatmulDescAttribute
    MatrixLayoutAttribute, MatmulPreferenceAttribute = MatrixLayoutAttribute, MatmulPreferenceAttribute
    matmul_heuristic_result_dtype = HEURISTIC

    def __init__(self) -> None:
        super().__init__("nvmath.bindings.cublasLt")
        self._made: dict[int, Any] = {}

    def _new(self, value: Any) -> int:
        self._made[len(self._made) + 1] = value
        return len(self._made)

    def create(self) -> int:
        return self._new("handle")

    def get_version(self) -> int:
        return 120900

    def matmul_desc_create(self, compute_type: int, scale_type: int) -> int:
        assert (compute_type, scale_type) == (COMPUTE_32F, R_32F)
        return self._new({})

    def get_matmul_desc_attribute_dtype(self, attr: int) -> Any:
        return DESCRIPTIONS[attr]

    def matmul_desc_set_attribute(self, matmul_desc: int, attr: int, buf: int, size_in_bytes: int) -> None:
        self._made[matmul_desc][int(attr)] = self._number(DESCRIPTIONS[attr], buf, size_in_bytes)

    def matrix_layout_create(self, type: int, rows: int, cols: int, ld: int) -> int:
        if type != R_32F or ld < rows:
            raise ValueError(f"a layout of {rows} rows with a leading dimension of {ld}")
        return self._new(Layout(rows, cols, ld))

    def get_matrix_layout_attribute_dtype(self, attr: int) -> Any:
        return LAYOUTS[attr]

    def matrix_layout_set_attribute(self, mat_layout: int, attr: int, buf: int, size_in_bytes: int) -> None:
        self._made[mat_layout].attributes[int(attr)] = self._number(LAYOUTS[attr], buf, size_in_bytes)

    def matmul_preference_create(self) -> int:
        return self._new({})

    def get_matmul_preference_attribute_dtype(self, attr: int) -> Any:
        return np.uint64

    def matmul_preference_set_attribute(self, pref: int, attr: int, buf: int, size_in_bytes: int) -> None:
        self._made[pref][int(attr)] = self._number(np.uint64, buf, size_in_bytes)

    def matmul_preference_destroy(self, pref: int) -> None:
        self._made[pref] = None

    def matmul_algo_get_heuristic(
        self,
        light_handle: int,
        operation_desc: int,
        adesc: int,
        bdesc: int,
        cdesc: int,
        ddesc: int,
        preference: int,
        requested_algo_count: int,
        heuristic_results_array: int,
        return_algo_count: int,
    ) -> None:
        assert self._made[light_handle] == "handle"
        self._sizes(operation_desc, adesc, bdesc, cdesc, ddesc)
        if MACHINE.capturing is not None:
            raise RuntimeError("an algorithm is chosen during a capture")
        ctypes.c_int.from_address(return_algo_count).value = requested_algo_count

    def matmul(
        self,
        light_handle: int,
        compute_desc: int,
        alpha: int,
        a: int,
        adesc: int,
        b: int,
        bdesc: int,
        beta: int,
        c: int,
        cdesc: int,
        d: int,
        ddesc: int,
        algo: int,
        workspace: int,
        workspace_size_in_bytes: int,
        stream: int,
    ) -> None:
        assert self._made[light_handle] == "handle"
        assert len(bytes_at(algo, 64)) == 64
        settings = dict(self._made[compute_desc])
        layouts = self._sizes(compute_desc, adesc, bdesc, cdesc, ddesc)
        factor, kept = np.frombuffer(bytes_at(alpha, 4), np.float32)[0], np.frombuffer(bytes_at(beta, 4), np.float32)[0]

        def compute() -> None:
            of_a, of_b, of_c, of_d = layouts
            left, right = of_a.array(a, bool(settings.get(3, 0))), of_b.array(b, bool(settings.get(4, 0)))
            found = factor * np.matmul(left, right)
            if kept:
                found = found + kept * of_c.array(c)
            epilogue = settings.get(7, 1)
            if epilogue & 4:
                found = found + floats(settings[8], (of_d.rows, 1), (1, 0))
            of_d.array(d)[...] = np.maximum(found, 0) if epilogue & 2 else found

        MACHINE.submit(compute)

    def _sizes(self, description: int, *layouts: int) -> tuple[Layout, ...]:
        """The layouts; raises ValueError if they are not those of one product."""
        settings, (a, b, c, d) = self._made[description], (self._made[each] for each in layouts)
        m, k = (a.columns, a.rows) if settings.get(3, 0) else (a.rows, a.columns)
        k2, n = (b.columns, b.rows) if settings.get(4, 0) else (b.rows, b.columns)
        counts = {each.attributes.get(5, 1) for each in (a, b, c, d)}
        if k != k2 or any((each.rows, each.columns) != (m, n) for each in (c, d)) or len(counts) > 1:
            raise ValueError(f"a product of {m} x {k} and {k2} x {n} to {d.rows} x {d.columns}, batches of {counts}")
        return a, b, c, d

    def _number(self, dtype: Any, buf: int, size: int) -> int:
        if size != np.dtype(dtype).itemsize:
            raise ValueError(f"an attribute of {np.dtype(dtype).itemsize} bytes is set from {size}")
        return int(np.frombuffer(bytes_at(buf, size), dtype)[0])


# ---------------------------------------------------------------- cuDNN
class Tensor:
    """A tensor of a graph."""

    def __init__(self, dim: Any = None, stride: Any = None) -> None:
        self.dim, self.stride, self.output = dim, stride, False

    def set_output(self, value: bool) -> Tensor:
        self.output = value
        return self

    def set_dim(self, value: Any) -> Tensor:
        self.dim = value
        return self

    def set_stride(self, value: Any) -> Tensor:
        self.stride = value
        return self

    def set_data_type(self, value: Any) -> Tensor:
        assert value == "float"
        return self


class Graph:
    """cudnn.pygraph, for one convolution."""

    def __init__(
        self,
        name: str = "test_graph",
        io_data_type: Any = None,
        intermediate_data_type: Any = None,
        compute_data_type: Any = None,
        handle: Any = None,
    ) -> None:
        assert (io_data_type, intermediate_data_type, compute_data_type, handle) == (
            "float",
            "float",
            "float",
            "handle",
        )
        self.node: Any = None
        self.built = False

    def tensor(self, dim: Any, stride: Any = None, data_type: Any = None, name: str = "") -> Tensor:
        return Tensor(dim, stride)

    def conv_fprop(
        self,
        image: Tensor,
        weight: Tensor,
        pre_padding: Any,
        post_padding: Any,
        stride: Any,
        dilation: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        self.node = image, weight, Tensor(), pre_padding, post_padding, stride, dilation
        return self.node[2]  # type: ignore[no-any-return]

    def deselect_numeric_notes(self, notes: Any) -> Graph:
        return self

    def build(self, heuristics: Any = None) -> None:
        if MACHINE.capturing is not None:
            raise RuntimeError("a plan is built during a capture")
        image, weight, y, before, after, step, dilation = self.node
        sizes = [
            (n + a + b - (d * (w - 1) + 1)) // s + 1
            for n, w, a, b, s, d in zip(image.dim[2:], weight.dim[2:], before, after, step, dilation, strict=True)
        ]
        if y.dim != [image.dim[0], weight.dim[0], *sizes] or not y.output:
            raise ValueError(f"a convolution of {image.dim} by {weight.dim} to {y.dim}")
        self.built = True

    def get_workspace_size(self) -> int:
        return 16

    def execute(self, tensor_dict: Any, workspace: Any = None, handle: Any = None) -> None:
        assert self.built and handle == "handle" and type(workspace) is int and workspace
        image, weight, y, *steps = self.node
        pointers = [tensor_dict[each] for each in (image, weight, y)]

        def compute() -> None:
            arrays = [
                floats(pointer, tuple(each.dim), tuple(each.stride))
                for pointer, each in zip(pointers, (image, weight, y), strict=True)
            ]
            arrays[2][...] = convolved(arrays[0], arrays[1], arrays[2].shape, *steps)

        MACHINE.submit(compute)


def convolved(x: Any, weights: Any, shape: tuple[int, ...], before: Any, after: Any, step: Any, dilation: Any) -> Any:
    """The results of a convolution by groups, [n, count, h, w]."""
    x = np.pad(x, ((0, 0), (0, 0), (before[0], after[0]), (before[1], after[1])))
    count, each, height, width = weights.shape
    groups = x.shape[1] // each
    found = np.zeros(shape, np.float32)
    rows, columns = shape[2:]
    for g in range(groups):
        part, own = x[:, g * each : (g + 1) * each], slice(g * count // groups, (g + 1) * count // groups)
        for i in range(height):
            for j in range(width):
                top, left = i * dilation[0], j * dilation[1]
                window = part[
                    :,
                    :,
                    top : top + (rows - 1) * step[0] + 1 : step[0],
                    left : left + (columns - 1) * step[1] + 1 : step[1],
                ]
                found[:, own] += np.einsum("nchw,kc->nkhw", window, weights[own, :, i, j])
    return found


def cudnn() -> ModuleType:
    """The module cudnn."""
    found: Any = ModuleType("cudnn")
    found.pygraph = Graph
    found.data_type = SimpleNamespace(FLOAT="float")
    found.numerical_note = SimpleNamespace(DOWN_CONVERT_INPUTS=1, NONDETERMINISTIC=2)
    found.heur_mode = SimpleNamespace(A=0, FALLBACK=1)
    found.create_handle = lambda: "handle"
    found.set_stream = lambda handle, stream: None
    found.backend_version = lambda: 91000
    return found  # type: ignore[no-any-return]


def modules() -> dict[str, ModuleType]:
    """The modules by name."""
    nvmath, bindings, cublaslt = ModuleType("nvmath"), ModuleType("nvmath.bindings"), CublasLt()
    nvmath.bindings, bindings.cublasLt = bindings, cublaslt  # type: ignore[attr-defined]
    return {"nvmath": nvmath, "nvmath.bindings": bindings, "nvmath.bindings.cublasLt": cublaslt, "cudnn": cudnn()}
