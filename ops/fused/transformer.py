"""Pieces of BERT that inference passes make: multihead_matmul, skip_layernorm and two embeddings or products with
layer normalization.
"""

from __future__ import annotations

from math import prod
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.nn.fused_activation import activate
from fluidtool.ops.nn.normalization import center
from fluidtool.ops.nn.precision import widened
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.shapes import shapes_text


def _normalized(
    ctx: OpContext, rows: Any, scale: Any, bias: Any, epsilon: float, scale_slot: str, bias_slot: str
) -> tuple[Any, Any, Any]:
    """Layer normalization of rows [n, length]; scale and bias may be None. Also the mean and variance [n, 1]."""
    length = rows.shape[1]
    for slot, value in ((scale_slot, scale), (bias_slot, bias)):
        if value is not None and value.size != length:
            raise ctx.error(f"input {slot} must hold {length} numbers, found shape {value.shape}")
    out, mean, variance = center(ctx.xp, rows, (1,))
    out *= 1 / ctx.xp.sqrt(variance + epsilon)
    if scale is not None:
        out *= widened(scale).reshape(-1)
    if bias is not None:
        out += widened(bias).reshape(-1)
    return out, mean, variance


@op(
    "multihead_matmul",
    inputs="Input W Bias BiasQK?",
    outputs="Out",
    attrs={"transpose_Q": False, "transpose_K": True, "transpose_V": False, "alpha": 1.0, "head_number": 1},
)
def multihead_matmul(
    ctx: OpContext, Input: Any, W: Any, Bias: Any, BiasQK: Any, *, alpha: float, head_number: int
) -> Any:
    """Out [N, length, heads * size]: softmax(alpha * q k^T + BiasQK) v for q, k, v = Input W + Bias, head by head.

    Input [N, length, hidden], W [hidden, 3, heads, size] or [hidden, 3 * heads * size], Bias as W without its first
    dimension, BiasQK broadcasts to [N, heads, length, length] (Paddle 2.6.2 multihead_matmul_kernel.cu).
    """
    xp = ctx.xp
    size = _head_size(ctx, Input, W, head_number)
    batch, length, hidden = Input.shape
    if Bias.size != W.size // hidden:
        raise ctx.error(f"input Bias must hold {W.size // hidden} numbers, found shape {Bias.shape}")
    projected = widened(Input) @ widened(W).reshape(hidden, -1) + widened(Bias).reshape(-1)
    query, key, value = projected.reshape(batch, length, 3, head_number, size).transpose(2, 0, 3, 1, 4)
    scores = (query * alpha) @ key.swapaxes(2, 3)
    if BiasQK is not None:
        scores = scores + widened(BiasQK)
    weights = xp.exp(scores - scores.max(axis=3, keepdims=True))
    weights /= weights.sum(axis=3, keepdims=True)
    out = (weights @ value).transpose(0, 2, 1, 3).reshape(batch, length, head_number * size)
    return out.astype(Input.dtype, copy=False)


def _head_size(ctx: OpContext | InferContext, Input: Any, W: Any, heads: int) -> int:
    given, weight = tuple(Input.shape), tuple(W.shape)
    columns = prod(weight[1:])
    fits = len(given) == 3 and heads > 0 and columns % (3 * heads) == 0 and given[2] in (weight[0], -1)
    if not fits:
        raise ctx.error(
            f"input Input (N, length, hidden) must fit input W (hidden, 3, {heads} heads, size), found {given} and {weight}"
        )
    return int(columns // (3 * heads))


@multihead_matmul.infer
def _(
    ctx: InferContext,
    Input: TensorMeta,
    W: TensorMeta,
    Bias: TensorMeta,
    BiasQK: TensorMeta | None,
    *,
    head_number: int,
) -> TensorMeta:
    return Input.with_shape((*Input.shape[:2], head_number * _head_size(ctx, Input, W, head_number)))


@op("skip_layernorm", inputs="X Y Scale Bias", outputs="Out", attrs={"epsilon": 1e-05, "begin_norm_axis": 1})
def skip_layernorm(ctx: OpContext, X: Any, Y: Any, Scale: Any, Bias: Any, *, epsilon: float) -> Any:
    """Layer normalization of X + Y over the last dimension (Paddle 2.6.2 skip_layernorm_kernel.cu)."""
    if X.shape != Y.shape:
        raise ctx.error(f"inputs X and Y must have the same shape, found {X.shape} and {Y.shape}")
    rows = (widened(X) + widened(Y)).reshape(-1, X.shape[-1])
    out, _, _ = _normalized(ctx, rows, Scale, Bias, epsilon, "Scale", "Bias")
    return out.reshape(X.shape).astype(X.dtype, copy=False)


@skip_layernorm.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta, Scale: TensorMeta, Bias: TensorMeta) -> TensorMeta:
    return X


