"""Operators that connect trainers to parameter servers: send, recv and the barriers of a round."""

from __future__ import annotations

from typing import Any

from fluidtool.ir import Operator
from fluidtool.ops.context import OpContext, RemoteVariable
from fluidtool.ops.registry import op
from fluidtool.ops.schema import longs, strings
from fluidtool.ops.traits import Traits
from fluidtool.tensor import LoDTensor, SelectedRows

ENDPOINT = "127.0.0.1:6164"


def one_each(ctx: OpContext, what: str, names: list[str], endpoints: list[str]) -> list[tuple[str, str]]:
    """Each name with its endpoint; fails unless their numbers are equal."""
    if len(names) != len(endpoints):
        raise ctx.error(
            f"it names {len(names)} {what} ({', '.join(names[:4])}), but attribute epmap has {len(endpoints)} endpoints; "
            "pass one for each"
        )
    return list(zip(names, endpoints, strict=True))


def has_memory(value: Any) -> bool:
    """Whether there is anything to send: Paddle leaves out what is not initialized, and SelectedRows without rows."""
    if isinstance(value, SelectedRows):
        return len(value.row_ids) > 0 and value.tensor.is_initialized()
    return isinstance(value, LoDTensor) and value.is_initialized()


def stored(ctx: OpContext, value: Any) -> Any:
    """A value that came from a server, at the place of this run."""
    if isinstance(value, SelectedRows):
        return SelectedRows(value.row_ids, value.table_height, ctx.array(value.value))
    return LoDTensor(ctx.array(value.array), value.offsets)


@op(
    "send",
    inputs="X*",
    outputs="Out*",
    attrs={
        "trainer_id": 0,
        "epmap": strings(ENDPOINT),
        "sections": longs(),
        "send_varnames": strings(),
        "num": 0,
        "merge_add": False,
        "use_send_handler": True,
    },
    side_effects=True,
    traits=Traits(transpiled=True, memory="named"),
)
def send(
    ctx: OpContext,
    X: list[Any],
    *,
    epmap: list[str],
    sections: list[int],
    send_varnames: list[str],
    use_send_handler: bool,
) -> None:
    """Send every X[i] to epmap[i], under its own name; X that hold no value are left out.

    With send_varnames X goes to the communicator of the process; without one it is cut into `sections` rows and sent under
    these names at once, or, with use_send_handler=False, sent to every endpoint as a count of steps (Paddle 1.8.5
    send_op.cc, parameter_send.cc).
    """
    holders = ctx.inputs.get("X", ())
    goes_nowhere = epmap == [ENDPOINT] and not sections and use_send_handler  # the defaults: a program in geo_sgd_mode
    if goes_nowhere and (send_varnames or not holders):
        _hand_over_ids(ctx, send_varnames, [holder.value for holder in holders])
    elif not send_varnames:
        places = one_each(ctx, "variables", [holder.name for holder in holders], epmap)
        ctx.runtime.remote.send(ctx.op, _with_memory(places, [holder.value for holder in holders]))
    else:
        if len(holders) != 1:
            raise ctx.error(f"with send_varnames it takes one variable X, found {len(holders)}")
        name, value = holders[0].name, holders[0].value
        if not has_memory(value) or ctx.runtime.remote.hand_over([name], [value]):
            return
        shards = cut(ctx, value, send_varnames, sections)
        if use_send_handler:
            places = one_each(ctx, "shards", send_varnames, epmap)
            ctx.runtime.remote.send(ctx.op, _with_memory(places, [shard for _, shard in shards]))
        else:
            everywhere = [(RemoteVariable(endpoint, name), shard) for name, shard in shards for endpoint in epmap]
            ctx.runtime.remote.notify(ctx.op, everywhere)


def _with_memory(places: list[tuple[str, str]], values: list[Any]) -> list[tuple[RemoteVariable, Any]]:
    pairs = zip(places, values, strict=True)
    return [(RemoteVariable(endpoint, name), value) for (name, endpoint), value in pairs if has_memory(value)]


def _hand_over_ids(ctx: OpContext, tables: list[str], ids: list[Any]) -> None:
    """The send of a program in geo_sgd_mode: says which rows of which tables a step has changed."""
    handed = ctx.runtime.remote.hand_over(tables, ids)
    if not handed and (not ids or any(has_memory(value) for value in ids)):
        raise ctx.error(
            "its program trains in geo_sgd_mode, but no communicator is running; start a fluid.communicator.Communicator"
        )


