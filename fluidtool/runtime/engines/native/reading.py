"""Operators -> nodes. One function an operator; what has no kernel raises NotNativeError and stays with numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.runtime.engines.native.graph import Activation, Graph, Node, NotNativeError, Shape, Value

READERS: dict[str, Callable[[Reading, Operator, dict[str, Any]], None]] = {}


def reads(*types: str) -> Callable[[Any], Any]:
    """Register the reader of these operators."""

    def register(function: Any) -> Any:
        READERS.update(dict.fromkeys(types, function))
        return function

    return register


def need(condition: Any, message: str) -> None:
    """Raise NotNativeError unless the condition holds."""
    if not condition:
        raise NotNativeError(message)


class Reading:
    """The graph as it grows: values by the name that they have at this point of the program."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.nodes: list[Node] = []

    def get(self, op: Operator, slot: str) -> Value:
        """The value in an input slot."""
        names = op.inputs.get(slot, [])
        need(len(names) == 1, f"{op.type} has {len(names)} variables in {slot}")
        need(names[0] in self.values, f"{names[0]} has no value")
        return self.values[names[0]]

    def maybe(self, op: Operator, slot: str) -> Value | None:
        """The value in an input slot that may be empty."""
        return self.get(op, slot) if op.inputs.get(slot) else None

    def constant(self, op: Operator, slot: str) -> Any:
        """The array of a constant in an input slot."""
        value = self.get(op, slot)
        need(value.array is not None, f"{slot} of {op.type} is computed")
        return value.array

    def add(
        self,
        kind: str,
        inputs: Sequence[Value],
        op: Operator,
        slot: str,
        shape: Sequence[int],
        activation: Activation = Activation(),
        **facts: Any,
    ) -> Value:
        """A node whose result is what the operator writes to an output slot."""
        name = op.outputs[slot][0]
        out = Value(name, tuple(int(size) for size in shape))
        need(prod(out.shape) > 0, f"{name} is empty")
        self.nodes.append(Node(kind, list(inputs), out, facts, activation))
        self.values[name] = out
        return out

    def alias(self, value: Value, op: Operator, slot: str) -> None:
        """The operator's output is that value."""
        self.values[op.outputs[slot][0]] = value


def read_graph(
    ops: Sequence[tuple[Operator, dict[str, Any]]], given: Mapping[str, Value], wanted: Sequence[str]
) -> Graph:
    """The graph of operators (each with its parsed attributes) from these inputs and constants to these outputs."""
    reading = Reading()
    reading.values.update(given)
    for op, attrs in ops:
        reader = READERS.get(op.type)
        need(reader, f"there is no native {op.type}")
        assert reader is not None
        reader(reading, op, attrs)
    missing = [name for name in wanted if name not in reading.values]
    need(not missing, f"{missing} is not computed")
    outputs = [reading.values[name] for name in wanted]
    need(all(value.array is None for value in outputs), "an output is a constant")
    return Graph([value for value in given.values() if value.array is None], outputs, reading.nodes)


