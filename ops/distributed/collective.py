"""Operators that combine tensors of several processes."""

from __future__ import annotations

from typing import Any, NoReturn

from fluidtool.errors import UnsupportedOperatorError
from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.registry import OpInfo, op
from fluidtool.ops.schema import INT, STRING, STRINGS, TensorMeta, ints, required, strings

_RING: dict[str, Any] = {"ring_id": 0, "use_calc_stream": False}


def _needs_processes(ctx: OpContext) -> NoReturn:
    raise UnsupportedOperatorError(
        f"operator {ctx.op.type} works together with other processes, which this version does not do; run the program from "
        "before it was transpiled for distribution"
    )


def _same(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return X


def _one_to_one(type: str, attrs: dict[str, Any]) -> OpInfo:
    """An operator whose output is like its input, and which needs the other processes."""

    def body(ctx: OpContext, X: Any) -> NoReturn:
        """Needs the other processes."""
        _needs_processes(ctx)

    info = op(type, inputs="X", outputs="Out", attrs=attrs, side_effects=True)(body)
    info.infer(_same)
    return info


c_allreduce_sum = _one_to_one("c_allreduce_sum", _RING)
c_allreduce_max = _one_to_one("c_allreduce_max", _RING)
c_allreduce_min = _one_to_one("c_allreduce_min", _RING)
c_allreduce_prod = _one_to_one("c_allreduce_prod", _RING)
c_broadcast = _one_to_one("c_broadcast", _RING | {"root": 0})
allreduce = _one_to_one("allreduce", {"reduce_type": 0, "sync_mode": False})
broadcast = _one_to_one("broadcast", {"sync_mode": False, "root": 0})


@c_allreduce_sum.grad_maker
def _(ctx: GradMakerContext) -> list[OpDescription]:
    return [ctx.describe("c_allreduce_sum", {"X": ctx.output_grad("Out")}, {"Out": ctx.input_grad("X")})]


@op("c_allgather", inputs="X", outputs="Out", attrs=_RING | {"nranks": required(INT)}, side_effects=True)
def c_allgather(ctx: OpContext, X: Any) -> NoReturn:
    """Out = the X of all processes, one after the other."""
    _needs_processes(ctx)


@c_allgather.infer
def _(ctx: InferContext, X: TensorMeta, *, nranks: int) -> TensorMeta:
    return X.with_shape((X.shape[0] * nranks if X.shape[0] > 0 else -1, *X.shape[1:]))


@c_allgather.grad_maker
def _(ctx: GradMakerContext) -> list[OpDescription]:
    return [ctx.describe("c_reducescatter", {"X": ctx.output_grad("Out")}, {"Out": ctx.input_grad("X")})]


@op("c_reducescatter", inputs="X", outputs="Out", attrs=_RING | {"nranks": 1}, side_effects=True)
def c_reducescatter(ctx: OpContext, X: Any) -> NoReturn:
    """Out = this process's part of the sum of X over all processes."""
    _needs_processes(ctx)


@c_reducescatter.infer
def _(ctx: InferContext, X: TensorMeta, *, nranks: int) -> TensorMeta:
    rows = X.shape[0]
    ctx.require(rows < 0 or rows % nranks == 0, f"X of {rows} rows cannot be split over {nranks} processes")
    return X.with_shape((rows // nranks if rows > 0 else rows, *X.shape[1:]))


@op("c_sync_calc_stream", inputs="X", outputs="Out", lod="X")
def c_sync_calc_stream(ctx: OpContext, X: Any) -> Any:
    """Out = X: work here is done in order, there is nothing to wait for."""
    return X


@op("c_sync_comm_stream", inputs="X", outputs="Out", attrs={"ring_id": 0}, lod="X")
def c_sync_comm_stream(ctx: OpContext, X: Any) -> Any:
    """Out = X: work here is done in order, there is nothing to wait for."""
    return X


c_sync_calc_stream.infer(_same)
c_sync_comm_stream.infer(_same)


@op(
    "c_comm_init",
    inputs="X",
    outputs="",
    attrs={"nranks": required(INT), "rank": required(INT), "ring_id": 0},
    side_effects=True,
)
def c_comm_init(ctx: OpContext, X: Any) -> NoReturn:
    """Join the ring of processes that the identifier X names."""
    _needs_processes(ctx)


@op("c_comm_init_all", inputs="", outputs="", attrs={"devices": ints(), "ring_id": 0}, side_effects=True)
def c_comm_init_all(ctx: OpContext) -> NoReturn:
    """Make a ring of this process's GPUs."""
    _needs_processes(ctx)


@op(
    "c_gen_nccl_id",
    inputs="",
    outputs="Out",
    attrs={"endpoint": required(STRING), "other_endpoints": required(STRINGS), "rank": required(INT)},
    side_effects=True,
)
def c_gen_nccl_id(ctx: OpContext) -> NoReturn:
    """Agree with the other processes on the identifier of a ring."""
    _needs_processes(ctx)


@op(
    "gen_nccl_id",
    inputs="",
    outputs="NCCLID",
    attrs={
        "trainers": strings(),
        "trainer_id": required(INT),
        "nccl_comm_num": 1,
        "use_hierarchical_allreduce": False,
        "hierarchical_allreduce_inter_nranks": 1,
    },
    side_effects=True,
)
def gen_nccl_id(ctx: OpContext) -> NoReturn:
    """Agree with the other trainers on the identifiers of their rings."""
    _needs_processes(ctx)
