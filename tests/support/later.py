"""Run one operator within a program that a later Paddle saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fluidtool.ops.registry import get_op
from tests.support.operators import OneOp

PADDLE_2_6_2 = 2_006_002


def run_later(
    op_type: str,
    inputs: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
    outputs: Mapping[str, int] | None = None,
    version: int = PADDLE_2_6_2,
) -> dict[str, Any]:
    """Arrays by output slot, as `run_op`; slots and attributes may be those that Paddle 1.8.5 does not have."""
    info = get_op(op_type)
    known = {slot.name for slot in info.inputs}
    attrs = dict(attrs or {})
    one = OneOp(
        op_type,
        {slot: value for slot, value in inputs.items() if slot in known},
        {name: value for name, value in attrs.items() if name in info.attrs},
        outputs,
    )
    one.program.version = version
    block = one.program.global_block()
    op = block.ops[0]
    for name, value in attrs.items():
        if name not in info.attrs:
            op.set_attr(name, value)
    for slot in set(inputs) - known:
        one.feed[slot] = np.asarray(inputs[slot])
        block.create_var(name=slot)
        op.set_input(slot, [slot])
    for slot, count in (outputs or {}).items():
        op.set_output(slot, one.outputs.get(slot, []) if count else [])
    names = [name for names in one.outputs.values() for name in names if slot_of(one, name) not in ("XShape",)]
    values = dict(zip(names, one.run(fetch=names), strict=True))
    several = {slot for slot, count in (outputs or {}).items() if count != 1}
    return {
        slot: [values[name].numpy() for name in slot_names] if slot in several else values[slot_names[0]].numpy()
        for slot, slot_names in one.outputs.items()
        if slot != "XShape"
    }


def slot_of(one: OneOp, name: str) -> str:
    """The output slot that a variable of a OneOp belongs to."""
    return next(slot for slot, names in one.outputs.items() if name in names)
