"""Normalization by statistics: of batches, layers, instances, groups, neighbors, norms."""

from __future__ import annotations

import numpy as np

from fluidtool.onnx_export.graph import Graph, Value
from fluidtool.onnx_export.operation import Operation
from fluidtool.onnx_export.operators.activation import activated
from fluidtool.onnx_export.operators.convolution import back, first, per_channel
from fluidtool.onnx_export.operators.linear import matrix
from fluidtool.onnx_export.operators.narrowed import narrow
from fluidtool.onnx_export.registry import need, renders


@renders("batch_norm", "sync_batch_norm", "inplace_abn")
def batch_norm(g: Graph, op: Operation) -> dict[str, Value]:
    x, layout = op["X"], op.attr("data_layout")
    own = not (op.attr("is_test") or op.attr("use_global_stats")) and op.attr("trainable_statistics", False)
    trains = not (op.attr("is_test") or op.attr("use_global_stats"))
    need(
        not trains and not own, "it normalizes by the statistics of the batch; save the program for inference (is_test)"
    )
    given = [op["Scale"], op["Bias"], op["Mean"], op["Variance"]]
    image = first(x, layout) if x.rank > 2 else x
    epsilon = op.attr("epsilon")
    if x.dtype == np.float32 and all(value.dtype == np.float32 for value in given):
        out = g.op("BatchNormalization", image, *given, epsilon=epsilon, shape=image.shape)
    else:
        scale, bias, mean, variance = (per_channel(value.cast(x.dtype), image.rank) for value in given)
        out = (image - mean) * (scale / (variance + epsilon).apply("Sqrt")) + bias
    out = back(out, layout) if x.rank > 2 else out
    if op.attr("fuse_with_relu", False):
        out = out.apply("Relu")
    out = activated(g, out, op.attr("activation", ""), op.attr("alpha", 0.0))
    nothing = given[2] * 0  # what Paddle saves for the gradient where the batch has no part in the statistics
    return {"Y": out, "MeanOut": given[2], "VarianceOut": given[3], "SavedMean": nothing, "SavedVariance": nothing}


@renders("layer_norm")
def layer_norm(g: Graph, op: Operation) -> dict[str, Value]:
    x, scale, bias = op["X"], op.get("Scale"), op.get("Bias")
    start = op.attr("begin_norm_axis")
    out = normalized_rows(g, x, scale, bias, op.attr("epsilon"), start)
    found = {"Y": out}
    if op.wants("Mean") or op.wants("Variance"):
        flat = matrix(x, start)
        mean = flat.reduce("Mean", [1], keepdims=True)
        found |= {"Mean": mean.squeeze(1), "Variance": ((flat - mean) * (flat - mean)).reduce("Mean", [1])}
    return found


