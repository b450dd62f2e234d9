"""Variables that an operator names in an attribute and nowhere else.

`select` of Fluid 0.14 names the channels and values of its cases in the texts of `cases`: "index,action,channel,value",
where action 1 sends the value and 2 receives into it.
"""

from __future__ import annotations

from fluidtool.ir.operator import Operator
from fluidtool.proto.enums import AttrType

SEND, RECEIVE = "1", "2"


def hidden_reads(op: Operator) -> set[str]:
    """Names read: channels, and values that are sent."""
    return {name for action, *names in _cases(op) for name in (names if action == SEND else names[:1])}


def hidden_writes(op: Operator) -> set[str]:
    """Names written: values that are received, and those sent, whose variables are empty afterwards."""
    return {name for _, *names in _cases(op) for name in names[1:]}


def _cases(op: Operator) -> list[list[str]]:
    """[action, channel, value] of every case that sends or receives."""
    if op.type != "select" or not op.has_attr("cases") or op.attr_type("cases") != AttrType.STRINGS:
        return []
    fields = [[part for part in text.split(",") if part][1:] for text in op.attr("cases")]
    return [case for case in fields if len(case) == 3 and case[0] in (SEND, RECEIVE)]
