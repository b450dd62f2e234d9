"""Elementary functions and activations, element by element, and softmax (Paddle 1.8.5 layers/ops.py and nn.py)."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from fluidtool.errors import AssertedError, UsageError, WrongKindError
from fluidtool.fluid.checks import check_dtype, check_type, check_variable_and_dtype
from fluidtool.fluid.initializer import Constant
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.building import FLOATS, append_simple
from fluidtool.fluid.layers.creation import assign
from fluidtool.ir import Variable
from fluidtool.ir.variable import data_type

WIDE = ("float32", "float64")


class Activation(Protocol):
    """A layer of one input and no attributes."""

    def __call__(self, x: Variable, name: str | None = None) -> Variable: ...


def _unary(op_type: str, formula: str, kinds: tuple[str, ...] = FLOATS) -> Activation:
    def layer(x: Variable, name: str | None = None) -> Variable:
        check_variable_and_dtype(x, "x", kinds, op_type)
        return append_simple(LayerHelper(op_type, name=name), op_type, {"X": x}, dtype=x.dtype)

    layer.__name__ = layer.__qualname__ = op_type
    layer.__doc__ = formula
    return layer


sigmoid = _unary("sigmoid", "1 / (1 + exp(-x)).")
logsigmoid = _unary("logsigmoid", "log(1 / (1 + exp(-x))).")
exp = _unary("exp", "e to the x.", ("int32", "int64", *FLOATS))
tanh = _unary("tanh", "Hyperbolic tangent.")
atan = _unary("atan", "Arc tangent.")
tanh_shrink = _unary("tanh_shrink", "x - tanh(x).")
sqrt = _unary("sqrt", "Square root.")
rsqrt = _unary("rsqrt", "1 / sqrt(x).")
abs = _unary("abs", "Absolute value.", ("int32", "int64", *FLOATS))
ceil = _unary("ceil", "The next whole number above.")
floor = _unary("floor", "The next whole number below.")
cos = _unary("cos", "Cosine.")
acos = _unary("acos", "Arc cosine.")
asin = _unary("asin", "Arc sine.")
sin = _unary("sin", "Sine.")
round = _unary("round", "The nearest whole number.")
reciprocal = _unary("reciprocal", "1 / x.")
square = _unary("square", "x * x.", ("int32", "int64", *FLOATS))
softplus = _unary("softplus", "log(1 + exp(x)).")
softsign = _unary("softsign", "x / (1 + |x|).")
log = _unary("log", "Natural logarithm.", WIDE)
relu = _unary("relu", "max(x, 0).")


def log1p(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """log(1 + x)."""
    check_variable_and_dtype(x, "x", WIDE, "log1p")
    return append_simple(LayerHelper("log1p", name=name), "log1p", {"X": x}, dtype=x.dtype, out=out)


def _require_variable(x: object, op_type: str) -> None:
    """Raise WrongKindError for anything else, as functions made by `generate_layer_fn` do."""
    if not isinstance(x, Variable):
        raise WrongKindError(f"input of {op_type} must be variable, found {type(x).__name__}")


def erf(x: Variable) -> Variable:
    """The error function."""
    _require_variable(x, "erf")
    return append_simple(LayerHelper("erf"), "erf", {"X": x}, dtype=x.dtype)


def gelu(x: Variable, approximate: bool = False) -> Variable:
    """x * P(X <= x) for a standard normal X; approximate: by tanh (Hendrycks and Gimpel 2016)."""
    _require_variable(x, "gelu")
    return append_simple(LayerHelper("gelu"), "gelu", {"X": x}, {"approximate": approximate}, dtype=x.dtype)


def _given(**attrs: Any) -> dict[str, Any]:
    return {name: value for name, value in attrs.items() if value is not None}


def softshrink(x: Variable, alpha: float | None = None) -> Variable:
    """x moved towards 0 by alpha (default 0.5), 0 within."""
    check_variable_and_dtype(x, "x", FLOATS, "softshrink")
    attrs = {} if alpha is None else {"lambda": alpha}
    return append_simple(LayerHelper("softshrink"), "softshrink", {"X": x}, attrs, dtype=x.dtype)


def hard_shrink(x: Variable, threshold: float | None = None) -> Variable:
    """x outside of the threshold (default 0.5), 0 within."""
    check_variable_and_dtype(x, "x", FLOATS, "hard_shrink")
    return append_simple(
        LayerHelper("hard_shrink"), "hard_shrink", {"X": x}, _given(threshold=threshold), dtype=x.dtype
    )


def thresholded_relu(x: Variable, threshold: float | None = None) -> Variable:
    """x above the threshold (default 1), 0 below."""
    check_variable_and_dtype(x, "x", FLOATS, "thresholded_relu")
    helper = LayerHelper("thresholded_relu")
    return append_simple(helper, "thresholded_relu", {"X": x}, _given(threshold=threshold), dtype=x.dtype)


def cumsum(
    x: Variable, axis: int | None = None, exclusive: bool | None = None, reverse: bool | None = None
) -> Variable:
    """Running sums along an axis (default the last)."""
    check_type(x, "x", Variable, "cumsum")
    attrs = _given(axis=axis, exclusive=exclusive, reverse=reverse)
    return append_simple(LayerHelper("cumsum"), "cumsum", {"X": x}, attrs, dtype=x.dtype)


def relu6(x: Variable, threshold: float = 6.0, name: str | None = None) -> Variable:
    """min(max(x, 0), threshold)."""
    check_variable_and_dtype(x, "x", FLOATS, "relu6")
    return append_simple(LayerHelper("relu6", name=name), "relu6", {"X": x}, {"threshold": threshold}, dtype=x.dtype)


def elu(x: Variable, alpha: float = 1.0, name: str | None = None) -> Variable:
    """x above 0, alpha * (exp(x) - 1) below (Clevert et al. 2015)."""
    helper = LayerHelper("elu", name=name)
    check_variable_and_dtype(x, "x", FLOATS, "elu")
    return append_simple(helper, "elu", {"X": x}, {"alpha": alpha}, dtype=x.dtype)


def selu(x: Variable, scale: float | None = None, alpha: float | None = None, name: str | None = None) -> Variable:
    """scale * elu(x, alpha), by default with the constants of Klambauer et al. 2017."""
    check_variable_and_dtype(x, "x", WIDE, "selu")
    return append_simple(
        LayerHelper("selu", name=name), "selu", {"X": x}, _given(scale=scale, alpha=alpha), dtype=x.dtype
    )


def stanh(x: Variable, scale_a: float = 0.67, scale_b: float = 1.7159, name: str | None = None) -> Variable:
    """scale_b * tanh(scale_a * x)."""
    check_variable_and_dtype(x, "x", FLOATS, "stanh")
    attrs = {"scale_a": scale_a, "scale_b": scale_b}
    return append_simple(LayerHelper("stanh", name=name), "stanh", {"X": x}, attrs, dtype=x.dtype)


def hard_sigmoid(x: Variable, slope: float = 0.2, offset: float = 0.5, name: str | None = None) -> Variable:
    """slope * x + offset, clipped to [0, 1]."""
    check_variable_and_dtype(x, "x", FLOATS, "hard_sigmoid")
    attrs = {"slope": slope, "offset": offset}
    return append_simple(LayerHelper("hard_sigmoid", name=name), "hard_sigmoid", {"X": x}, attrs, dtype=x.dtype)


def hard_swish(
    x: Variable, threshold: float = 6.0, scale: float = 6.0, offset: float = 3.0, name: str | None = None
) -> Variable:
    """x * min(max(x + offset, 0), threshold) / scale (Howard et al. 2019)."""
    check_variable_and_dtype(x, "x", FLOATS, "hard_swish")
    attrs = {"threshold": threshold, "scale": scale, "offset": offset}
    return append_simple(LayerHelper("hard_swish", name=name), "hard_swish", {"X": x}, attrs, dtype=x.dtype)


def swish(x: Variable, beta: float = 1.0, name: str | None = None) -> Variable:
    """x * sigmoid(x). As in Paddle 1.8.5, `beta` is not passed to the operator."""
    check_variable_and_dtype(x, "x", FLOATS, "swish")
    return append_simple(LayerHelper("swish", name=name), "swish", {"X": x}, dtype=x.dtype)


def mish(x: Variable, threshold: float = 20, name: str | None = None) -> Variable:
    """x * tanh(softplus(x)) (Misra 2019); softplus is x above the threshold."""
    check_variable_and_dtype(x, "x", WIDE, "mish")
    check_type(threshold, "threshold", (float, int), "mish")
    if threshold <= 0:
        raise AssertedError(f"threshold of mish should be greater than 0, but got {threshold}")
    helper = LayerHelper("mish", name=name)
    return append_simple(helper, "mish", {"X": x}, {"threshold": float(threshold)}, dtype=x.dtype)


def brelu(x: Variable, t_min: float = 0.0, t_max: float = 24.0, name: str | None = None) -> Variable:
    """x clipped to t_min and t_max."""
    check_variable_and_dtype(x, "x", FLOATS, "brelu")
    attrs = {"t_min": t_min, "t_max": t_max}
    return append_simple(LayerHelper("brelu", name=name), "brelu", {"X": x}, attrs, dtype=x.dtype)


def leaky_relu(x: Variable, alpha: float = 0.02, name: str | None = None) -> Variable:
    """x above 0, alpha * x below."""
    check_variable_and_dtype(x, "x", FLOATS, "leaky_relu")
    return append_simple(LayerHelper("leaky_relu", name=name), "leaky_relu", {"X": x}, {"alpha": alpha}, dtype=x.dtype)


def soft_relu(x: Variable, threshold: float = 40.0, name: str | None = None) -> Variable:
    """log(1 + exp(x clipped to -threshold and threshold))."""
    check_variable_and_dtype(x, "x", FLOATS, "soft_relu")
    helper = LayerHelper("soft_relu", name=name)
    return append_simple(helper, "soft_relu", {"X": x}, {"threshold": threshold}, dtype=x.dtype)


def pow(x: Variable, factor: float | Variable = 1.0, name: str | None = None) -> Variable:
    """x to the power of a number or a tensor with one element."""
    check_variable_and_dtype(x, "x", ("int32", "int64", *WIDE), "pow")
    helper = LayerHelper("pow", name=name)
    if isinstance(factor, Variable):
        check_variable_and_dtype(factor, "factor", ("float32",), "pow")
        factor.stop_gradient = True
        return append_simple(helper, "pow", {"X": x, "FactorTensor": factor}, dtype=x.dtype)
    return append_simple(helper, "pow", {"X": x}, {"factor": factor}, dtype=x.dtype)


def sign(x: Variable | np.ndarray[Any, Any]) -> Variable:
    """-1, 0 or 1."""
    helper = LayerHelper("sign")
    check_type(x, "x", (Variable, np.ndarray), "sign")
    var = assign(x) if isinstance(x, np.ndarray) else x
    check_dtype(var.dtype, "x", FLOATS, "sign")
    return append_simple(helper, "sign", {"X": [var]}, dtype=var.dtype)


def prelu(x: Variable, mode: str, param_attr: Any = None, name: str | None = None) -> Variable:
    """max(x, 0) + alpha * min(x, 0); alpha is learned: one ('all'), one per channel, or one per element."""
    check_variable_and_dtype(x, "x", WIDE, "prelu")
    helper = LayerHelper("prelu", name=name, param_attr=param_attr)
    if mode not in ("all", "channel", "element"):
        raise UsageError(f"mode should be one of all, channel, element, found {mode!r}")
    shape = [1]
    if mode == "channel":
        if len(x.shape) < 2:
            raise AssertedError(
                "The size of input shape should be equal or larger than 2 in prelu() when mode is 'channel'"
            )
        shape = [1, x.shape[1], 1, 1]
    elif mode == "element":
        shape = [1, *x.shape[1:]]
    alpha = helper.create_parameter(helper.param_attr, shape, "float32", default_initializer=Constant(0.25))
    return append_simple(helper, "prelu", {"X": x, "Alpha": alpha}, {"mode": mode}, dtype=x.dtype)


def maxout(x: Variable, groups: int, name: str | None = None, axis: int = 1) -> Variable:
    """The largest of every `groups` channels (Goodfellow et al. 2013)."""
    check_variable_and_dtype(x, "x", WIDE, "maxout")
    helper = LayerHelper("maxout", name=name)
    if axis not in (1, -1, 3):
        raise UsageError(
            "Attr(axis) should be 1 when data format is NCHW, -1 or 3 when data format is NHWC. "
            f"Received Attr(axis): {axis}."
        )
    attrs = {"groups": groups, "axis": 3 if axis == -1 else axis}
    return append_simple(helper, "maxout", {"X": x}, attrs, dtype=x.dtype)


def softmax(input: Variable, use_cudnn: bool = False, name: str | None = None, axis: int = -1) -> Variable:
    """exp(x) / sum of exp(x) along an axis."""
    helper = LayerHelper("softmax", name=name)
    check_variable_and_dtype(input, "input", FLOATS, "softmax")
    return append_simple(helper, "softmax", {"X": input}, {"axis": axis, "use_cudnn": use_cudnn}, dtype=input.dtype)


def log_softmax(input: Variable, axis: int | None = None, dtype: Any = None, name: str | None = None) -> Variable:
    """log(softmax(input)), computed in `dtype` if given."""
    helper = LayerHelper("log_softmax", name=name)
    kind = input.dtype if dtype is None else data_type(dtype)
    if dtype is None:
        check_variable_and_dtype(input, "input", FLOATS, "log_softmax")
    else:
        attrs = {"in_dtype": int(data_type(input.dtype)), "out_dtype": int(data_type(dtype))}
        input = append_simple(helper, "cast", {"X": input}, attrs, dtype=kind)
    attrs = {"axis": -1 if axis is None else axis, "use_cudnn": False}
    out = append_simple(helper, "softmax", {"X": input}, attrs, dtype=kind)
    return append_simple(helper, "log", {"X": out}, dtype=kind)
