"""Normalizations and dropout (Paddle 1.8.5 layers/nn.py)."""

from __future__ import annotations

import math
import warnings
from typing import Any

from fluidtool.errors import AssertedError, UsageError
from fluidtool.fluid.checks import check_type, check_variable_and_dtype
from fluidtool.fluid.initializer import Constant, Normal
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.building import FLOATS, append_simple
from fluidtool.fluid.param_attr import ParamAttr
from fluidtool.ir import Variable
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text

WIDE = ("float32", "float64")


def dropout(
    x: Variable,
    dropout_prob: float,
    is_test: bool = False,
    seed: int | None = None,
    name: str | None = None,
    dropout_implementation: str = "downgrade_in_infer",
) -> Variable:
    """x with elements set to 0 at random (Srivastava et al. 2014).

    'downgrade_in_infer' scales down when testing, 'upscale_in_train' scales up when training.
    """
    helper = LayerHelper("dropout", name=name)
    check_variable_and_dtype(x, "x", FLOATS, "dropout")
    out = helper.create_variable_for_type_inference(x.dtype)
    mask = helper.create_variable_for_type_inference(VarType.UINT8, stop_gradient=True)
    if not seed and helper.main_program.random_seed != 0:
        seed = helper.main_program.random_seed
    attrs = {
        "dropout_prob": dropout_prob,
        "is_test": is_test,
        "fix_seed": seed is not None,
        "seed": seed or 0,
        "dropout_implementation": dropout_implementation,
    }
    helper.append_op(type="dropout", inputs={"X": [x]}, outputs={"Out": [out], "Mask": [mask]}, attrs=attrs)
    return out


# ---------------------------------------------------------------- over the batch
def batch_norm(
    input: Variable,
    act: str | None = None,
    is_test: bool = False,
    momentum: float | Variable = 0.9,
    epsilon: float = 1e-5,
    param_attr: Any = None,
    bias_attr: Any = None,
    data_layout: str = "NCHW",
    in_place: bool = False,
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    use_global_stats: bool = False,
) -> Variable:
    """Batch normalization (Ioffe and Szegedy 2015); keeps running means and variances."""
    helper = LayerHelper("batch_norm", param_attr=param_attr, bias_attr=bias_attr, act=act, name=name)
    check_variable_and_dtype(input, "input", FLOATS, "batch_norm")
    names = (moving_mean_name, moving_variance_name)
    flags = {"epsilon": epsilon, "is_test": is_test, "use_global_stats": use_global_stats}
    average = do_model_average_for_mean_and_var
    out = _batch_norm(helper, "batch_norm", input, data_layout, in_place, names, average, momentum, flags)
    return helper.append_activation(out)


def inplace_abn(
    input: Variable,
    act: str | None = None,
    is_test: bool = False,
    momentum: float | Variable = 0.9,
    epsilon: float = 1e-5,
    param_attr: Any = None,
    bias_attr: Any = None,
    data_layout: str = "NCHW",
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    use_global_stats: bool = False,
    act_alpha: float = 1.0,
) -> Variable:
    """Batch normalization with its activation, in place (Rota Bulò et al. 2017)."""
    if act not in (None, "identity", "leaky_relu", "elu"):
        raise AssertedError("inplace_abn only support act as None, 'identity', 'leaky_relu', 'elu' currently")
    helper = LayerHelper("inplace_abn", param_attr=param_attr, bias_attr=bias_attr, name=name)
    check_variable_and_dtype(input, "input", WIDE, "inplace_abn")
    names = (moving_mean_name, moving_variance_name)
    flags: dict[str, Any] = {"epsilon": epsilon, "is_test": is_test, "use_global_stats": use_global_stats}
    flags |= {"activation": act, "alpha": act_alpha}
    average = do_model_average_for_mean_and_var
    return _batch_norm(helper, "inplace_abn", input, data_layout, True, names, average, momentum, flags)


