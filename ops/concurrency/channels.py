"""channel_create, channel_send, channel_recv, channel_close (Fluid 0.14; Paddle removed them before 1.0)."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.concurrency.goroutines import Case, Channel, goroutines, place
from fluidtool.ops.context import OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, required
from fluidtool.proto.enums import VarType
from fluidtool.tensor import LoDRankTable, LoDTensor, LoDTensorArray, SelectedRows

ELEMENTS = (VarType.BOOL, VarType.INT32, VarType.INT64, VarType.FP32, VarType.FP64)
CONTAINERS: dict[int, type] = {
    VarType.LOD_TENSOR: LoDTensor,
    VarType.SELECTED_ROWS: SelectedRows,
    VarType.LOD_RANK_TABLE: LoDRankTable,
    VarType.LOD_TENSOR_ARRAY: LoDTensorArray,
    VarType.READER: object,
    VarType.CHANNEL: Channel,
    **dict.fromkeys(ELEMENTS, LoDTensor),
}


@op(
    "channel_create",
    inputs="",
    outputs="Out",
    attrs={"data_type": required(INT), "capacity": 0},
    raw=True,
    side_effects=True,
)
def channel_create(ctx: OpContext, *, data_type: int, capacity: int) -> None:
    """Out = a new channel of LoDTensors (data_type LOD_TENSOR, or that of their elements) or other containers.

    (Fluid 0.14 channel_create_op.cc)
    """
    known = ", ".join(f"{kind.name} ({int(kind)})" for kind in map(VarType, CONTAINERS))
    if data_type not in CONTAINERS:
        raise ctx.error(f"Data type {data_type} is not in [{known}]")
    if capacity < 0:
        raise ctx.error(f"capacity must be at least 0, found {capacity}")
    holder = ctx.outputs["Out"][0]
    holder.value = Channel(holder.name, data_type, capacity)


@op("channel_send", inputs="Channel X", outputs="Status?", raw=True, side_effects=True)
def channel_send(ctx: OpContext) -> dict[str, Any]:
    """Move X into the channel, waiting until there is room or a receiver; Status is True (Fluid 0.14 channel_send_op.cc).

    X is empty afterwards. Raises OperatorError if the channel is closed, DeadlockError if nothing can receive.
    """
    channel = channel_of(ctx, ctx.value("Channel"))
    goroutines(ctx).perform(sending(ctx, 0, channel, ctx.inputs["X"][0]), place(ctx, [channel.name]))
    return {"Status": ctx.np.array([True])}


@op("channel_recv", inputs="Channel", outputs="Out Status", raw=True, side_effects=True)
def channel_recv(ctx: OpContext) -> dict[str, Any]:
    """Out = the next value of the channel, waiting for it; Status: False if it is closed and empty.

    Out is then unchanged. Raises DeadlockError if nothing can send. (Fluid 0.14 channel_recv_op.cc)
    """
    channel = channel_of(ctx, ctx.value("Channel"))
    case = Case(0, channel, None, sends=False)
    received = goroutines(ctx).perform(case, place(ctx, [channel.name]))
    status = {"Status": ctx.np.array([received])}
    return {"Out": case.value, **status} if received else status


@op("channel_close", inputs="Channel", outputs="", raw=True, side_effects=True)
def channel_close(ctx: OpContext) -> None:
    """Close the channel: its values can still be received; closing it again has no effect.

    (Fluid 0.14 channel_close_op.cc)
    """
    goroutines(ctx).close(channel_of(ctx, ctx.value("Channel")))


def channel_of(ctx: OpContext, value: Any) -> Channel:
    """The value as a channel; raises OperatorError if it is not one."""
    if not isinstance(value, Channel):
        raise ctx.error(f"expected a channel from channel_create, found {type(value).__name__}")
    channel: Channel = value
    return channel


def sending(ctx: OpContext, index: int, channel: Channel, holder: Any) -> Case:
    """The case that sends a variable; raises OperatorError if it is empty, or of another kind than the channel's."""
    value = holder.value
    if value is None or (isinstance(value, LoDTensor) and value.array is None):
        raise ctx.error(
            f"{holder.name} holds no value to send; a variable is empty once it was sent, unless with is_copy"
        )
    if not isinstance(value, CONTAINERS[channel.data_type]):
        raise ctx.error(
            "Channel type is not same as the type of the data being sent: "
            f"{channel.name} carries {VarType(channel.data_type).name}, {holder.name} is a {type(value).__name__}"
        )
    return Case(index, channel, holder, sends=True, value=value)
