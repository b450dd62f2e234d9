"""cuBLASLt (nvmath-python 1.0) and cuDNN (nvidia-cudnn-frontend 1.32): the functions that the engine calls, with their signatures.

They compute with numpy, on the memory that the pointers name, and refuse descriptions that do not fit one another.
"""

from __future__ import annotations

import ctypes
import enum
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from tests.gpu.standin.devices import MACHINE

R_32F, R_16F, R_16BF = 0, 2, 14
WIDTHS = {R_32F: 4, R_16F: 2, R_16BF: 2}
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


def stored(pointer: int, shape: tuple[int, ...], strides: tuple[int, ...], kind: int = R_32F) -> Any:
    """An array at an address: floats, halves, or the upper bits of floats."""
    width = WIDTHS[kind]
    if pointer % width or not pointer:
        raise ValueError(f"an address of numbers of {width} bytes is {pointer}")
    last = sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
    memory = (ctypes.c_char * (width * (last + 1))).from_address(pointer)
    dtype = {R_32F: np.float32, R_16F: np.float16, R_16BF: np.uint16}[kind]
    return np.ndarray(shape, dtype, memory, 0, tuple(width * step for step in strides))


def floats(pointer: int, shape: tuple[int, ...], strides: tuple[int, ...], kind: int = R_32F) -> Any:
    """The numbers at an address: where they are, if they are floats; else a copy."""
    found = stored(pointer, shape, strides, kind)
    if kind == R_16BF:
        return (found.astype(np.uint32) << 16).view(np.float32)
    return found.astype(np.float32, copy=False)


def store(numbers: Any, pointer: int, shape: tuple[int, ...], strides: tuple[int, ...], kind: int = R_32F) -> None:
    """Put numbers at an address, rounded to what is there."""
    into = stored(pointer, shape, strides, kind)
    with np.errstate(over="ignore"):
        into[...] = rounded(numbers, 7).view(np.uint32) >> 16 if kind == R_16BF else numbers


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
    DEFAULT, RELU, BIAS, RELU_BIAS, GELU, GELU_BIAS = 1, 2, 4, 6, 32, 36


class MatmulDescAttribute(enum.IntEnum):
    TRANSA, TRANSB, EPILOGUE, BIAS_POINTER = 3, 4, 7, 8


class MatrixLayoutAttribute(enum.IntEnum):
    BATCH_COUNT, STRIDED_BATCH_OFFSET = 5, 6


class MatmulPreferenceAttribute(enum.IntEnum):
    MAX_WORKSPACE_BYTES = 1
    MIN_ALIGNMENT_A_BYTES, MIN_ALIGNMENT_B_BYTES, MIN_ALIGNMENT_C_BYTES, MIN_ALIGNMENT_D_BYTES = 5, 6, 7, 8


DESCRIPTIONS = {3: np.int32, 4: np.int32, 7: np.uint32, 8: np.int64}
LAYOUTS = {5: np.int32, 6: np.int64}
PREFERENCES = {1: np.uint64, 5: np.uint32, 6: np.uint32, 7: np.uint32, 8: np.uint32}


@dataclass
class Layout:
    rows: int
    columns: int
    step: int
    kind: int
    attributes: dict[int, int] = field(default_factory=dict)

    @property
    def where(self) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """Shape, strides and type of its matrices, [batch, rows, columns]."""
        count, apart = self.attributes.get(5, 1), self.attributes.get(6, 0)
        return (count, self.rows, self.columns), (apart, 1, self.step), self.kind

    def array(self, pointer: int, turned: bool = False) -> Any:
        """The matrices at an address."""
        found = floats(pointer, *self.where)
        return found.swapaxes(1, 2) if turned else found


