"""Functions of each number: activations, roots, trigonometry; softmax and its like."""

from __future__ import annotations

from math import log, pi, sqrt
from typing import Any

import numpy as np

from fluidtool.onnx_export.graph import Graph, Value
from fluidtool.onnx_export.operation import Operation
from fluidtool.onnx_export.registry import RENDERINGS, Rendering, need, renders

# Operators from X to Out that ONNX has: its name, and which of its attributes is which of Paddle's.
DIRECT: dict[str, tuple[str, dict[str, str]]] = {
    "abs": ("Abs", {}),
    "acos": ("Acos", {}),
    "acosh": ("Acosh", {}),
    "asin": ("Asin", {}),
    "asinh": ("Asinh", {}),
    "atan": ("Atan", {}),
    "atanh": ("Atanh", {}),
    "ceil": ("Ceil", {}),
    "celu": ("Celu", {"alpha": "alpha"}),
    "cos": ("Cos", {}),
    "cosh": ("Cosh", {}),
    "elu": ("Elu", {"alpha": "alpha"}),
    "erf": ("Erf", {}),
    "exp": ("Exp", {}),
    "floor": ("Floor", {}),
    "leaky_relu": ("LeakyRelu", {"alpha": "alpha"}),
    "log": ("Log", {}),
    "reciprocal": ("Reciprocal", {}),
    "relu": ("Relu", {}),
    "selu": ("Selu", {"alpha": "alpha", "gamma": "scale"}),
    "sigmoid": ("Sigmoid", {}),
    "sign": ("Sign", {}),
    "sin": ("Sin", {}),
    "sinh": ("Sinh", {}),
    "softsign": ("Softsign", {}),
    "sqrt": ("Sqrt", {}),
    "tan": ("Tan", {}),
    "tanh": ("Tanh", {}),
    "thresholded_relu": ("ThresholdedRelu", {"alpha": "threshold"}),
}
# What ONNX has no integers for: computed as numbers of float64, and back.
FLOATS_ONLY = frozenset({"Ceil", "Exp", "Floor", "Log", "Reciprocal", "Sqrt", "Tanh", "Sin", "Cos"})
# ONNX Runtime has kernels of float32 alone for these, ONNX allows more.
SINGLE = frozenset(
    {
        "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cosh", "Sinh", "Tan", "Celu", "Elu", "Selu",
        "Softplus", "Softsign", "ThresholdedRelu", "LeakyRelu", "Erf", "Gelu", "HardSigmoid", "Mish", "PRelu",
    }
)  # fmt: skip


def function(x: Value, kind: str, *others: Value, **attributes: Any) -> Value:
    """A function of each number, in a data type that there is a kernel for."""
    if kind in SINGLE and x.dtype != np.float32:
        return function(x.cast(np.float32), kind, *(y.cast(np.float32) for y in others), **attributes).cast(x.dtype)
    if kind in FLOATS_ONLY and not x.floating:
        return x.cast(np.float64).apply(kind, **attributes).cast(x.dtype)
    return x.graph.same(kind, x, *others, **attributes)


def _direct(kind: str, names: dict[str, str]) -> Rendering:
    def render(g: Graph, op: Operation) -> Value:
        return function(op["X"], kind, **{onnx: op.attr(name) for onnx, name in names.items()})

    return render


for _type, (_kind, _names) in DIRECT.items():
    RENDERINGS[_type] = _direct(_kind, _names)


@renders("round")
def round_(g: Graph, op: Operation) -> Value:
    return away_from_zero(op["X"])


def away_from_zero(x: Value) -> Value:
    """To the nearest whole number, halves away from zero."""
    size = x.apply("Abs")
    whole = size.apply("Floor")
    return x.apply("Sign") * (whole + (size - whole >= 0.5).cast(x.dtype))


@renders("trunc")
def trunc(g: Graph, op: Operation) -> Value:
    x = op["X"]
    return x if not x.floating else x.apply("Sign") * x.apply("Abs").apply("Floor")


@renders("rsqrt")
def rsqrt(g: Graph, op: Operation) -> Value:
    return op["X"].apply("Sqrt").apply("Reciprocal")


@renders("square")
def square(g: Graph, op: Operation) -> Value:
    return op["X"] * op["X"]


@renders("expm1")
def expm1(g: Graph, op: Operation) -> Value:
    return _precise(op["X"], lambda x: x.apply("Exp") - 1)


@renders("log1p")
def log1p(g: Graph, op: Operation) -> Value:
    return _precise(op["X"], lambda x: (x + 1).apply("Log"))


def _precise(x: Value, compute: Any) -> Value:
    """Computed in float64, so that what cancels is not lost."""
    found: Value = compute(x.cast(np.float64))
    return found.cast(x.dtype)


@renders("log2")
def log2(g: Graph, op: Operation) -> Value:
    return op["X"].apply("Log") / log(2)


@renders("log10")
def log10(g: Graph, op: Operation) -> Value:
    return op["X"].apply("Log") / log(10)


@renders("logit")
def logit(g: Graph, op: Operation) -> Value:
    x, eps = op["X"], op.attr("eps")
    if not eps:
        return (x / (1 - x)).apply("Log")
    x = x.clip(eps, 1 - eps)
    return (x / (1 - x)).apply("Log")


@renders("gelu")
def gelu(g: Graph, op: Operation) -> Value:
    return gelu_of(g, op["X"], op.attr("approximate"))