@op(
    "fused_fc_elementwise_layernorm",
    inputs="X W Y Bias0? Scale? Bias1?",
    outputs="Out Mean? Variance?",
    attrs={"x_num_col_dims": 1, "activation_type": "", "epsilon": 1e-05, "begin_norm_axis": 1},
)
def fused_fc_elementwise_layernorm(
    ctx: OpContext,
    X: Any,
    W: Any,
    Y: Any,
    Bias0: Any,
    Scale: Any,
    Bias1: Any,
    *,
    x_num_col_dims: int,
    activation_type: str,
    epsilon: float,
    begin_norm_axis: int,
) -> dict[str, Any]:
    """Layer normalization of act(X W + Bias0) + Y from begin_norm_axis on, with Scale and Bias1.

    X is a matrix [product of the first x_num_col_dims sizes, n]; Y has the shape of Out; Mean and Variance are [rows]
    (Paddle 2.6.2 fused_fc_elementwise_layernorm_op.cu).
    """
    depth = prod(X.shape[x_num_col_dims:])
    if W.ndim != 2 or W.shape[0] != depth:
        raise ctx.error(f"input W must have {depth} rows, found shape {W.shape}")
    product = widened(X).reshape(-1, depth) @ widened(W)
    if not (Y.size == product.size and 0 < begin_norm_axis < Y.ndim):
        raise ctx.error(
            f"input Y must hold {product.size} numbers and more than {begin_norm_axis} dimensions (begin_norm_axis), "
            f"found shape {Y.shape}"
        )
    if Bias0 is not None:
        product += widened(Bias0).reshape(-1)
    rows = prod(Y.shape[:begin_norm_axis])
    summed = activate(ctx, product, activation_type).reshape(rows, -1) + widened(Y).reshape(rows, -1)
    out, mean, variance = _normalized(ctx, summed, Scale, Bias1, epsilon, "Scale", "Bias1")
    return {
        "Out": out.reshape(Y.shape).astype(X.dtype, copy=False),
        "Mean": mean[:, 0],
        "Variance": variance[:, 0],
    }


@fused_fc_elementwise_layernorm.infer
def _(
    ctx: InferContext,
    X: TensorMeta,
    W: TensorMeta,
    Y: TensorMeta,
    Bias0: TensorMeta | None,
    Scale: TensorMeta | None,
    Bias1: TensorMeta | None,
    *,
    begin_norm_axis: int,
) -> dict[str, TensorMeta]:
    left = Y.shape[:begin_norm_axis]
    row = TensorMeta((-1 if -1 in left else prod(left),), Y.dtype)
    return {"Out": Y, "Mean": row, "Variance": row}


@op(
    "fused_embedding_eltwise_layernorm",
    inputs="Ids* Embs* Bias Scale",
    outputs="Out",
    attrs={"epsilon": 1e-05},
)
def fused_embedding_eltwise_layernorm(
    ctx: OpContext, Ids: list[Any], Embs: list[Any], Bias: Any, Scale: Any, *, epsilon: float
) -> Any:
    """Out [N, length, hidden]: layer normalization of the sum of the rows Ids[i] [N, length, 1] of every Embs[i].

    (Paddle 2.6.2 fused_embedding_eltwise_layernorm_kernel.cu)
    """
    _check_tables(ctx, Ids, Embs)
    summed: Any = 0
    for index, (ids, table) in enumerate(zip(Ids, Embs, strict=True)):
        if ids.size and not bool(((ids >= 0) & (ids < len(table))).all()):
            raise ctx.error(
                f"input Ids[{index}] must lie between 0 and {len(table) - 1}, found {int(ids.min())} to {int(ids.max())}"
            )
        summed = summed + widened(table)[ids.reshape(ids.shape[:2])]
    rows = summed.reshape(-1, summed.shape[-1])
    out, _, _ = _normalized(ctx, rows, Scale, Bias, epsilon, "Scale", "Bias")
    return out.reshape(summed.shape).astype(Embs[0].dtype, copy=False)


def _check_tables(ctx: OpContext | InferContext, Ids: list[Any], Embs: list[Any]) -> None:
    if not len(Ids) == len(Embs) > 0:
        raise ctx.error(f"inputs Ids and Embs must have equally many variables, found {len(Ids)} and {len(Embs)}")
    shapes = [tuple(ids.shape) for ids in Ids]
    fits = all(len(shape) in (2, 3) and shape[:2] == shapes[0][:2] and shape[2:] in ((), (1,)) for shape in shapes)
    if not fits:
        raise ctx.error(f"every input Ids must be (N, length, 1), found shapes {shapes_text(shapes)}")
    widths = {table.shape[-1] for table in Embs}
    if len(widths) != 1:
        raise ctx.error(f"the tables of input Embs must have rows of one length, found {sorted(widths)}")


@fused_embedding_eltwise_layernorm.infer
def _(
    ctx: InferContext, Ids: list[TensorMeta], Embs: list[TensorMeta], Bias: TensorMeta, Scale: TensorMeta
) -> TensorMeta:
    _check_tables(ctx, Ids, Embs)
    return TensorMeta((*Ids[0].shape[:2], Embs[0].shape[1]), Embs[0].dtype)
