"""Fused sequence operators: fusion_seqconv_eltadd_relu, fusion_seqpool_concat and fusion_seqpool_cvm_concat."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.fused.scratch import with_empty_scratch
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, TensorMeta, required
from fluidtool.ops.sequence.picking import row_sequences, single_level
from fluidtool.ops.sequence.segments import segment_sum
from fluidtool.shapes import shape_text

POOL_TYPES = ("SUM", "AVERAGE", "SQRT")


@op(
    "fusion_seqconv_eltadd_relu",
    inputs="X Filter Bias",
    outputs="Out ColMat~",
    attrs={"contextLength": required(INT), "contextStart": 0, "contextStride": 1},
    lod="X->Out",
)
def fusion_seqconv_eltadd_relu(
    ctx: OpContext, X: Any, Filter: Any, Bias: Any, *, contextLength: int, contextStart: int
) -> dict[str, Any]:
    """Out [rows, n] = relu(context(X) Filter + Bias) for X [rows, m] with LoD, Filter [contextLength * m, n].

    The context of a row is the contextLength rows from contextStart rows further on, zeros outside the sequence (Paddle
    1.8.5 fusion_seqconv_eltadd_relu_op.cc, which computes something else for contextStart above 0; here that means what
    it does in sequence_conv).
    """
    xp, np = ctx.xp, ctx.np
    _check_context(ctx, X, Filter)
    if Bias.size != Filter.shape[1]:
        raise ctx.error(f"input Bias must hold {Filter.shape[1]} numbers, found shape {Bias.shape}")
    offsets = single_level(ctx, "X", len(X))
    bounds, sequences = np.asarray(offsets), row_sequences(ctx, offsets)
    out, width = xp.zeros((len(X), Filter.shape[1]), dtype=X.dtype), X.shape[1]
    for tap in range(contextLength):
        rows = np.arange(len(X)) + contextStart + tap
        inside = (rows >= bounds[:-1][sequences]) & (rows < bounds[1:][sequences])
        source = X[ctx.array(np.where(inside, rows, 0))] * ctx.array(inside[:, None].astype(X.dtype))
        out += source @ Filter[tap * width : (tap + 1) * width]
    out += Bias.reshape(-1)
    return with_empty_scratch(ctx, {"Out": xp.maximum(out, 0)})


def _check_context(ctx: OpContext | InferContext, X: Any, Filter: Any) -> None:
    length, start, stride = ctx.attr("contextLength"), ctx.attr("contextStart"), ctx.attr("contextStride")
    x, weight = tuple(X.shape), tuple(Filter.shape)
    if stride != 1:
        raise ctx.error(f"attribute contextStride must be 1, found {stride}")
    if not (length > 0 and length + start > 0):
        raise ctx.error(
            f"attributes contextLength and contextStart + contextLength must be above 0, found {length} and {start}"
        )
    if not (len(x) == 2 and len(weight) == 2 and (x[1] < 0 or weight[0] == length * x[1])):
        raise ctx.error(f"input Filter must be ({length} * columns of X, n), found shape {weight} for X of shape {x}")


@fusion_seqconv_eltadd_relu.infer
def _(ctx: InferContext, X: TensorMeta, Filter: TensorMeta, Bias: TensorMeta) -> dict[str, TensorMeta]:
    _check_context(ctx, X, Filter)
    rows = X.shape[0]
    return {"Out": X.with_shape((rows, Filter.shape[1])), "ColMat": TensorMeta((rows, Filter.shape[0]), X.dtype)}


def _pooled(ctx: OpContext, X: list[Any], pooltype: str) -> list[Any]:
    """[sequences, columns] of every input; all must hold as many sequences."""
    if pooltype not in POOL_TYPES:
        raise ctx.error(f"attribute pooltype must be one of {', '.join(POOL_TYPES)}, found {pooltype!r}")
    pooled = []
    for index, rows in enumerate(X):
        if rows.ndim != 2:
            raise ctx.error(f"input X[{index}] must be a matrix, found shape {rows.shape}")
        offsets = single_level(ctx, "X", len(rows), index)
        sums = segment_sum(ctx, rows, offsets)
        lengths = ctx.np.maximum(ctx.np.diff(offsets), 1).astype(rows.dtype)
        if pooltype != "SUM":
            divisors = lengths if pooltype == "AVERAGE" else ctx.np.sqrt(lengths)
            sums /= ctx.array(divisors)[:, None]
        pooled.append(sums)
        if len(sums) != len(pooled[0]):
            raise ctx.error(
                f"input X[{index}] must have as many sequences as X[0] ({len(pooled[0])}), found {len(sums)}"
            )
    return pooled


def _joined(ctx: OpContext, parts: list[Any]) -> Any:
    ctx.set_lod("Out", [list(range(len(parts[0]) + 1))])
    return ctx.xp.concatenate(parts, axis=1)


def _check_inputs(ctx: OpContext | InferContext, count: int) -> None:
    if count <= 0:
        raise ctx.error("input X must have at least one variable, found none")
    axis = ctx.attr("axis")
    if axis != 1:
        raise ctx.error(f"attribute axis must be 1, found {axis}")


@op("fusion_seqpool_concat", inputs="X*", outputs="Out", attrs={"pooltype": "SUM", "axis": 1})
def fusion_seqpool_concat(ctx: OpContext, X: list[Any], *, pooltype: str) -> Any:
    """Out [sequences, sum of columns]: the pooled sequences of every X [rows, columns] side by side.

    pooltype SUM, AVERAGE or SQRT (sum / sqrt(length)) (Paddle 1.8.5 fusion_seqpool_concat_op.cc).
    """
    _check_inputs(ctx, len(X))
    return _joined(ctx, _pooled(ctx, X, pooltype))


@fusion_seqpool_concat.infer
def _(ctx: InferContext, X: list[TensorMeta]) -> TensorMeta:
    _check_inputs(ctx, len(X))
    return _joined_meta(X).with_lod_level(X[0].lod_level)


def _joined_meta(X: list[TensorMeta]) -> TensorMeta:
    widths = [meta.shape[1] for meta in X]
    return TensorMeta((-1, -1 if -1 in widths else sum(widths)), X[0].dtype)


@op("fusion_seqpool_cvm_concat", inputs="X* CVM", outputs="Out", attrs={"pooltype": "SUM", "use_cvm": True, "axis": 1})
def fusion_seqpool_cvm_concat(ctx: OpContext, X: list[Any], CVM: Any, *, pooltype: str, use_cvm: bool) -> Any:
    """fusion_seqpool_concat, with cvm applied to every pooled part: columns 0 and 1 become log(show + 1) and
    log(click + 1) - log(show + 1) (Paddle 1.8.5 fusion_seqpool_cvm_concat_op.cc).
    """
    _check_cvm(ctx, X)
    parts = []
    for part in _pooled(ctx, X, pooltype):
        show = ctx.xp.log(part[:, :1] + 1)
        parts.append(ctx.xp.concatenate([show, ctx.xp.log(part[:, 1:2] + 1) - show, part[:, 2:]], axis=1))
    return _joined(ctx, parts)


def _check_cvm(ctx: OpContext | InferContext, X: list[Any]) -> None:
    _check_inputs(ctx, len(X))
    if not ctx.attr("use_cvm"):
        raise ctx.error("attribute use_cvm must be True, found False")
    for index, rows in enumerate(X):
        shape = tuple(rows.shape)
        if not (len(shape) == 2 and (shape[1] >= 2 or shape[1] < 0)):
            raise ctx.error(
                f"input X[{index}] must have at least the two columns show and click, found shape {shape_text(shape)}"
            )


@fusion_seqpool_cvm_concat.infer
def _(ctx: InferContext, X: list[TensorMeta], CVM: TensorMeta) -> TensorMeta:
    _check_cvm(ctx, X)
    return _joined_meta(X)
