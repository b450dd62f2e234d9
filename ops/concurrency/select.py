"""select: the first of several sends and receives that can happen (Fluid 0.14; Paddle removed it before 1.0)."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.concurrency.channels import channel_of, sending
from fluidtool.ops.concurrency.goroutines import Case, goroutines, place
from fluidtool.ops.context import OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import block, strings
from fluidtool.tensor import LoDTensor

DEFAULT, SEND, RECEIVE = 0, 1, 2


@op(
    "select",
    inputs="X* case_to_execute",
    outputs="Out*",
    attrs={"sub_block": block(), "cases": strings()},
    raw=True,
    side_effects=True,
)
def select(ctx: OpContext, *, sub_block: int, cases: list[str]) -> None:
    """Wait until a case is possible, complete it, and run `sub_block` with its index in case_to_execute.

    cases: "index,action,channel,value" each; action 0 is the default (no channel, no value), 1 sends, 2 receives.
    (Fluid 0.14 select_op.cc)
    """
    parsed = [_parse(ctx, text) for text in cases]
    defaults = [index for index, action, _, _ in parsed if action == DEFAULT]
    if len(defaults) >= 2:
        raise ctx.error("Select can only contain one default case.")
    waiting = [_case(ctx, *case) for case in parsed if case[1] != DEFAULT]
    names = [case.channel.name for case in waiting]
    chosen = goroutines(ctx).select(waiting, bool(defaults), place(ctx, names))
    if chosen is not None and not chosen.sends:
        _store(chosen.holder, chosen.value)
    index = defaults[0] if chosen is None else chosen.index
    ctx.inputs["case_to_execute"][0].value = LoDTensor(ctx.array([index], ctx.np.int32))
    scope = ctx.scope.new_scope()
    try:
        ctx.run_block(sub_block, scope)
    finally:
        ctx.scope.drop_kid(scope)


def _parse(ctx: OpContext, text: str) -> tuple[int, int, str, str]:
    fields = [part for part in text.split(",") if part]
    for number, what in enumerate(("index", "type")):
        if len(fields) <= number or not fields[number].isdigit():
            raise ctx.error(f"Cannot get case {what} from {text!r}")
    index, action = int(fields[0]), int(fields[1])
    if action not in (DEFAULT, SEND, RECEIVE):
        raise ctx.error(f"the case type of {text!r} must be 0, 1 or 2, found {action}")
    if action == DEFAULT:
        return index, action, "", ""
    for number, what in ((2, "channel"), (3, "channel variable")):
        if len(fields) <= number:
            raise ctx.error(f"Cannot get case {what} from {text!r}")
    return index, action, fields[2], fields[3]


def _case(ctx: OpContext, index: int, action: int, channel_name: str, value_name: str) -> Case:
    found = ctx.scope.find_var(channel_name)
    channel = channel_of(ctx, None if found is None else found.value)
    holder = ctx.scope.find_var(value_name)
    if action == SEND:
        if holder is None:
            raise ctx.error(f"variable {value_name}, which is to be sent, does not exist")
        return sending(ctx, index, channel, holder)
    return Case(index, channel, ctx.scope.var(value_name) if holder is None else holder, sends=False)


def _store(holder: Any, value: Any) -> None:
    if isinstance(value, LoDTensor):
        holder.set_tensor(value.array, value.offsets)
    else:
        holder.value = value