def _batch_norm(
    helper: LayerHelper,
    op_type: str,
    input: Variable,
    data_layout: str,
    in_place: bool,
    moving_names: tuple[str | None, str | None],
    average: bool,
    momentum: float | Variable,
    attrs: dict[str, Any],
) -> Variable:
    if helper.bias_attr is False:
        raise UsageError(f"bias_attr should not be False in {op_type}.")
    dtype = VarType.FP32 if input.dtype == VarType.FP16 else input.dtype
    shape = [_channels(input, data_layout)]
    scale = helper.create_parameter(helper.param_attr, shape, dtype, default_initializer=Constant(1.0))
    bias = helper.create_parameter(helper.bias_attr, shape, dtype, is_bias=True)
    moving = []
    for name, value in zip(moving_names, (0.0, 1.0), strict=True):
        attr = ParamAttr(name=name, initializer=Constant(value), trainable=False, do_model_average=average)
        statistic = helper.create_parameter(attr, shape, dtype)
        statistic.stop_gradient = True
        moving.append(statistic)
    saved = [helper.create_variable_for_type_inference(dtype, stop_gradient=True) for _ in range(2)]
    out = input if in_place else helper.create_variable_for_type_inference(dtype)
    inputs = {"X": input, "Scale": scale, "Bias": bias, "Mean": moving[0], "Variance": moving[1]}
    attrs = {**attrs, "data_layout": data_layout, "use_mkldnn": False, "fuse_with_relu": False}
    if isinstance(momentum, Variable):
        inputs["MomentumTensor"] = momentum
    else:
        attrs["momentum"] = momentum
    outputs = {
        "Y": out,
        "MeanOut": moving[0],
        "VarianceOut": moving[1],
        "SavedMean": saved[0],
        "SavedVariance": saved[1],
    }
    helper.append_op(type=op_type, inputs=inputs, outputs=outputs, attrs=attrs)
    return out


def _channels(input: Variable, data_layout: str) -> int:
    if data_layout not in ("NCHW", "NHWC"):
        raise UsageError("unsupported data layout:" + data_layout)
    if len(input.shape) < 2:
        raise UsageError(f"batch_norm takes an input of two dimensions or more, found {shape_text(input.shape)}")
    return input.shape[1] if data_layout == "NCHW" else input.shape[-1]


def data_norm(
    input: Variable,
    act: str | None = None,
    epsilon: float = 1e-5,
    param_attr: Any = None,
    data_layout: str = "NCHW",
    in_place: bool = False,
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    slot_dim: int = -1,
    sync_stats: bool = False,
    summary_decay_rate: float = 0.9999999,
    enable_scale_and_shift: bool = False,
) -> Variable:
    """Normalization by statistics of all data seen; param_attr may be a dict of their initial values."""
    helper = LayerHelper("data_norm", act=act, name=name)
    shape = [_channels(input, data_layout)]
    given = param_attr if isinstance(param_attr, dict) else {}
    prefix = "dn" if name is None else name

    def parameter(suffix: str, key: str, default: float) -> Variable:
        attr = ParamAttr(
            name=f"{prefix}.{suffix}", initializer=Constant(float(given.get(key, default))), trainable=True
        )
        created: Variable = helper.create_parameter(attr, shape, input.dtype)
        return created

    inputs: dict[str, Any] = {"X": input}
    attrs = {"epsilon": epsilon, "sync_stats": sync_stats, "summary_decay_rate": summary_decay_rate}
    if enable_scale_and_shift:
        inputs["scale_w"] = parameter("scale_w", "scale_w", 1.0)
        inputs["bias"] = parameter("bias", "bias", 0.0)
        attrs["enable_scale_and_shift"] = True
    inputs["BatchSize"] = parameter("batch_size", "batch_size", 1e4)
    inputs["BatchSum"] = parameter("batch_sum", "batch_sum", 0.0)
    inputs["BatchSquareSum"] = parameter("batch_square_sum", "batch_square", 1e4)
    means = helper.create_variable(dtype=input.dtype, stop_gradient=True)
    scales = helper.create_variable(dtype=input.dtype, stop_gradient=True)
    out = input if in_place else helper.create_variable(dtype=input.dtype)
    if slot_dim > 0:
        attrs["slot_dim"] = slot_dim
    outputs = {"Y": out, "Means": means, "Scales": scales}
    helper.append_op(type="data_norm", inputs=inputs, outputs=outputs, attrs=attrs)
    return helper.append_activation(out)