class CublasLt(ModuleType):
    """nvmath.bindings.cublasLt."""

    Epilogue, MatmulDescAttribute = Epilogue, MatmulDescAttribute
    MatrixLayoutAttribute, MatmulPreferenceAttribute = MatrixLayoutAttribute, MatmulPreferenceAttribute
    matmul_heuristic_result_dtype = HEURISTIC

    def __init__(self) -> None:
        super().__init__("nvmath.bindings.cublasLt")
        self._made: dict[int, Any] = {}
        self._numbers = itertools.count(1)

    def _new(self, value: Any) -> int:
        number = next(self._numbers)  # of this thread alone
        self._made[number] = value
        return number

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
        if type not in WIDTHS or ld < rows:
            raise ValueError(f"a layout of {rows} rows with a leading dimension of {ld}")
        return self._new(Layout(rows, cols, ld, type))

    def get_matrix_layout_attribute_dtype(self, attr: int) -> Any:
        return LAYOUTS[attr]

    def matrix_layout_set_attribute(self, mat_layout: int, attr: int, buf: int, size_in_bytes: int) -> None:
        self._made[mat_layout].attributes[int(attr)] = self._number(LAYOUTS[attr], buf, size_in_bytes)

    def matmul_preference_create(self) -> int:
        return self._new({})

    def get_matmul_preference_attribute_dtype(self, attr: int) -> Any:
        return PREFERENCES[attr]

    def matmul_preference_set_attribute(self, pref: int, attr: int, buf: int, size_in_bytes: int) -> None:
        self._made[pref][int(attr)] = self._number(PREFERENCES[attr], buf, size_in_bytes)

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
        kernel = np.array([self._made[preference].get(attr, 256) for attr in (5, 6, 7, 8)], np.uint64)
        ctypes.memmove(heuristic_results_array, kernel.ctypes.data, kernel.nbytes)
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
        for address, alignment in zip((a, b, c, d), np.frombuffer(bytes_at(algo, 32), np.uint64), strict=True):
            if address % int(alignment):
                raise ValueError(f"a matrix at {address}, the algorithm needs an address by {alignment}")
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
                found = found + floats(settings[8], (of_d.rows, 1), (1, 0), of_d.kind)
            found = np.maximum(found, 0) if epilogue & 2 else gelu_tanh(found) if epilogue & 32 else found
            store(found, d, *of_d.where)

        MACHINE.submit(compute)

    def _sizes(self, description: int, *layouts: int) -> tuple[Layout, ...]:
        """The layouts; raises ValueError if they are not those of one product."""
        settings, (a, b, c, d) = self._made[description], (self._made[each] for each in layouts)
        m, k = (a.columns, a.rows) if settings.get(3, 0) else (a.rows, a.columns)
        k2, n = (b.columns, b.rows) if settings.get(4, 0) else (b.rows, b.columns)
        counts = {each.attributes.get(5, 1) for each in (a, b, c, d)}
        halves = a.kind != R_32F
        if (
            a.kind != b.kind
            or c.kind != d.kind
            or d.kind not in (R_32F, a.kind)
            or (halves and settings["compute"] != 68)
        ):
            raise ValueError(f"a product of types {a.kind} and {b.kind}, with {c.kind} to {d.kind}")
        if k != k2 or any((each.rows, each.columns) != (m, n) for each in (c, d)) or len(counts) > 1:
            raise ValueError(f"a product of {m} x {k} and {k2} x {n} to {d.rows} x {d.columns}, batches of {counts}")
        return a, b, c, d

    def _number(self, dtype: Any, buf: int, size: int) -> int:
        if size != np.dtype(dtype).itemsize:
            raise ValueError(f"an attribute of {np.dtype(dtype).itemsize} bytes is set from {size}")
        return int(np.frombuffer(bytes_at(buf, size), dtype)[0])


# ---------------------------------------------------------------- cuDNN
class GraphNotSupportedError(Exception):
    """cudnn.cudnnGraphNotSupportedError: the library has no plan for a graph on this device."""


KINDS = {"float": R_32F, "half": R_16F, "bfloat16": R_16BF}


def gelu_tanh(x: Any) -> Any:
    """GELU by the tangent."""
    return (0.5 * x * (1 + np.tanh(0.79788456 * (x + 0.044715 * x**3)))).astype(np.float32)


