"""Comparisons, logic on their results, and casts, in regions on a GPU; training steps read their operators alike.

Within the graph booleans are 1 and 0.
"""

from __future__ import annotations

from typing import Any

from fluidtool.ir import Operator
from fluidtool.ops.math.versions import saved_by
from fluidtool.proto.enums import VarType
from fluidtool.runtime.graph.importers.elementwise import aligned
from fluidtool.runtime.graph.importers.moves import put_view
from fluidtool.runtime.graph.importers.registry import GraphBuilder, imports, need
from fluidtool.runtime.graph.ir import Value

COMPARISONS = {
    "less_than": "a < b", "less_equal": "a <= b", "greater_than": "a > b", "greater_equal": "a >= b",
    "equal": "a == b", "not_equal": "a != b",
}  # fmt: skip
"""Of whole numbers, and of floats except for equality."""
NEAR = "fabsf(a - b) < 1e-8f"
LOGIC = {
    "logical_not": "a == 0.0f", "logical_and": "a != 0.0f && b != 0.0f", "logical_or": "a != 0.0f || b != 0.0f",
    "logical_xor": "(a != 0.0f) != (b != 0.0f)",
}  # fmt: skip
CHOSEN = "({} ? 1.0f : 0.0f)"
ALIKE = {VarType.FP32: (False, False), VarType.INT64: (True, False), VarType.INT32: (True, True)}
"""Whether results of a cast are whole numbers, and whether those have 32 bits."""
CASTS = {  # to whole numbers, by whether those have 32 bits, and whether what is cast is whole
    (False, False): "ft_whole(a)",
    (True, False): "(a >= -2147483648.0f && a < 2147483648.0f ? (whole)(int)a : -2147483648ll)",
    (True, True): "(whole)(int)a",
}


def comparison_text(op: Operator, integer: bool) -> str:
    """What a comparison asks of a and b. Floats closer than 1e-8 are equal; an infinity is equal to itself from Paddle 2.0 on."""
    if integer or op.type not in ("equal", "not_equal"):
        return COMPARISONS[op.type]
    same = NEAR if not saved_by(op.block.program, 2, 0) else f"{NEAR} || a == b"
    return f"({same})" if op.type == "equal" else f"!({same})"


@imports(*COMPARISONS)
def _compare(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, y = r.get(op, "X", integer=None), r.get(op, "Y", integer=None)
    need((x.integer, x.short) == (y.integer, y.short), "a comparison of two types")
    need(len(y.shape) <= len(x.shape), "broadcasting of X")
    y_shape = aligned(x.shape, y.shape, int(attrs.get("axis", -1)))
    need(all(b in (1, a) for a, b in zip(x.shape, y_shape, strict=True)), "broadcasting of X")
    text = CHOSEN.format(comparison_text(op, x.integer))
    r.put_condition(op, "Out", r.node("compared", [x, y], x.shape, text=text, y_shape=y_shape))


@imports(*LOGIC)
def _combine(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    found = [_condition(r, op, slot) for slot in ("X", "Y") if op.inputs.get(slot)]
    need(len({each.shape for each in found}) == 1, "booleans of different shapes")
    r.put_condition(op, "Out", r.formula(CHOSEN.format(LOGIC[op.type]), *found))


def _condition(r: GraphBuilder, op: Operator, slot: str) -> Value:
    """The booleans in an input slot."""
    (name,) = op.inputs[slot]
    need(name in r.conditions, f"{name} is not a boolean of this graph")
    return r.conditions[name]


@imports("cast")
def _cast(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    (name,) = op.inputs["X"]
    x = r.conditions.get(name) or r.get(op, "X", integer=None)
    wanted = attrs["out_dtype"]
    if wanted == VarType.BOOL:
        zero = "a != 0" if x.integer else "a != 0.0f"
        r.put_condition(op, "Out", r.node("converted", [x], x.shape, text=CHOSEN.format(zero)))
        return
    need(wanted in ALIKE, "a cast to another type than float32, int64, int32 or bool")
    integer, short = ALIKE[wanted]
    if (x.integer, x.short) == (integer, short) and name not in r.conditions:
        r.alias(x, op, "Out")
    elif x.short and integer:
        put_view(r, x, op, x.shape, short=False)
    else:
        text = CASTS[short, x.integer] if integer else "(float)(a)"
        r.add("converted", [x], op, "Out", x.shape, integer=integer, short=short, text=text)
