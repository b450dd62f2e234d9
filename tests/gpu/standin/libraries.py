"""cuBLASLt (nvmath-python 1.0) and cuDNN (nvidia-cudnn-frontend 1.32): the functions that the engine calls, with their signatures.

They compute with numpy, on the memory that the pointers name, and refuse descriptions that do not fit one another.
"""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from tests.gpu.standin.devices import MACHINE

R_32F = 0
BITS = {68: 23, 77: 10, 75: 7, 74: 10}  # of the mantissas of factors, by cublasComputeType_t
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
def rounded(numbers: Any, bits: int) -> Any:
    """Floats with fewer bits of the mantissa: to the nearest, of two the even one."""
    if bits == 23:
        return numbers
    whole = np.ascontiguousarray(numbers, np.float32).view(np.uint32).astype(np.uint64)
    less = 23 - bits
    kept = (whole + (1 << (less - 1)) - 1 + (whole >> less & 1)) >> less << less
    return kept.astype(np.uint32).view(np.float32)


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
        assert compute_type in BITS and scale_type == R_32F
        return self._new({"compute": compute_type})

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
            bits = BITS[settings["compute"]]
            found = factor * np.matmul(rounded(left, bits), rounded(right, bits))
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
    """cudnn.pygraph, for one convolution or one of its gradients."""

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
        self.computed = 2  # of the tensors of the convolution
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
        return self._node((image, weight, Tensor()), 2, pre_padding, post_padding, stride, dilation)

    def conv_dgrad(
        self,
        loss: Tensor,
        filter: Tensor,
        pre_padding: Any,
        post_padding: Any,
        stride: Any,
        dilation: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        return self._node((Tensor(), filter, loss), 0, pre_padding, post_padding, stride, dilation)

    def conv_wgrad(
        self,
        image: Tensor,
        loss: Tensor,
        pre_padding: Any,
        post_padding: Any,
        stride: Any,
        dilation: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        return self._node((image, Tensor(), loss), 1, pre_padding, post_padding, stride, dilation)

    def _node(self, tensors: tuple[Tensor, Tensor, Tensor], computed: int, *steps: Any) -> Tensor:
        """A convolution of three tensors, one of which it computes."""
        self.node, self.computed = (*tensors, *steps), computed
        return tensors[computed]

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
        outputs = [each.output for each in (image, weight, y)]
        if y.dim != [image.dim[0], weight.dim[0], *sizes] or outputs != [n == self.computed for n in range(3)]:
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
            arrays[self.computed][...] = (data_gradient, filter_gradient, convolved)[self.computed](*arrays, *steps)

        MACHINE.submit(compute)


def convolved(x: Any, weights: Any, y: Any, before: Any, after: Any, step: Any, dilation: Any) -> Any:
    """The results of a convolution by groups, [n, count, sizes]."""
    found = np.zeros(y.shape, np.float32)
    for part, own, window, one in windows(padded(x, before, after), weights, y.shape, step, dilation):
        found[:, own] += np.einsum("nc...,kc->nk...", part[window], one)
    return found


def data_gradient(x: Any, weights: Any, y: Any, before: Any, after: Any, step: Any, dilation: Any) -> Any:
    """The gradient by the images, from that by the results."""
    found = padded(np.zeros(x.shape, np.float32), before, after)
    for part, own, window, one in windows(found, weights, y.shape, step, dilation):
        part[window] += np.einsum("nk...,kc->nc...", y[:, own], one)
    inside = (slice(first, first + size) for first, size in zip(before, x.shape[2:], strict=True))
    return found[(slice(None), slice(None), *inside)]


def filter_gradient(x: Any, weights: Any, y: Any, before: Any, after: Any, step: Any, dilation: Any) -> Any:
    """The gradient by the filters, from that by the results."""
    found = np.zeros(weights.shape, np.float32)
    for part, own, window, one in windows(padded(x, before, after), found, y.shape, step, dilation):
        axes = (0, *range(2, x.ndim))
        one += np.tensordot(y[:, own], part[window], (axes, axes))
    return found


def padded(x: Any, before: Any, after: Any) -> Any:
    """Images with zeros around them."""
    return np.pad(x, ((0, 0), (0, 0), *zip(before, after, strict=True)))


def windows(x: Any, weights: Any, shape: tuple[int, ...], step: Any, dilation: Any) -> Iterator[Any]:
    """For each group and place of a filter: the channels, the filters, what they see of a channel, their numbers there."""
    count, each, *sizes = weights.shape
    groups = x.shape[1] // each
    for g in range(groups):
        part, own = x[:, g * each : (g + 1) * each], slice(g * count // groups, (g + 1) * count // groups)
        for place in np.ndindex(*sizes):
            firsts = [at * apart for at, apart in zip(place, dilation, strict=True)]
            seen = [
                slice(first, first + (size - 1) * stride + 1, stride)
                for first, size, stride in zip(firsts, shape[2:], step, strict=True)
            ]
            yield part, own, (slice(None), slice(None), *seen), weights[(own, slice(None), *place)]


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