class Tensor:
    """A tensor of a graph."""

    def __init__(self, dim: Any = None, stride: Any = None, kind: Any = None) -> None:
        self.dim, self.stride, self.output, self.kind = dim, stride, False, kind

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
        assert value in KINDS
        self.kind = value
        return self

    @property
    def where(self) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """Shape, strides and type."""
        return tuple(self.dim), tuple(self.stride), KINDS[self.kind]


POINTWISE: dict[str, Any] = {
    "relu": lambda x, slope, low, high: np.clip(np.where(x < 0, x * (slope or 0), x), low, high),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "gelu": lambda x: 0.5 * x * (1 + np.vectorize(math.erf, otypes=[np.float64])(x * 0.7071067811865476)),
    "swish": lambda x, beta: x / (1 + np.exp(-(1.0 if beta is None else beta) * x)),
}


class Graph:
    """cudnn.pygraph: a convolution or one of its gradients, and what follows; or attention."""

    def __init__(
        self,
        name: str = "test_graph",
        io_data_type: Any = None,
        intermediate_data_type: Any = None,
        compute_data_type: Any = None,
        handle: Any = None,
    ) -> None:
        assert io_data_type in KINDS and (intermediate_data_type, compute_data_type) == ("float", "float")
        assert handle == "handle"
        self.nodes: list[tuple[str, tuple[Tensor, ...], tuple[Tensor, ...], Any]] = []
        # operation, inputs, results, how it computes
        self.built = False

    def tensor(self, dim: Any, stride: Any = None, data_type: Any = None, name: str = "") -> Tensor:
        return Tensor(dim, stride, data_type)

    def _node(self, name: str, inputs: tuple[Tensor, ...], compute: Any) -> Tensor:
        (found,) = self._nodes(name, inputs, compute, 1)
        return found

    def _nodes(self, name: str, inputs: tuple[Tensor, ...], compute: Any, count: int) -> tuple[Tensor, ...]:
        found = tuple(Tensor() for _ in range(count))
        self.nodes.append((name, inputs, found, compute))
        return found

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
        return self._convolution(2, (image, weight), pre_padding, post_padding, stride, dilation)

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
        return self._convolution(0, (filter, loss), pre_padding, post_padding, stride, dilation)

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
        return self._convolution(1, (image, loss), pre_padding, post_padding, stride, dilation)

    def _convolution(self, computed: int, inputs: tuple[Tensor, ...], *steps: Any) -> Tensor:
        """A convolution of three tensors (images, filters, results), one of which it computes."""

        def compute(shape: Any, *arrays: Any) -> Any:
            all_three = [*arrays[:computed], np.empty(shape, np.float32), *arrays[computed:]]
            return (data_gradient, filter_gradient, convolved)[computed](*all_three, *steps)

        compute.computed = computed  # type: ignore[attr-defined]
        compute.check = lambda dim: self._check_sizes(computed, inputs, dim, *steps)  # type: ignore[attr-defined]
        return self._node("conv", inputs, compute)

    def _check_sizes(
        self, computed: int, inputs: Any, dim: Any, before: Any, after: Any, step: Any, apart: Any
    ) -> None:
        dims = [each.dim for each in inputs]
        image, weight, y = [*dims[:computed], dim, *dims[computed:]]
        sizes = [
            (n + a + b - (d * (w - 1) + 1)) // s + 1
            for n, w, a, b, s, d in zip(image[2:], weight[2:], before, after, step, apart, strict=True)
        ]
        if y != [image[0], weight[0], *sizes] or len({each.kind for each in inputs}) > 1:
            raise ValueError(f"a convolution of {image} by {weight} to {y}")

    def add(self, a: Tensor, b: Tensor, compute_data_type: Any = None, name: str = "") -> Tensor:
        return self._node("add", (a, b), lambda shape, x, y: x + y)

    def relu(
        self,
        input: Tensor,
        negative_slope: Any = None,
        lower_clip: Any = None,
        upper_clip: Any = None,
        name: str = "",
        compute_data_type: Any = None,
    ) -> Tensor:
        given = negative_slope, lower_clip, upper_clip
        return self._node("relu", (input,), lambda shape, x: POINTWISE["relu"](x, *given))

    def sigmoid(self, input: Tensor, name: str = "", compute_data_type: Any = None) -> Tensor:
        return self._node("sigmoid", (input,), lambda shape, x: POINTWISE["sigmoid"](x))

    def tanh(self, input: Tensor, name: str = "", compute_data_type: Any = None) -> Tensor:
        return self._node("tanh", (input,), lambda shape, x: POINTWISE["tanh"](x))

    def gelu(self, input: Tensor, name: str = "", compute_data_type: Any = None) -> Tensor:
        return self._node("gelu", (input,), lambda shape, x: POINTWISE["gelu"](x))

    def swish(self, input: Tensor, swish_beta: Any = None, name: str = "", compute_data_type: Any = None) -> Tensor:
        return self._node("swish", (input,), lambda shape, x: POINTWISE["swish"](x, swish_beta))

    def sdpa(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        generate_stats: bool | None = None,
        attn_scale: float | None = None,
        bias: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        assert generate_stats is not None and attn_scale is not None

        def compute(shape: Any, *arrays: Any) -> Any:
            scores = attn_scale * (arrays[0] @ arrays[1].swapaxes(2, 3)) + (arrays[3] if bias is not None else 0)
            most = scores.max(3, keepdims=True)
            powers = np.exp(scores - most)
            total = powers.sum(3, keepdims=True)
            return powers / total @ arrays[2], most + np.log(total)

        def check(dim: Any, *stats: Any) -> None:
            (b, h, rows, inner), (_, _, keys, _), outer = q.dim, k.dim, v.dim[3]
            fits = k.dim == [b, h, keys, inner] and v.dim == [b, h, keys, outer] and dim == [b, h, rows, outer]
            same = {each.kind for each in inputs} in ({"half"}, {"bfloat16"})
            if not fits or not same or any(each.stride[3] != 1 for each in inputs) or inner % 8 or outer % 8:
                raise ValueError(f"attention of {q.dim}, {k.dim}, {v.dim} to {dim}")
            if any(each != [b, h, rows, 1] for each in stats):
                raise ValueError(f"logarithms of {stats}")
            check_bias(bias, [b, h, rows, keys])

        inputs = (q, k, v) if bias is None else (q, k, v, bias)
        compute.check = check  # type: ignore[attr-defined]
        found, stats = self._nodes("sdpa", inputs, compute, 2)
        if generate_stats:
            return found, stats
        self.nodes[-1] = ("sdpa", inputs, (found,), compute)
        return found, None

    def sdpa_backward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        o: Tensor,
        dO: Tensor,
        stats: Tensor,
        attn_scale: float | None = None,
        bias: Tensor | None = None,
        use_deterministic_algorithm: bool = False,
    ) -> tuple[Tensor, ...]:
        assert attn_scale is not None and use_deterministic_algorithm

        def compute(shape: Any, *arrays: Any) -> Any:
            queries, keys, values, out, steep, logarithms, *mask = arrays
            scores = attn_scale * (queries @ keys.swapaxes(2, 3)) + (mask[0] if mask else 0)
            weights = np.exp(scores - logarithms)
            slope = weights * (steep @ values.swapaxes(2, 3) - (steep * out).sum(3, keepdims=True))
            by_queries, by_keys = attn_scale * slope @ keys, attn_scale * slope.swapaxes(2, 3) @ queries
            return by_queries, by_keys, weights.swapaxes(2, 3) @ steep

        def check(*dims: Any) -> None:
            (b, h, rows, inner), (_, _, count, _), outer = q.dim, k.dim, v.dim[3]
            fits = (
                k.dim == [b, h, count, inner] and v.dim == [b, h, count, outer] and list(dims) == [q.dim, k.dim, v.dim]
            )
            same = {each.kind for each in (q, k, v, o, dO)} in ({"half"}, {"bfloat16"}) and stats.kind == "float"
            if not fits or not same or o.dim != [b, h, rows, outer] or dO.dim != o.dim or stats.dim != [b, h, rows, 1]:
                raise ValueError(f"a gradient of attention of {q.dim}, {k.dim}, {v.dim} to {dims}")
            if any(each.stride[3] != 1 for each in (q, k, v, o, dO)) or inner % 8 or outer % 8:
                raise ValueError("heads whose columns are apart")
            check_bias(bias, [b, h, rows, count])

        inputs = (q, k, v, o, dO, stats) if bias is None else (q, k, v, o, dO, stats, bias)
        compute.check = check  # type: ignore[attr-defined]
        return self._nodes("sdpa_backward", inputs, compute, 3)

    def deselect_numeric_notes(self, notes: Any) -> Graph:
        return self

    def _odd(self) -> list[str]:
        """What a convolution of halves has that no kernel of tensor cores needs to take: groups, channels that are no eights."""
        name, inputs, _, compute = self.nodes[0]
        if name != "conv" or inputs[0].kind == "float":
            return []
        dims = [each.dim for each in inputs]
        images, filters = [*dims[: compute.computed], self.nodes[-1][2][0].dim, *dims[compute.computed :]][:2]
        is_odd = images[1] != filters[1] or any(count % 8 for count in filters[:2])
        return ["odd conv of halves"] if is_odd else []

    def build(self, heuristics: Any = None) -> None:
        if MACHINE.capturing is not None:
            raise RuntimeError("a plan is built during a capture")
        if MACHINE.refused & {*(name for name, *_ in self.nodes), *self._odd()}:
            raise GraphNotSupportedError(f"no plan for {', '.join(name for name, *_ in self.nodes)}")
        results = [each for _, _, found, _ in self.nodes for each in found]
        last = self.nodes[-1][2]
        if [each.output for each in results] != [False] * (len(results) - len(last)) + [True] * len(last):
            raise ValueError("only the last result of a graph is an output here")
        check = getattr(self.nodes[0][3], "check", None)
        if check is None:
            raise ValueError(f"a graph that begins with {self.nodes[0][0]}")
        check(*(each.dim for each in last))
        for name, inputs, _, _ in self.nodes[1:]:
            wide = [each for each in inputs if each not in results]
            if any(
                size not in (1, whole) for each in wide for size, whole in zip(each.dim, results[-1].dim, strict=True)
            ):
                raise ValueError(f"{name} of {[each.dim for each in wide]}")
        self.built = True

    def get_workspace_size(self) -> int:
        return 16

    def execute(self, tensor_dict: Any, workspace: Any = None, handle: Any = None) -> None:
        assert self.built and handle == "handle" and type(workspace) is int and workspace
        pointers = dict(tensor_dict)

        def compute() -> None:
            last = self.nodes[-1][2]
            values = {each: floats(pointer, *each.where) for each, pointer in pointers.items() if each not in last}
            for _, inputs, found, function in self.nodes:
                with np.errstate(over="ignore"):
                    given = function(tuple(last[0].dim), *(values[each] for each in inputs))
                arrays = given if isinstance(given, tuple) else (given,)
                values |= {each: np.asarray(array, np.float32) for each, array in zip(found, arrays, strict=False)}
            for each in last:
                store(values[each], pointers[each], *each.where)

        MACHINE.submit(compute)


def check_bias(bias: Tensor | None, scores: list[int]) -> None:
    """Raise ValueError for a bias that is not of scores [batch, heads, rows, keys]."""
    if bias is None:
        return
    if bias.dim[2:] != scores[2:] or any(size not in (1, whole) for size, whole in zip(bias.dim, scores, strict=True)):
        raise ValueError(f"a bias of {bias.dim} for scores of {scores}")


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
    found.cudnnGraphNotSupportedError = GraphNotSupportedError
    found.data_type = SimpleNamespace(FLOAT="float", HALF="half", BFLOAT16="bfloat16")
    found.numerical_note = SimpleNamespace(DOWN_CONVERT_INPUTS=1, NONDETERMINISTIC=2, TENSOR_CORE=3)
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