def normalized_rows(g: Graph, x: Value, scale: Value | None, bias: Value | None, epsilon: float, start: int) -> Value:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the axes from `start` on."""
    start %= x.rank
    sizes = x.sizes()[start:]
    if g.opset >= 17 and x.dtype == np.float32 and all(isinstance(n, int) for n in sizes):
        known = [int(n) for n in sizes if isinstance(n, int)]
        factor = g.constant(np.ones(known, x.dtype)) if scale is None else scale.reshape(known)
        shift = None if bias is None else bias.reshape(known)
        return g.op("LayerNormalization", x, factor, shift, axis=start, epsilon=epsilon, shape=x.shape)
    axes = list(range(start, x.rank))
    centered = x - x.reduce("Mean", axes, keepdims=True)
    out = centered / ((centered * centered).reduce("Mean", axes, keepdims=True) + epsilon).apply("Sqrt")
    out = out if scale is None else out * scale.reshape(sizes).cast(x.dtype)
    return out if bias is None else out + bias.reshape(sizes).cast(x.dtype)


@renders("instance_norm")
def instance_norm(g: Graph, op: Operation) -> dict[str, Value]:
    x, scale, bias = op["X"], op.get("Scale"), op.get("Bias")
    channels, epsilon = x.size(1), op.attr("epsilon")
    factor = g.constant(np.ones(channels, np.float32)) if scale is None else scale.flat()
    shift = g.constant(np.zeros(channels, np.float32)) if bias is None else bias.flat()
    image = x.unsqueeze(2) if x.rank == 2 else x
    out = narrow(g, "InstanceNormalization", [image, factor, shift], epsilon=epsilon)
    axes = list(range(2, image.rank))
    mean = image.reduce("Mean", axes, keepdims=True)
    variance = ((image - mean) * (image - mean)).reduce("Mean", axes)
    return {
        "Y": out.squeeze(2) if x.rank == 2 else out.shaped(x.shape),
        "SavedMean": mean.flat(),
        "SavedVariance": (variance + epsilon).apply("Sqrt").apply("Reciprocal").flat(),
    }


@renders("group_norm")
def group_norm(g: Graph, op: Operation) -> dict[str, Value]:
    x, groups = op["X"], op.attr("groups")
    layout = op.attr("data_layout")
    image = first(x, layout)
    rows = image.reshape([image.dim(0), groups, -1])
    mean = rows.reduce("Mean", [2], keepdims=True)
    centered = rows - mean
    variance = (centered * centered).reduce("Mean", [2], keepdims=True)
    out = (centered / (variance + op.attr("epsilon")).apply("Sqrt")).reshape(image.sizes())
    scale, bias = op.get("Scale"), op.get("Bias")
    out = out if scale is None else out * per_channel(scale, out.rank)
    out = out if bias is None else out + per_channel(bias, out.rank)
    return {"Y": back(out.shaped(image.shape), layout), "Mean": mean.squeeze(2), "Variance": variance.squeeze(2)}


@renders("affine_channel")
def affine_channel(g: Graph, op: Operation) -> Value:
    x, last = op["X"], op.attr("data_layout") == "NHWC"
    shape = [1] * (x.rank - 1) + [-1] if last else [1, -1, *[1] * (x.rank - 2)]
    return x * op["Scale"].reshape(shape) + op["Bias"].reshape(shape)


@renders("data_norm")
def data_norm(g: Graph, op: Operation) -> dict[str, Value]:
    need(op.attr("slot_dim") <= 0, "statistics by slot")
    size, total, squares = op["BatchSize"], op["BatchSum"], op["BatchSquareSum"]
    means, scales = total / size, (size / squares).apply("Sqrt")
    out = (op["X"] - means) * scales
    if op.attr("enable_scale_and_shift"):
        out = out * op["scale_w"] + op["bias"]
    return {"Y": out, "Means": means, "Scales": scales}


@renders("lrn")
def lrn(g: Graph, op: Operation) -> dict[str, Value]:
    x, n, layout = op["X"], op.attr("n"), op.attr("data_format")
    need(n % 2 == 1, "an even number of neighbors")
    image = first(x, layout)
    out = narrow(g, "LRN", [image], size=n, alpha=op.attr("alpha") * n, beta=op.attr("beta"), bias=op.attr("k"))
    return {"Out": back(out.shaped(image.shape), layout)}


@renders("norm")
def norm(g: Graph, op: Operation) -> dict[str, Value]:
    x, axis = op["X"], op.attr("axis")
    length = ((x * x).sum(axis, keepdims=True) + op.attr("epsilon")).apply("Sqrt")
    return {"Out": x / length, "Norm": length}


@renders("spectral_norm")
def spectral_norm(g: Graph, op: Operation) -> Value:
    weight, u, v = op["Weight"], op["U"], op["V"]
    dim, eps = op.attr("dim"), op.attr("eps")
    order = [dim, *(axis for axis in range(weight.rank) if axis != dim)]
    flat = matrix(weight.transpose(*order), 1)
    u, v = u.reshape([-1, 1]), v.reshape([-1, 1])
    for _ in range(op.attr("power_iters")):
        v = flat.swap() @ u
        v = v / ((v * v).sum().apply("Sqrt") + eps)
        u = flat @ v
        u = u / ((u * u).sum().apply("Sqrt") + eps)
    return weight / (u.swap() @ flat @ v).scalar()


@renders("skip_layernorm")
def skip_layernorm(g: Graph, op: Operation) -> Value:
    x = op["X"] + op["Y"]
    return normalized_rows(g, x, op["Scale"], op["Bias"], op.attr("epsilon"), op.attr("begin_norm_axis"))


@renders("fused_embedding_eltwise_layernorm")
def embedded_layernorm(g: Graph, op: Operation) -> Value:
    total: Value | None = None
    for ids, table in zip(op.all("Ids"), op.all("Embs"), strict=True):
        rows = table.gather((ids.squeeze(-1) if ids.rank == 3 else ids).cast(np.int64), 0)
        total = rows if total is None else total + rows
    need(total is not None, "it has no tables")
    assert total is not None
    return normalized_rows(g, total, op["Scale"], op["Bias"], op.attr("epsilon"), -1)


@renders("fused_fc_elementwise_layernorm")
def fc_layernorm(g: Graph, op: Operation) -> dict[str, Value]:
    x = matrix(op["X"], op.attr("x_num_col_dims")) @ op["W"]
    bias = op.get("Bias0")
    x = activated(g, x if bias is None else x + bias.flat(), op.attr("activation_type"))
    y = op["Y"]
    total = x.reshape(y.sizes()) + y
    return {
        "Out": normalized_rows(
            g, total, op.get("Scale"), op.get("Bias1"), op.attr("epsilon"), op.attr("begin_norm_axis")
        )
    }
