"""Operators that combine tensors of several processes (Paddle 1.8.5 operators/collective; c_reduce_* and barrier of 2.0).

There is one stream here. `use_calc_stream` only determines whether a sum must be complete immediately.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fluidtool.ir.collectives import REDUCTIONS
from fluidtool.ops.context import InferContext, OpContext, Ring
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.registry import OpInfo, op
from fluidtool.ops.schema import INT, TensorMeta, required

RING: dict[str, Any] = {"ring_id": 0, "use_calc_stream": False}
REDUCE_TYPES = ("sum", "prod", "max", "min")  # the numbers of reduce_type: those of NCCL


def _ring(ctx: OpContext, array: Any) -> Ring:
    """The ring of the operator; the order of the program's collectives has been compared then."""
    _need_dense(ctx, array)
    return ctx.runtime.communicators.ring(ctx.op, array)  # type: ignore[no-any-return]


def _need_dense(ctx: OpContext, array: Any) -> None:
    if not (hasattr(array, "shape") and hasattr(array, "dtype")):
        raise ctx.error(
            f"its input X must be a dense tensor with values, found a {type(array).__name__}; use dense gradients "
            "(is_sparse=False)"
        )


def _ranks(ctx: OpContext, ring: Ring, nranks: int) -> None:
    if nranks != ring.size:
        raise ctx.error(
            f"nranks is {nranks}, but ring {ctx.attr('ring_id')} has {ring.size} ranks; transpile for that number"
        )