# ---------------------------------------------------------------- convolution and its companions
def padding(attrs: Mapping[str, Any], size: Shape, window: Sequence[int], strides: Sequence[int], dilations: Any) -> Any:
    """(top, left, bottom, right) by Paddle 1.8's `padding_algorithm`."""
    algorithm, pads = attrs.get("padding_algorithm", "EXPLICIT"), [int(p) for p in attrs["paddings"]]
    if algorithm == "VALID":
        return 0, 0, 0, 0
    if algorithm == "SAME":
        sums = [
            max((-(-n // s) - 1) * s + w - n, 0) for n, w, s in zip(size, window, strides, strict=True)
        ]  # Paddle sets the dilations to 1
        need(tuple(dilations) == (1, 1), "SAME padding of a dilated window")
        return sums[0] // 2, sums[1] // 2, sums[0] - sums[0] // 2, sums[1] - sums[1] // 2
    if len(pads) == 2:
        return pads[0], pads[1], pads[0], pads[1]
    return pads[0], pads[2], pads[1], pads[3]


@reads("conv2d", "depthwise_conv2d")
def _conv(r: Reading, op: Operator, attrs: dict[str, Any]) -> None:
    x, weights = r.get(op, "Input"), r.constant(op, "Filter")
    need(attrs.get("data_format", "NCHW") in ("NCHW", "AnyLayout"), "convolution in NHWC")
    need(not attrs.get("fuse_relu_before_depthwise_conv"), "ReLU before a depthwise convolution")
    need(not op.inputs.get("ResidualData") and not attrs.get("fuse_activation"), "a convolution that is fused already")
    need(len(x.shape) == 4 and weights.dtype == np.float32, "not a float32 image")
    strides, dilations = tuple(attrs["strides"]), tuple(attrs["dilations"])
    groups, (count, _, *window) = int(attrs["groups"]), weights.shape
    top, left, bottom, right = padding(attrs, x.shape[2:], window, strides, dilations)
    rows, columns = (
        (n + before + after - (d * (w - 1) + 1)) // s + 1
        for n, before, after, d, w, s in zip(
            x.shape[2:], (top, left), (bottom, right), dilations, window, strides, strict=True
        )
    )
    bias = r.constant(op, "Bias") if op.inputs.get("Bias") else None
    r.add(
        "conv",
        [x],
        op,
        "Output",
        (x.shape[0], count, rows, columns),
        Activation(1) if attrs.get("fuse_relu") else Activation(),
        weights=weights,
        scale=None,
        shift=None if bias is None else bias.reshape(-1),
        strides=strides,
        dilations=dilations,
        pads=(top, left, bottom, right),
        groups=groups,
    )


@reads("batch_norm")
def _batch_norm(r: Reading, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    need(attrs.get("is_test") or attrs.get("use_global_stats"), "batch_norm in training mode")
    need(not attrs.get("trainable_statistics"), "batch_norm in training mode")
    need(attrs.get("data_layout", "NCHW") in ("NCHW", "AnyLayout") or len(x.shape) == 2, "batch_norm in NHWC")
    scale, bias, mean, variance = (
        r.constant(op, slot).astype(np.float64).reshape(-1) for slot in ("Scale", "Bias", "Mean", "Variance")
    )
    factor = scale / np.sqrt(variance + float(attrs["epsilon"]))
    r.add("affine", [x], op, "Y", x.shape, scale=factor, shift=bias - mean * factor)


@reads("affine_channel")
def _affine_channel(r: Reading, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    need(attrs.get("data_layout", "NCHW") in ("NCHW", "AnyLayout"), "affine_channel in NHWC")
    scale, bias = (r.constant(op, slot).astype(np.float64).reshape(-1) for slot in ("Scale", "Bias"))
    r.add("affine", [x], op, "Out", x.shape, scale=scale, shift=bias)


@reads("pool2d")
def _pool(r: Reading, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    need(len(x.shape) == 4 and attrs.get("data_format", "NCHW") in ("NCHW", "AnyLayout"), "pooling of no NCHW image")
    size, window, strides = x.shape[2:], tuple(attrs["ksize"]), tuple(attrs["strides"])
    adaptive, maximum = bool(attrs.get("adaptive")), attrs["pooling_type"] == "max"
    if attrs.get("global_pooling") or (adaptive and tuple(window) == (1, 1)):
        window, strides, pads, adaptive = size, (1, 1), (0, 0, 0, 0), False
    elif adaptive:
        pads = (0, 0, 0, 0)
    else:
        pads = padding(attrs, size, window, strides, (1, 1))
    if adaptive:
        rows, columns = window
    else:
        more = [s - 1 if attrs.get("ceil_mode") else 0 for s in strides]
        rows, columns = (
            (n + before + after - w + extra) // s + 1
            for n, before, after, w, extra, s in zip(
                size, pads[:2], pads[2:], window, more, strides, strict=True
            )
        )
    need(maximum or adaptive or attrs.get("exclusive", True) or not attrs.get("ceil_mode"), "inclusive mean of part of a window")
    mode = 0 if maximum else 1 if attrs.get("exclusive", True) or adaptive else 2
    need(mode != 2 or pads[:2] == pads[2:], "inclusive mean with uneven padding")
    r.add(
        "pool", [x], op, "Out", (*x.shape[:2], rows, columns), window=window, strides=strides, pads=pads, mode=mode, adaptive=adaptive
    )


# ---------------------------------------------------------------- products
@reads("mul")
def _mul(r: Reading, op: Operator, attrs: dict[str, Any]) -> None:
    x, y = r.get(op, "X"), r.get(op, "Y")
    left, right = int(attrs["x_num_col_dims"]), int(attrs["y_num_col_dims"])
    rows, depth, columns = prod(x.shape[:left]), prod(x.shape[left:]), prod(y.shape[right:])
    need(y.array is not None and y.array.dtype == np.float32, "mul by what is computed")
    shape = (*x.shape[:left], *y.shape[right:])
    r.add("product", [x], op, "Out", shape, matrix=(rows, depth), weights=y.array.reshape(depth, columns), shift=None)


@reads("fc")
def _fc(r: Reading, op: Operator, attrs: dict[str, Any]) -> None:
    x, weights = r.get(op, "Input"), r.constant(op, "W")
    need(not attrs.get("padding_weights") and weights.dtype == np.float32, "fc with padded weights")
    left = int(attrs["in_num_col_dims"])
    bias = r.constant(op, "Bias") if op.inputs.get("Bias") else None
    act = attrs.get("activation_type", "")
    need(act in ("", "relu"), f"fc with {act}")
    shape = (*x.shape[:left], weights.shape[1])
    matrix = (prod(x.shape[:left]), prod(x.shape[left:]))
    shift = None if bias is None else bias.reshape(-1)
    r.add("product", [x], op, "Out", shape, Activation(1 if act else 0), matrix=matrix, weights=weights, shift=shift)


@reads("matmul", "matmul_v2")
def _matmul(r: Reading, op: Operator, attrs: dict[str, Any]) -> None:
    x, y = r.get(op, "X"), r.get(op, "Y")
    swap_x, swap_y = (bool(attrs.get(a, attrs.get(b))) for a, b in (("transpose_X", "trans_x"), ("transpose_Y", "trans_y")))
    alpha = float(attrs.get("alpha", 1.0))
    need(len(x.shape) >= 2 and len(y.shape) >= 2 and not swap_x, "matmul of a vector or of a transposed X")
    depth, columns = (y.shape[-1], y.shape[-2]) if swap_y else (y.shape[-2], y.shape[-1])
    need(x.shape[-1] == depth, "matmul of sizes that do not fit")
    if y.array is not None and len(y.shape) == 2:
        weights = y.array.T if swap_y else y.array
        need(weights.dtype == np.float32, "matmul of no float32")
        weights = weights if alpha == 1.0 else weights * np.float32(alpha)
        shape = (*x.shape[:-1], columns)
        r.add("product", [x], op, "Out", shape, matrix=(prod(x.shape[:-1]), depth), weights=weights, shift=None)
        return
    need(x.shape[:-2] == y.shape[:-2] and 2 < len(x.shape) <= 4, "matmul with broadcasting")
    r.add("matmul", [x, y], op, "Out", (*x.shape[:-1], columns), swap_y=swap_y)
    if alpha != 1.0:
        r.nodes[-1].activation = Activation(AFFINE, (alpha, 0.0))


# ---------------------------------------------------------------- elementwise
ADD, SUBTRACT, MULTIPLY, DIVIDE, LARGER, SMALLER, ALONE = range(7)
SIGMOID, TANH, GELU, LEAKY, HARD_SWISH, SWISH, EXP, SQRT, SQUARE, AFFINE, HARD_SIGMOID, ABS, GELU_TANH = range(3, 16)
OPERATIONS = {
    "elementwise_add": ADD,
    "elementwise_sub": SUBTRACT,
    "elementwise_mul": MULTIPLY,
    "elementwise_div": DIVIDE,
    "elementwise_max": LARGER,
    "elementwise_min": SMALLER,
}
ACTIVATIONS: dict[str, Callable[[dict[str, Any]], Activation]] = {
    "relu": lambda a: Activation(1),
    "relu6": lambda a: Activation(2, (float(a["threshold"]),)),
    "sigmoid": lambda a: Activation(SIGMOID),
    "tanh": lambda a: Activation(TANH),
    "gelu": lambda a: Activation(GELU_TANH if a.get("approximate") else GELU),
    "leaky_relu": lambda a: Activation(LEAKY, (float(a["alpha"]),)),
    "hard_swish": lambda a: Activation(HARD_SWISH, (float(a["threshold"]), float(a["offset"]), float(a["scale"]))),
    "swish": lambda a: Activation(SWISH, (float(a["beta"]),)),
    "exp": lambda a: Activation(EXP),
    "sqrt": lambda a: Activation(SQRT),
    "square": lambda a: Activation(SQUARE),
    "hard_sigmoid": lambda a: Activation(HARD_SIGMOID, (float(a["slope"]), float(a["offset"]))),
    "abs": lambda a: Activation(ABS),
}


@reads(*OPERATIONS)
def _binary(r: Reading, op: Operator, attrs: dict[str, Any]) -> None:
    x, y = r.get(op, "X"), r.get(op, "Y")
    need(not (x.integer or y.integer), "integers")
    axis = int(attrs.get("axis", -1))
    need(len(y.shape) <= len(x.shape), "broadcasting of X")
    operation, y_shape = OPERATIONS[op.type], aligned(x.shape, y.shape, axis)
    need(all(b in (1, a) for a, b in zip(x.shape, y_shape, strict=True)), "broadcasting of X")
    if y.array is not None and len(x.shape) == 4 and y_shape == (1, x.shape[1], 1, 1) and operation in (ADD, MULTIPLY):
        numbers = y.array.astype(np.float64).reshape(-1)
        ones, zeros = np.ones_like(numbers), np.zeros_like(numbers)
        scale, shift = (ones, numbers) if operation == ADD else (numbers, zeros)
        r.add("affine", [x], op, "Out", x.shape, scale=scale, shift=shift)
        return
    r.add("binary", [x, y], op, "Out", x.shape, operation=operation, y_shape=y_shape)


def aligned(x: Shape, y: Shape, axis: int) -> Shape:
    """The shape of Y with ones put around it, so that it broadcasts to X (Paddle 1.8 elementwise_op_function.h)."""
    if len(x) == len(y):
        return y
    start = len(x) - len(y) if axis == -1 else axis
    while len(y) + start > len(x) and y[-1] == 1:
        y = y[:-1]
    need(0 <= start <= len(x) - len(y), "shapes that do not broadcast")
    return (1,) * start + y + (1,) * (len(x) - start - len(y))


@reads(*ACTIVATIONS)
def _activation(r: Reading, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    need(not x.integer, "integers")
    r.add("unary", [x], op, "Out", x.shape, ACTIVATIONS[op.type](attrs))


@reads("scale")
def _scale(r: Reading, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    need(not op.inputs.get("ScaleTensor") and not x.integer, "a computed scale")
    factor, bias = float(attrs["scale"]), float(attrs["bias"])
    bias = bias if attrs.get("bias_after_scale", True) else bias * factor
    if (factor, bias) == (1.0, 0.0):
        r.alias(x, op, "Out")
    else:
        r.add("unary", [x], op, "Out", x.shape, Activation(AFFINE, (factor, bias)))


@reads("dropout")
def _dropout(r: Reading, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    need(attrs.get("is_test"), "dropout in training mode")
    if attrs.get("dropout_implementation") == "upscale_in_train":
        r.alias(x, op, "Out")
    else:
        factor = float(np.float32(1.0) - np.float32(attrs["dropout_prob"]))
        r.add("unary", [x], op, "Out", x.shape, Activation(AFFINE, (factor, 0.0)))


@reads("assign")
def _assign(r: Reading, op: Operator, attrs: dict[str, Any]) -> None:
    r.alias(r.get(op, "X"), op, "Out")


# ---------------------------------------------------------------- rows
@reads("softmax")
def _softmax(r: Reading, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    need(int(attrs.get("axis", -1)) in (-1, len(x.shape) - 1), "softmax along an inner axis")
    r.add("softmax", [x], op, "Out", x.shape, factor=1.0, mask_shape=None)


@reads("layer_norm")
def _layer_norm(r: Reading, op: Operator, attrs: dict[str, Any]) -> None:
    x, start = r.get(op, "X"), int(attrs["begin_norm_axis"])
    scale, bias = (r.constant(op, slot).reshape(-1) if op.inputs.get(slot) else None for slot in ("Scale", "Bias"))
    matrix = (prod(x.shape[:start]), prod(x.shape[start:]))
    r.add("layer_norm", [x], op, "Y", x.shape, matrix=matrix, scale=scale, shift=bias, epsilon=float(attrs["epsilon"]))


@reads("lookup_table", "lookup_table_v2")
def _lookup(r: Reading, op: Operator, attrs: dict[str, Any]) -> None:
    table, ids = r.constant(op, "W"), r.get(op, "Ids")
    need(ids.integer and table.dtype == np.float32, "a table of no float32")
    if op.type == "lookup_table":
        need(ids.shape[-1:] == (1,), "ids whose last size is not 1")
        shape = (*ids.shape[:-1], table.shape[1])
    else:
        shape = (*ids.shape, table.shape[1])
    r.add("gather", [ids], op, "Out", shape, table=table, zero=int(attrs.get("padding_idx", -1)))


# ---------------------------------------------------------------- moves
@reads("reshape", "reshape2")
def _reshape(r: Reading, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    need(not op.inputs.get("Shape") and not op.inputs.get("ShapeTensor"), "a computed shape")
    shape = [x.shape[i] if size == 0 else int(size) for i, size in enumerate(attrs["shape"])]
    if -1 in shape:
        shape[shape.index(-1)] = prod(x.shape) // max(prod(size for size in shape if size != -1), 1)
    need(prod(shape) == prod(x.shape), "a reshape that does not fit")
    r.add("view", [x], op, "Out", shape)


@reads("flatten", "flatten2")
def _flatten(r: Reading, op: Operator, attrs: dict[str, Any]) -> None:
    x, axis = r.get(op, "X"), int(attrs["axis"])
    r.add("view", [x], op, "Out", (prod(x.shape[:axis]), prod(x.shape[axis:])))


@reads("flatten_contiguous_range")
def _flatten_range(r: Reading, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    start, stop = (int(attrs[name]) % len(x.shape) for name in ("start_axis", "stop_axis"))
    r.add("view", [x], op, "Out", (*x.shape[:start], prod(x.shape[start : stop + 1]), *x.shape[stop + 1 :]))


@reads("squeeze", "squeeze2")
def _squeeze(r: Reading, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    axes = [int(axis) % len(x.shape) for axis in attrs["axes"]] or range(len(x.shape))
    r.add("view", [x], op, "Out", [n for i, n in enumerate(x.shape) if i not in axes or n != 1])


@reads("unsqueeze", "unsqueeze2")
def _unsqueeze(r: Reading, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    need(not op.inputs.get("AxesTensor") and not op.inputs.get("AxesTensorList"), "computed axes")
    shape = list(x.shape)
    for axis in attrs["axes"]:
        shape.insert(int(axis) if axis >= 0 else int(axis) + len(shape) + 1, 1)
    r.add("view", [x], op, "Out", shape)


@reads("transpose", "transpose2")
def _transpose(r: Reading, op: Operator, attrs: dict[str, Any]) -> None:
    x, axes = r.get(op, "X"), [int(axis) for axis in attrs["axis"]]
    r.add("transpose", [x], op, "Out", [x.shape[axis] for axis in axes], axes=axes)


@reads("slice")
def _slice(r: Reading, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "Input")
    need(not any(op.inputs.get(slot) for slot in op.inputs if slot != "Input") and not x.integer, "computed bounds")
    starts, shape = [0] * len(x.shape), list(x.shape)
    for axis, start, end in zip(attrs["axes"], attrs["starts"], attrs["ends"], strict=True):
        size = x.shape[axis]
        start, end = (min(max(bound + size if bound < 0 else bound, 0), size) for bound in (start, end))
        starts[axis], shape[axis] = start, end - start
    kept = [size for axis, size in enumerate(shape) if axis not in (attrs.get("decrease_axis") or [])]
    r.add("slice", [x], op, "Out", kept or [1], starts=starts, sizes=shape)


@reads("concat")
def _concat(r: Reading, op: Operator, attrs: dict[str, Any]) -> None:
    need(not op.inputs.get("AxisTensor"), "a computed axis")
    parts = [r.values[name] for name in op.inputs["X"] if name in r.values]
    need(len(parts) == len(op.inputs["X"]) and not any(part.integer for part in parts), "parts that are not there")
    axis = int(attrs["axis"]) % len(parts[0].shape)
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    r.add("concat", parts, op, "Out", shape, axis=axis)


@reads("stack")
def _stack(r: Reading, op: Operator, attrs: dict[str, Any]) -> None:
    parts = [r.values[name] for name in op.inputs["X"] if name in r.values]
    need(len(parts) == len(op.inputs["X"]) and not any(part.integer for part in parts), "parts that are not there")
    axis = int(attrs["axis"]) % (len(parts[0].shape) + 1)
    shape = parts[0].shape
    r.add("stack", parts, op, "Y", (*shape[:axis], len(parts), *shape[axis:]), axis=axis)
