"""Counters in training steps, such as those of schedules: single numbers that every step increases, whole ones too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from fluidtool.ir import Operator
from fluidtool.proto.enums import VarType
from fluidtool.runtime.engines.cuda.lowering import Lowering
from fluidtool.runtime.engines.cuda.sources import EXPRESSIONS, Index, Source
from fluidtool.runtime.engines.cuda.training.building import StepBuilder, imports_step
from fluidtool.runtime.engines.cuda.training.forward import literal
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.ir import Node, Value

COUNTED = "counted"  # the kind of nodes whose results are whole numbers


def may_be_counter(op: Operator) -> bool:
    """Whether an increment may be in a step: of a float, or of a whole number that stays in the scope."""
    var = op.block.find_var_recursive(op.inputs["X"][0])
    if var is None or var.dtype not in (VarType.FP32, VarType.INT64):
        return False
    return var.dtype == VarType.FP32 or (var.persistable and op.outputs["Out"] == op.inputs["X"])


@imports_step("increment")
def _increment(b: StepBuilder, op: Operator, attrs: Mapping[str, Any]) -> None:
    (name,), step = op.inputs["X"], float(attrs["step"])
    known = b.known_number(name)
    if known is not None:
        b.let_number(op.outputs["Out"][0], known + int(step))
        return
    need(name in b.values and prod(b.values[name].shape) == 1, "a counter of more than one number")
    value = b.values[name]
    if not value.integer:
        b.put(op, "Out", b.formula(f"a + {literal(step)}", b.get(op, "X")))
        return
    need(name in b.states and op.outputs["Out"] == [name], "whole numbers that do not stay in the scope")
    found = Value(f"{name} {len(b.nodes)}", value.shape, integer=True)
    b.nodes.append(Node(COUNTED, [value], found, {"step": int(step)}))
    b.put(op, "Out", found)


def _counted(src: Source, node: Node, index: Index) -> str:
    return f"({src.load(node.inputs[0], index)} + {node.attrs['step']}ll)"


EXPRESSIONS[COUNTED] = _counted


def store_counters(low: Lowering, counters: Sequence[tuple[Value, Value]]) -> None:
    """Replace counters by what they become, all by one thread. counters: the state, its new value."""
    if not counters:
        return
    src = Source(low)
    src.lines.append("if (blockIdx.x || threadIdx.x) return;")
    places = [low.places[state] for state, _ in counters]
    new = [
        f"const whole n{number} = {src.load(value, ['0'] * len(value.shape))};"
        for number, (_, value) in enumerate(counters)
    ]
    names = [src.writable(place.buffer, place.offset) for place in places[:-1]]
    stores = [f"{name}[0] = n{number};" for number, name in enumerate(names)]
    src.lines += [*new, *stores, f"out[0] = n{len(places) - 1};"]
    low.calls.append(src.launch(places[-1], 1, 1, "counters"))