# ---------------------------------------------------------------- within each instance
def instance_norm(
    input: Variable, epsilon: float = 1e-5, param_attr: Any = None, bias_attr: Any = None, name: str | None = None
) -> Variable:
    """Each channel of each instance normalized (Ulyanov et al. 2016)."""
    check_variable_and_dtype(input, "input", WIDE, "instance_norm")
    helper = LayerHelper("instance_norm", param_attr=param_attr, bias_attr=bias_attr, name=name)
    if helper.bias_attr is False:
        raise UsageError("bias_attr should not be False in instance_norm.")
    shape, dtype = [input.shape[1]], input.dtype
    scale = helper.create_parameter(helper.param_attr, shape, dtype, default_initializer=Constant(1.0))
    bias = helper.create_parameter(helper.bias_attr, shape, dtype, is_bias=True, default_initializer=Constant(0.0))
    saved = [helper.create_variable_for_type_inference(dtype, stop_gradient=True) for _ in range(2)]
    out = helper.create_variable_for_type_inference(dtype)
    helper.append_op(
        type="instance_norm",
        inputs={"X": input, "Scale": scale, "Bias": bias},
        outputs={"Y": out, "SavedMean": saved[0], "SavedVariance": saved[1]},
        attrs={"epsilon": epsilon},
    )
    return out


