"""`fluid.nets`: small networks composed of layers (Paddle 1.8.5 nets.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.fluid import layers
from fluidtool.fluid.checks import check_variable_and_dtype, convert_dtype
from fluidtool.fluid.offers import defined_in, refuse_other_names
from fluidtool.ir import Variable

WIDE = ("float32", "float64")


def simple_img_conv_pool(
    input: Variable,
    num_filters: int,
    filter_size: int | Sequence[int],
    pool_size: int | Sequence[int],
    pool_stride: int | Sequence[int],
    pool_padding: int | Sequence[int] = 0,
    pool_type: str = "max",
    global_pooling: bool = False,
    conv_stride: int | Sequence[int] = 1,
    conv_padding: int | Sequence[int] = 0,
    conv_dilation: int | Sequence[int] = 1,
    conv_groups: int = 1,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    use_cudnn: bool = True,
) -> Variable:
    """conv2d, then pool2d; images [n, c, h, w]."""
    convolved = layers.conv2d(
        input,
        num_filters,
        filter_size,
        stride=conv_stride,
        padding=conv_padding,
        dilation=conv_dilation,
        groups=conv_groups,
        param_attr=param_attr,
        bias_attr=bias_attr,
        act=act,
        use_cudnn=use_cudnn,
    )
    return layers.pool2d(
        convolved,
        pool_size=pool_size,
        pool_type=pool_type,
        pool_stride=pool_stride,
        pool_padding=pool_padding,
        global_pooling=global_pooling,
        use_cudnn=use_cudnn,
    )


def img_conv_group(
    input: Variable,
    conv_num_filter: Sequence[int],
    pool_size: int | Sequence[int],
    conv_padding: Any = 1,
    conv_filter_size: Any = 3,
    conv_act: str | None = None,
    param_attr: Any = None,
    conv_with_batchnorm: bool | Sequence[bool] = False,
    conv_batchnorm_drop_rate: float | Sequence[float] = 0.0,
    pool_stride: int | Sequence[int] = 1,
    pool_type: str = "max",
    use_cudnn: bool = True,
) -> Variable:
    """Several conv2d, each with optional batch_norm and dropout, then one pool2d.

    conv_num_filter sets their number; the other conv_* arguments and param_attr are one for all or one per layer.
    """
    if not isinstance(conv_num_filter, (list, tuple)):
        raise ArgumentTypeError(f"conv_num_filter must be a list or a tuple, but received {type(conv_num_filter)}")
    count = len(conv_num_filter)
    settings = zip(
        conv_num_filter,
        _each(conv_padding, count, "conv_padding"),
        _each(conv_filter_size, count, "conv_filter_size"),
        _each(param_attr, count, "param_attr"),
        _each(conv_with_batchnorm, count, "conv_with_batchnorm"),
        _each(conv_batchnorm_drop_rate, count, "conv_batchnorm_drop_rate"),
        strict=True,
    )
    out = input
    for filters, padding, size, attr, normalized, drop_rate in settings:
        act = None if normalized else conv_act
        out = layers.conv2d(out, filters, size, padding=padding, param_attr=attr, act=act, use_cudnn=use_cudnn)
        if normalized:
            out = layers.batch_norm(out, act=conv_act)
            if abs(drop_rate) > 1e-5:
                out = layers.dropout(out, drop_rate)
    return layers.pool2d(out, pool_size=pool_size, pool_type=pool_type, pool_stride=pool_stride, use_cudnn=use_cudnn)


def _each(value: Any, count: int, what: str) -> Sequence[Any]:
    if not hasattr(value, "__len__"):
        return [value] * count
    if len(value) != count:
        raise UsageError(f"{what} of img_conv_group must have one entry for each of {count} layers, found {len(value)}")
    return list(value)


def sequence_conv_pool(
    input: Variable,
    num_filters: int,
    filter_size: int,
    param_attr: Any = None,
    act: str | None = "sigmoid",
    pool_type: str = "max",
    bias_attr: Any = None,
) -> Variable:
    """sequence_conv, then sequence_pool; sequences [total, n]."""
    check_variable_and_dtype(input, "input", WIDE, "input")
    convolved = layers.sequence_conv(
        input, num_filters, filter_size, param_attr=param_attr, bias_attr=bias_attr, act=act
    )
    return layers.sequence_pool(convolved, pool_type)


def glu(input: Variable, dim: int = -1) -> Variable:
    """The gated linear unit (Dauphin et al. 2016): a * sigmoid(b) for the halves a and b of input along `dim`."""
    check_variable_and_dtype(input, "input", ("float16", *WIDE), "glu")
    first, second = layers.split(input, 2, dim)
    return layers.elementwise_mul(first, layers.sigmoid(second))


def scaled_dot_product_attention(
    queries: Variable, keys: Variable, values: Variable, num_heads: int = 1, dropout_rate: float = 0.0
) -> Variable:
    """softmax(q kᵀ / sqrt(d)) v (Vaswani et al. 2017) for [batch, steps, size]; several heads have separate projections."""
    for var, name in ((queries, "queries"), (keys, "keys"), (values, "values")):
        check_variable_and_dtype(var, name, WIDE, "scaled_dot_product_attention")
    _check_attention(queries, keys, values, num_heads)
    projected = [queries, keys, values]
    if num_heads > 1:
        projected = [layers.fc(var, var.shape[-1], num_flatten_dims=2) for var in projected]
    query, key, value = (_split_heads(var, num_heads) for var in projected)
    scaled = layers.scale(query, scale=(keys.shape[-1] // num_heads) ** -0.5)
    product = layers.matmul(scaled, key, transpose_y=True)
    rows = layers.reshape(product, [-1, product.shape[-1]], act="softmax")
    weights = layers.reshape(rows, list(product.shape))
    if dropout_rate:
        weights = layers.dropout(weights, dropout_rate, is_test=False)
    return _combine_heads(layers.matmul(weights, value))


def _split_heads(x: Variable, heads: int) -> Variable:
    if heads == 1:
        return x
    divided = layers.reshape(x, [*x.shape[:-1], heads, x.shape[-1] // heads])
    return layers.transpose(divided, [0, 2, 1, 3])


def _combine_heads(x: Variable) -> Variable:
    if len(x.shape) == 3:
        return x
    joined = layers.transpose(x, [0, 2, 1, 3])
    return layers.reshape(joined, [joined.shape[0], joined.shape[1], joined.shape[2] * joined.shape[3]])


def _check_attention(queries: Variable, keys: Variable, values: Variable, num_heads: int) -> None:
    kinds = [convert_dtype(var.dtype) for var in (queries, keys, values)]
    if len(set(kinds)) > 1:
        raise ArgumentTypeError(
            "The dtype of keys, values and queries should be the same. "
            f"But received queries.dtype = {kinds[0]}, keys.dtype = {kinds[1]}, values.dtype = {kinds[2]}."
        )
    ranks = [len(var.shape) for var in (queries, keys, values)]
    if ranks != [3, 3, 3]:
        raise UsageError(
            "Inputs queries, keys and values should all be 3-D tensors. But received len(queries.shape) = "
            f"{ranks[0]}, len(keys.shape) = {ranks[1]}, len(values.shape) = {ranks[2]}."
        )
    if queries.shape[-1] != keys.shape[-1]:
        raise UsageError(
            "The hidden size of queries and keys should be the same. But received queries' hidden size = "
            f"{queries.shape[-1]} and keys' hidden size = {keys.shape[-1]}."
        )
    if keys.shape[-2] != values.shape[-2]:
        raise UsageError(
            "The max sequence length in value batch and in key batch should be the same. But received max sequence length "
            f"in value batch = {values.shape[-2]}, in key batch = {keys.shape[-2]}."
        )
    for var, name in ((keys, "keys"), (values, "values")):
        if var.shape[-1] % num_heads:
            raise UsageError(
                f"The hidden size of {name} ({var.shape[-1]}) must be divisible by the number of attention heads "
                f"({num_heads})."
            )


__getattr__ = refuse_other_names("paddle.fluid.nets", defined_in(globals()))
