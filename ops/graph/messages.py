"""Messages along the edges of a graph: graph_send_recv, graph_send_ue_recv, graph_send_uv of Paddle 2.x."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.graph.segments import check_reduction, checked_targets, gathered_gradient, reduced
from fluidtool.ops.math.matrix_common import broadcast_sizes
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta, longs
from fluidtool.ops.tensor.arguments import number
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text

SENDING: dict[str, Any] = {"reduce_op": "SUM", "out_size": longs(0)}


@op("graph_send_recv", inputs="X Src_index Dst_index Out_size?", outputs="Out Dst_count?~", attrs=SENDING)
def graph_send_recv(
    ctx: OpContext, X: Any, Src_index: Any, Dst_index: Any, Out_size: Any, *, reduce_op: str, out_size: list[int]
) -> dict[str, Any]:
    """The rows X[Src_index], reduced by their numbers in Dst_index (Paddle 2.6.2 send_u_recv_kernel.cc).

    Out has as many rows as X, or `Out_size` or `out_size` above 0; rows that nothing reaches are 0. Dst_count, int32:
    how many reach each.
    """
    check_reduction(ctx, "reduce_op", reduce_op)
    source, target, height = _edges(ctx, X, Src_index, Dst_index, Out_size, out_size)
    return _received(ctx, X[source], target, height, reduce_op)


@graph_send_recv.infer
def _(
    ctx: InferContext,
    X: TensorMeta,
    Src_index: TensorMeta,
    Dst_index: TensorMeta,
    Out_size: TensorMeta | None,
    *,
    reduce_op: str,
    out_size: list[int],
) -> dict[str, TensorMeta]:
    check_reduction(ctx, "reduce_op", reduce_op)
    return _received_meta(X, X.shape[1:], Out_size, out_size)


@graph_send_recv.grad(inputs="X Src_index Dst_index Out Out@GRAD", outputs="X@GRAD")
def graph_send_recv_grad(
    ctx: OpContext, X: Any, Src_index: Any, Dst_index: Any, Out: Any, Out_grad: Any, *, reduce_op: str
) -> Any:
    """What each target's gradient gives the rows that were sent to it, summed by sender."""
    source, target = Src_index.reshape(-1), Dst_index.reshape(-1)
    grad = gathered_gradient(ctx, X[source], target, Out, Out_grad, reduce_op)
    return reduced(ctx, grad, source, len(X), "SUM")[0]


@op(
    "graph_send_ue_recv",
    inputs="X Y Src_index Dst_index Out_size?",
    outputs="Out Dst_count?~",
    attrs={"message_op": "ADD", **SENDING},
)
def graph_send_ue_recv(
    ctx: OpContext,
    X: Any,
    Y: Any,
    Src_index: Any,
    Dst_index: Any,
    Out_size: Any,
    *,
    message_op: str,
    reduce_op: str,
    out_size: list[int],
) -> dict[str, Any]:
    """As graph_send_recv, of X[Src_index] plus or times the row of Y for each edge (Paddle 2.6.2 send_ue_recv_kernel.cc)."""
    check_reduction(ctx, "reduce_op", reduce_op)
    source, target, height = _edges(ctx, X, Src_index, Dst_index, Out_size, out_size)
    if len(Y) != source.size:
        raise ctx.error(f"Y must have a row for each of {source.size} edges, found shape {shape_text(Y.shape)}")
    return _received(ctx, _message(ctx, X[source], Y, message_op), target, height, reduce_op)


@graph_send_ue_recv.infer
def _(
    ctx: InferContext,
    X: TensorMeta,
    Y: TensorMeta,
    Src_index: TensorMeta,
    Dst_index: TensorMeta,
    Out_size: TensorMeta | None,
    *,
    reduce_op: str,
    out_size: list[int],
) -> dict[str, TensorMeta]:
    check_reduction(ctx, "reduce_op", reduce_op)
    return _received_meta(X, _row(ctx, X.shape[1:], Y.shape[1:]), Out_size, out_size)


@op("graph_send_uv", inputs="x y src_index dst_index", outputs="out", attrs={"message_op": "ADD"})
def graph_send_uv(ctx: OpContext, x: Any, y: Any, src_index: Any, dst_index: Any, *, message_op: str) -> Any:
    """For each edge x[src_index] plus or times y[dst_index] (Paddle 2.6.2 send_uv_kernel.cc)."""
    source = checked_targets(ctx, "src_index", src_index, len(x))
    target = checked_targets(ctx, "dst_index", dst_index, len(y))
    _check_pairs(ctx, source, target)
    return _message(ctx, x[source], y[target], message_op)


@graph_send_uv.infer
def _(ctx: InferContext, x: TensorMeta, y: TensorMeta, src_index: TensorMeta, dst_index: TensorMeta) -> TensorMeta:
    return x.with_shape((src_index.shape[0] if src_index.rank else 1, *_row(ctx, x.shape[1:], y.shape[1:])))


def _edges(
    ctx: OpContext, X: Any, Src_index: Any, Dst_index: Any, Out_size: Any, out_size: list[int]
) -> tuple[Any, Any, int]:
    given = number(ctx, Out_size, "Out_size") if Out_size is not None else (out_size or [0])[0]
    height = given if given > 0 else len(X)
    source = checked_targets(ctx, "Src_index", Src_index, len(X))
    target = checked_targets(ctx, "Dst_index", Dst_index, height)
    _check_pairs(ctx, source, target)
    return source, target, height


def _check_pairs(ctx: OpContext, source: Any, target: Any) -> None:
    if source.size != target.size:
        raise ctx.error(f"an edge needs a source and a target, found {source.size} sources and {target.size} targets")


def _message(ctx: OpContext, sent: Any, edge: Any, message_op: str) -> Any:
    if message_op not in ("ADD", "MUL"):
        raise ctx.error(f"message_op must be 'ADD' or 'MUL', found {message_op!r}")
    _row(ctx, sent.shape[1:], edge.shape[1:])
    rank = max(sent.ndim, edge.ndim)
    left, right = (part.reshape(len(part), *(1,) * (rank - part.ndim), *part.shape[1:]) for part in (sent, edge))
    return left + right if message_op == "ADD" else left * right


def _row(ctx: OpContext | InferContext, x: tuple[int, ...], y: tuple[int, ...]) -> tuple[int, ...]:
    row = broadcast_sizes(x, y)
    if row is None:
        raise ctx.error(f"rows of shapes {shape_text(x)} and {shape_text(y)} cannot be combined")
    return row


def _received(ctx: OpContext, messages: Any, target: Any, height: int, reduce_op: str) -> dict[str, Any]:
    out, counts = reduced(ctx, messages, target, height, reduce_op)
    return {"Out": out, "Dst_count": counts.astype("int32")}


def _received_meta(
    X: TensorMeta, row: tuple[int, ...], Out_size: TensorMeta | None, out_size: list[int]
) -> dict[str, TensorMeta]:
    given = out_size[0] if out_size else 0
    height = -1 if Out_size is not None else given if given > 0 else X.shape[0]
    out = X.with_shape((height, *row)).with_lod_level(0)
    count = out.with_shape((height,)).with_dtype(VarType.INT32)
    return {"Out": out, "Dst_count": count}