def gelu_of(g: Graph, x: Value, approximate: bool) -> Value:
    """x * Φ(x), or its approximation by tanh."""
    if g.opset >= 20:
        return function(x, "Gelu", approximate="tanh" if approximate else "none")
    if approximate:
        inner = (x + x * x * x * 0.044715) * sqrt(2 / pi)
        return x * 0.5 * (inner.apply("Tanh") + 1)
    return x * 0.5 * (function(x * (1 / sqrt(2)), "Erf") + 1)


@renders("softplus")
def softplus(g: Graph, op: Operation) -> Value:
    """log(1 + exp(beta x)) / beta, and x itself above the threshold, which programs of Paddle 1.x do not have."""
    x, beta, threshold = op["X"], op.attr("beta", 1.0), op.attr("threshold", None)
    scaled = x if beta == 1.0 else x * beta
    out = function(scaled, "Softplus")
    out = out if beta == 1.0 else out / beta
    return out if threshold is None else g.where(scaled > threshold, x, out)


@renders("logsigmoid")
def logsigmoid(g: Graph, op: Operation) -> Value:
    return -function(-op["X"], "Softplus")


@renders("silu", "swish")
def swish(g: Graph, op: Operation) -> Value:
    x = op["X"]
    beta = op.attr("beta", 1.0) if op.type == "swish" else 1.0
    return x * (x if beta == 1.0 else x * beta).apply("Sigmoid")


@renders("mish")
def mish(g: Graph, op: Operation) -> Value:
    x = op["X"]
    if g.opset >= 18:
        return function(x, "Mish")
    return x * function(x, "Softplus").apply("Tanh")


@renders("hard_swish")
def hard_swish(g: Graph, op: Operation) -> Value:
    x = op["X"]
    threshold, scale, offset = op.attr("threshold"), op.attr("scale"), op.attr("offset")
    if g.opset >= 14 and (threshold, scale, offset) == (6.0, 6.0, 3.0) and x.dtype == np.float32:
        return x.apply("HardSwish")
    return x * (x + offset).clip(0, threshold) * (1 / scale)


@renders("hard_sigmoid")
def hard_sigmoid(g: Graph, op: Operation) -> Value:
    return function(op["X"], "HardSigmoid", alpha=op.attr("slope"), beta=op.attr("offset"))


@renders("relu6")
def relu6(g: Graph, op: Operation) -> Value:
    return op["X"].clip(0, op.attr("threshold"))


@renders("brelu")
def brelu(g: Graph, op: Operation) -> Value:
    return op["X"].clip(op.attr("t_min"), op.attr("t_max"))


@renders("hard_shrink")
def hard_shrink(g: Graph, op: Operation) -> Value:
    x = op["X"]
    threshold = op.attr("threshold")
    return g.where((x > threshold) | (x < -threshold), x, 0)


@renders("softshrink")
def softshrink(g: Graph, op: Operation) -> Value:
    x, threshold = op["X"], op.attr("lambda")
    return (x - threshold).apply("Relu") - (-x - threshold).apply("Relu")


@renders("soft_relu")
def soft_relu(g: Graph, op: Operation) -> Value:
    threshold = op.attr("threshold")
    return (op["X"].clip(-threshold, threshold).apply("Exp") + 1).apply("Log")


@renders("stanh")
def stanh(g: Graph, op: Operation) -> Value:
    return (op["X"] * op.attr("scale_a")).apply("Tanh") * op.attr("scale_b")


@renders("tanh_shrink")
def tanh_shrink(g: Graph, op: Operation) -> Value:
    return op["X"] - op["X"].apply("Tanh")


@renders("maxout")
def maxout(g: Graph, op: Operation) -> Value:
    x, groups, axis = op["X"], op.attr("groups"), op.attr("axis") % op["X"].rank
    channels = x.size(axis) // groups
    sizes = [x.dim(i) for i in range(x.rank)]
    return x.reshape([*sizes[:axis], channels, groups, *sizes[axis + 1 :]]).reduce("Max", [axis + 1])


@renders("prelu")
def prelu(g: Graph, op: Operation) -> Value:
    x, alpha, mode = op["X"], op["Alpha"], op.attr("mode")
    if mode == "all":
        slope = alpha.reshape([1] * x.rank)
    elif mode == "channel":
        last = op.attr("data_format", "NCHW") == "NHWC"
        slope = alpha.reshape([-1] if last else [-1, *[1] * (x.rank - 2)])
    else:
        slope = alpha.reshape([1, *[x.dim(axis) for axis in range(1, x.rank)]])
    return function(x, "PRelu", slope)


@renders("softmax", "log_softmax")
def softmax(g: Graph, op: Operation) -> Value:
    kind = "Softmax" if op.type == "softmax" else "LogSoftmax"
    x = op["X"]
    if x.rank == 0:
        return x.reshape([1]).apply(kind, axis=0).reshape([])
    return x.apply(kind, axis=op.attr("axis"))


def activated(g: Graph, x: Value, name: str, alpha: float = 0.0, beta: float = 0.0) -> Value:
    """x after an activation that another operator names in an attribute."""
    if name in ("", "identity", "linear"):
        return x
    if name == "leaky_relu":
        return function(x, "LeakyRelu", alpha=alpha)
    if name in ("relu6", "clip"):
        return x.clip(0, alpha) if name == "relu6" else x.clip(alpha, beta)
    if name == "hard_swish":
        return x * (x + 3).clip(0, 6) * (1 / 6)
    if name in ("swish", "silu"):
        return x * x.apply("Sigmoid")
    if name == "gelu":
        return gelu_of(g, x, False)
    if name == "softplus":
        return function(x, "Softplus")
    need(name in DIRECT, f"the activation {name} has no rendering")
    return function(x, DIRECT[name][0])