def layer_norm(
    input: Variable,
    scale: bool = True,
    shift: bool = True,
    begin_norm_axis: int = 1,
    epsilon: float = 1e-5,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """The dimensions from begin_norm_axis on normalized together (Ba et al. 2016)."""
    helper = LayerHelper("layer_norm", param_attr=param_attr, bias_attr=bias_attr, act=act, name=name)
    check_variable_and_dtype(input, "input", WIDE, "layer_norm")
    inputs: dict[str, Any] = {"X": input}
    shape, dtype = [math.prod(input.shape[begin_norm_axis:])], input.dtype
    if scale:
        if param_attr is False:
            raise UsageError("param_attr should not be False when using scale.")
        inputs["Scale"] = helper.create_parameter(helper.param_attr, shape, dtype, default_initializer=Constant(1.0))
    elif param_attr:
        warnings.warn("param_attr is only available with scale is True.", stacklevel=2)
    if shift:
        if bias_attr is False:
            raise UsageError("bias_attr should not be False when using shift.")
        inputs["Bias"] = helper.create_parameter(helper.bias_attr, shape, dtype, is_bias=True)
    elif bias_attr:
        warnings.warn("bias_attr is only available with shift is True.", stacklevel=2)
    saved = [helper.create_variable_for_type_inference(dtype, stop_gradient=True) for _ in range(2)]
    out = helper.create_variable_for_type_inference(dtype)
    outputs = {"Y": out, "Mean": saved[0], "Variance": saved[1]}
    attrs = {"epsilon": epsilon, "begin_norm_axis": begin_norm_axis}
    helper.append_op(type="layer_norm", inputs=inputs, outputs=outputs, attrs=attrs)
    return helper.append_activation(out)


def group_norm(
    input: Variable,
    groups: int,
    epsilon: float = 1e-5,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    data_layout: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Groups of channels normalized (Wu and He 2018); as in Paddle 1.8.5, scale and bias only on request."""
    helper = LayerHelper("group_norm", param_attr=param_attr, bias_attr=bias_attr, act=act, name=name)
    check_variable_and_dtype(input, "input", WIDE, "group_norm")
    if data_layout not in ("NCHW", "NHWC"):
        raise UsageError(
            f"Param(data_layout) of Op(fluid.layers.group_norm) got wrong value: received {data_layout} "
            "but only NCHW or NHWC supported."
        )
    inputs: dict[str, Any] = {"X": input}
    shape = [_channels(input, data_layout)]
    if param_attr:
        inputs["Scale"] = helper.create_parameter(
            helper.param_attr, shape, input.dtype, default_initializer=Constant(1.0)
        )
    if bias_attr:
        inputs["Bias"] = helper.create_parameter(helper.bias_attr, shape, input.dtype, is_bias=True)
    saved = [helper.create_variable(dtype=input.dtype, stop_gradient=True) for _ in range(2)]
    out = helper.create_variable(dtype=input.dtype)
    outputs = {"Y": out, "Mean": saved[0], "Variance": saved[1]}
    attrs = {"epsilon": epsilon, "groups": groups, "data_layout": data_layout}
    helper.append_op(type="group_norm", inputs=inputs, outputs=outputs, attrs=attrs)
    return helper.append_activation(out)


# ---------------------------------------------------------------- others
def spectral_norm(
    weight: Variable, dim: int = 0, power_iters: int = 1, eps: float = 1e-12, name: str | None = None
) -> Variable:
    """A weight divided by its largest singular value (Miyato et al. 2018)."""
    helper = LayerHelper("spectral_norm", name=name)
    check_variable_and_dtype(weight, "weight", WIDE, "spectral_norm")
    check_type(dim, "dim", int, "spectral_norm")
    check_type(power_iters, "power_iters", int, "spectral_norm")
    check_type(eps, "eps", float, "spectral_norm")
    height = weight.shape[dim]
    vectors = []
    for size in (height, math.prod(weight.shape) // height):
        vector = helper.create_parameter(ParamAttr(), [size], weight.dtype, default_initializer=Normal(0.0, 1.0))
        vector.stop_gradient = True
        vectors.append(vector)
    out = helper.create_variable(dtype=weight.dtype)
    inputs = {"Weight": weight, "U": vectors[0], "V": vectors[1]}
    attrs = {"dim": dim, "power_iters": power_iters, "eps": eps}
    return append_simple(helper, "spectral_norm", inputs, attrs, dtype=weight.dtype, out=out)


def lrn(
    input: Variable,
    n: int = 5,
    k: float = 1.0,
    alpha: float = 1e-4,
    beta: float = 0.75,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """Local response normalization over channels (Krizhevsky et al. 2012)."""
    helper = LayerHelper("lrn", name=name)
    check_variable_and_dtype(input, "input", ("float32",), "lrn")
    if len(input.shape) != 4:
        raise UsageError(f"Input's dimension size of Op(lrn) must be 4, but received {len(input.shape)}.")
    if data_format not in ("NCHW", "NHWC"):
        raise UsageError(
            f"Attr(data_format) of Op(lrn) got wrong value: received {data_format} but only NCHW or NHWC supported."
        )
    middle = helper.create_variable_for_type_inference(input.dtype, stop_gradient=True)
    out = helper.create_variable_for_type_inference(input.dtype)
    attrs = {"n": n, "k": k, "alpha": alpha, "beta": beta, "data_format": data_format}
    helper.append_op(type="lrn", inputs={"X": input}, outputs={"Out": out, "MidOut": middle}, attrs=attrs)
    return out


def l2_normalize(x: Variable, axis: int | None, epsilon: float = 1e-12, name: str | None = None) -> Variable:
    """x divided by its L2 norm along an axis."""
    check_variable_and_dtype(x, "X", WIDE, "norm")
    helper = LayerHelper("l2_normalize", name=name)
    out = helper.create_variable_for_type_inference(x.dtype)
    norm = helper.create_variable_for_type_inference(x.dtype)
    place = 0 if len(x.shape) == 1 else 1 if axis is None else axis
    outputs = {"Out": out, "Norm": norm}
    helper.append_op(type="norm", inputs={"X": x}, outputs=outputs, attrs={"axis": place, "epsilon": epsilon})
    return out


def affine_channel(
    x: Variable,
    scale: Variable | None = None,
    bias: Variable | None = None,
    data_layout: str = "NCHW",
    name: str | None = None,
    act: str | None = None,
) -> Variable:
    """scale * x + bias per channel."""
    helper = LayerHelper("affine_channel", act=act, name=name)
    check_variable_and_dtype(x, "x", WIDE, "affine_channel")
    check_type(scale, "scale", (Variable, type(None)), "affine_channel")
    check_type(bias, "bias", (Variable, type(None)), "affine_channel")
    inputs = {"X": x, "Scale": scale, "Bias": bias}
    out = append_simple(helper, "affine_channel", inputs, {"data_layout": data_layout}, dtype=x.dtype)
    return helper.append_activation(out)