def _same(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return X


def _all_reduce(reduction: str) -> OpInfo:
    def kernel(ctx: OpContext, X: Any) -> Any:
        """Out = the reduction of the X of all ranks, element by element (Paddle 1.8.5 c_allreduce_op.h).

        Sums that overlap other work are batched, and are complete after the next c_sync_comm_stream of the ring.
        """
        _need_dense(ctx, X)
        if reduction == "sum" and ctx.runtime.communicators.postpone(ctx.op, ctx.outputs["Out"][0], X):
            return X
        return _ring(ctx, X).all_reduce(X, reduction)

    return _one_to_one(f"c_allreduce_{reduction}", RING, kernel)


def _reduce(reduction: str) -> None:
    def kernel(ctx: OpContext, X: Any, *, root_id: int) -> Any:
        """Out = the reduction of the X of all ranks on rank root_id, X on the others (Paddle 2.0 c_reduce_op.h)."""
        return _ring(ctx, X).reduce(X, root_id, reduction)

    _one_to_one(f"c_reduce_{reduction}", RING | {"root_id": 0}, kernel)


def _one_to_one(type: str, attrs: dict[str, Any], kernel: Callable[..., Any]) -> OpInfo:
    info = op(type, inputs="X", outputs="Out", attrs=attrs, lod="X", side_effects=True)(kernel)
    info.infer(_same)
    return info


ALL_REDUCES = {reduction: _all_reduce(reduction) for reduction in REDUCTIONS}
for each in REDUCTIONS:
    _reduce(each)


@ALL_REDUCES["sum"].grad_maker
def _(ctx: GradMakerContext) -> list[OpDescription]:
    return [ctx.describe("c_allreduce_sum", {"X": ctx.output_grad("Out")}, {"Out": ctx.input_grad("X")})]


@op("allreduce", inputs="X", outputs="Out", attrs={"reduce_type": 0, "sync_mode": False}, lod="X", side_effects=True)
def allreduce(ctx: OpContext, X: Any, *, reduce_type: int) -> Any:
    """Out = the reduction of the X of all ranks of ring 0; 0 sum, 1 product, 2 max, 3 min (Paddle 1.8.5 allreduce_op.h)."""
    if not 0 <= reduce_type < len(REDUCE_TYPES):
        raise ctx.error(f"reduce_type must be 0 (sum), 1 (product), 2 (max) or 3 (min), found {reduce_type}")
    return _ring(ctx, X).all_reduce(X, REDUCE_TYPES[reduce_type])


@op(
    "broadcast",
    inputs="X/? x/+",
    outputs="Out/? out/+",
    attrs={"sync_mode": False, "root": 0},
    lod="X->Out x->out",
    side_effects=True,
)
def broadcast(ctx: OpContext, X: Any, x: Any, *, root: int) -> Any:
    """Out = the X of rank `root` of ring 0 (Paddle 1.8.5 broadcast_op.cc); Paddle 2.6.2 calls them x and out."""
    given = X if x is None else x
    return {"Out" if ctx.wants("Out") else "out": _ring(ctx, given).broadcast(given, root)}


@op("c_broadcast", inputs="X", outputs="Out", attrs=RING | {"root": 0}, lod="X", side_effects=True)
def c_broadcast(ctx: OpContext, X: Any, *, root: int) -> Any:
    """Out = the X of rank `root`, which has the same shape on every rank (Paddle 1.8.5 c_broadcast_op.h)."""
    return _ring(ctx, X).broadcast(X, root)


@broadcast.infer
def _(ctx: InferContext, X: TensorMeta | None, x: TensorMeta | None) -> dict[str, TensorMeta | None]:
    return {"Out" if ctx.wants("Out") else "out": X if x is None else x}


allreduce.infer(_same)
c_broadcast.infer(_same)


@op("barrier", inputs="X", outputs="Out", attrs={"ring_id": 0}, lod="X", side_effects=True)
def barrier(ctx: OpContext, X: Any) -> Any:
    """Out = X, once every rank of the ring has reached it (Paddle 2.0 barrier_op.h)."""
    _ring(ctx, X).barrier()
    return X


barrier.infer(_same)


@op("c_allgather", inputs="X", outputs="Out", attrs=RING | {"nranks": required(INT)}, side_effects=True)
def c_allgather(ctx: OpContext, X: Any, *, nranks: int) -> Any:
    """Out = the X of all ranks, concatenated along axis 0: [nranks * rows, …] (Paddle 1.8.5 c_allgather_op.h)."""
    ring = _ring(ctx, X)
    _ranks(ctx, ring, nranks)
    return ring.all_gather(X)


@c_allgather.infer
def _(ctx: InferContext, X: TensorMeta, *, nranks: int) -> TensorMeta:
    return X.with_shape((X.shape[0] * nranks if X.shape[0] > 0 else -1, *X.shape[1:]))


@c_allgather.grad_maker
def _(ctx: GradMakerContext) -> list[OpDescription]:
    return [ctx.describe("c_reducescatter", {"X": ctx.output_grad("Out")}, {"Out": ctx.input_grad("X")})]


@op("c_reducescatter", inputs="X", outputs="Out", attrs=RING | {"nranks": 1}, side_effects=True)
def c_reducescatter(ctx: OpContext, X: Any, *, nranks: int) -> Any:
    """Out = part `rank` of nranks equal parts, by rows, of the sum of X over all ranks (Paddle 1.8.5 c_reducescatter_op.h)."""
    ring = _ring(ctx, X)
    _ranks(ctx, ring, nranks)
    return ring.reduce_scatter(X)


@c_reducescatter.infer
def _(ctx: InferContext, X: TensorMeta, *, nranks: int) -> TensorMeta:
    rows = X.shape[0]
    if not (rows < 0 or rows % nranks == 0):
        raise ctx.error(f"X of {rows} rows cannot be split over {nranks} processes")
    return X.with_shape((rows // nranks if rows > 0 else rows, *X.shape[1:]))


@op("c_sync_calc_stream", inputs="X", outputs="Out", lod="X")
def c_sync_calc_stream(ctx: OpContext, X: Any) -> Any:
    """Out = X: everything runs in order, so there is nothing to wait for."""
    return X


@op("c_sync_comm_stream", inputs="X/*", outputs="Out/*", attrs={"ring_id": 0}, lod="X", side_effects=True)
def c_sync_comm_stream(ctx: OpContext, X: list[Any]) -> Any:
    """Out = X, once the pending sums of the ring are complete (Paddle 1.8.5 c_sync_comm_stream_op.cc)."""
    ctx.runtime.communicators.settle(ctx.op)
    return [ctx.value("X", index).array for index in range(len(X))]


c_sync_calc_stream.infer(_same)


@c_sync_comm_stream.infer
def _(ctx: InferContext, X: list[TensorMeta]) -> list[TensorMeta]:
    return X