def cut(ctx: OpContext, value: Any, names: list[str], sections: list[int]) -> list[tuple[str, Any]]:
    """The shards of a value by name: `sections` rows each; rows of SelectedRows are numbered from the shard's start."""
    if len(names) == 1 and not isinstance(value, SelectedRows):
        return [(names[0], value)]
    if len(names) != len(sections):
        raise ctx.error(f"it has {len(names)} send_varnames, but {len(sections)} sections; pass one for each")
    shards, start = [], 0
    for name, length in zip(names, sections, strict=True):
        end = start + length
        if isinstance(value, SelectedRows):
            here = ctx.np.flatnonzero((value.row_ids >= start) & (value.row_ids < end))
            shard: Any = SelectedRows(value.row_ids[here] - start, length, value.value[ctx.array(here)])
        else:
            shard = LoDTensor(value.array[start:end])
        shards.append((name, shard))
        start = end
    rows = value.table_height if isinstance(value, SelectedRows) else len(value.array)
    if start != rows:
        raise ctx.error(f"the sections {list(sections)} cover {start} rows, but X has {rows}")
    return shards


@op(
    "recv",
    inputs="X*",
    outputs="Out*",
    attrs={
        "epmap": strings(),
        "trainer_id": 0,
        "with_barrier": True,
        "varnames": strings(),
        "recv_varnames": strings(),
        "do_not_run": 0,
    },
    side_effects=True,
    traits=Traits(transpiled=True, memory="named"),
)
def recv(
    ctx: OpContext, X: list[Any], *, with_barrier: bool, recv_varnames: list[str], do_not_run: int
) -> list[Any] | None:
    """Out[i] = the variable that epmap[i] keeps under the name varnames[i], or that of Out[i].

    with_barrier: as it is when the round is done. With recv_varnames Out is one variable, joined from these rows.
    Out takes the LoD, shape and data type that come (Paddle 1.8.5 recv_op.cc, parameter_recv.cc).
    """
    if do_not_run:
        return None
    if not follows_recv(ctx):
        announce(ctx)
    values = ctx.runtime.remote.receive(ctx.op, wanted(ctx, ctx.op), with_barrier)
    if not recv_varnames:
        return [stored(ctx, value) for value in values]
    if not all(isinstance(value, LoDTensor) for value in values):
        raise ctx.error(
            f"shards of a variable must be LoDTensors to be joined, found {[type(value).__name__ for value in values]}"
        )
    return [LoDTensor(ctx.array(ctx.np.concatenate([value.array for value in values])))]


def wanted(ctx: OpContext, op: Operator) -> list[RemoteVariable]:
    """What a recv asks for."""
    shards = list(op.get_attr("recv_varnames", ()) or ())
    outputs = shards or op.output("Out")
    names = shards or list(op.get_attr("varnames", ()) or ()) or outputs
    if len(names) != len(outputs):
        raise ctx.error(f"it has {len(outputs)} outputs, but {len(names)} varnames; pass one for each")
    places = one_each(ctx, "variables", names, list(op.get_attr("epmap", ()) or ()))
    return [RemoteVariable(endpoint, name, out) for (name, endpoint), out in zip(places, outputs, strict=True)]


def announce(ctx: OpContext) -> None:
    """Request what this recv, or those that follow this operator, need: one wait for all instead of one each."""
    ops = ctx.op.block.ops
    following: list[RemoteVariable] = []
    for after in ops[_place(ctx) + (ctx.op.type != "recv") :]:
        if after.type != "recv":
            break
        if after.get_attr("with_barrier", True) and not after.get_attr("do_not_run", 0):
            following += wanted(ctx, after)
    if len(following) > 1:
        ctx.runtime.remote.announce(ctx.op, following)


def follows_recv(ctx: OpContext) -> bool:
    """Whether the previous operator has already requested it."""
    place = _place(ctx)
    return place > 0 and ctx.op.block.ops[place - 1].type in ("recv", "send_barrier")


def _place(ctx: OpContext) -> int:
    ops = ctx.op.block.ops
    return next((index for index in range(len(ops) - 1, -1, -1) if ops[index] is ctx.op), len(ops))


@op(
    "send_barrier",
    inputs="X*",
    outputs="Out*",
    attrs={"trainer_id": 0, "endpoints": strings(ENDPOINT), "half_async": False},
    side_effects=True,
    traits=Traits(transpiled=True),
)
def send_barrier(ctx: OpContext, X: list[Any], *, endpoints: list[str], half_async: bool) -> None:
    """Tell the endpoints that this trainer has sent everything (Paddle 1.8.5 send_barrier_op.cc).

    half_async: servers do not wait; the communicator of the process is notified.
    """
    if half_async:
        ctx.runtime.remote.hand_over_barrier()
    else:
        ctx.runtime.remote.send_barrier(ctx.op, endpoints)
        announce(ctx)


@op(
    "fetch_barrier",
    inputs="X*?",
    outputs="Out*",
    attrs={"trainer_id": 0, "endpoints": strings(ENDPOINT)},
    side_effects=True,
    traits=Traits(transpiled=True),
)
def fetch_barrier(ctx: OpContext, X: list[Any], *, endpoints: list[str]) -> None:
    """Tell the endpoints that this trainer has fetched everything, which ends its step (Paddle 1.8.5 fetch_barrier_op.cc)."""
    ctx.runtime.remote.fetch_barrier(ctx.op, endpoints)
