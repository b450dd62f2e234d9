"""One operator of a training program, imported into the graph of a step, with the LoDs of its results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fluidtool.ir import Operator
from fluidtool.ir.operator import EMPTY
from fluidtool.ops.registry import get_op
from fluidtool.runtime.engines.cuda.training.building import STEP_IMPORTERS, StepBuilder
from fluidtool.runtime.engines.cuda.training.sequences import OWN_LODS, reads_lods
from fluidtool.runtime.engines.cuda.training.unrolling import OF_LOOPS
from fluidtool.runtime.graph.importers.formats import channels_first
from fluidtool.runtime.graph.importers.grids import fold
from fluidtool.runtime.graph.importers.moves import axis_of

LODS = {
    "cross_entropy2": (("X", "XShape"),),
    "concat": (("X", "Out"),),
    "stack": (("X", "Y"),),
    "mul_grad": (("X", "X@GRAD"), ("Y", "Y@GRAD")),
}
"""What kernels say of LoDs beyond what operators declare."""


def import_operator(b: StepBuilder, op: Operator, attrs: Mapping[str, Any]) -> None:
    """Import an operator. Raises UnsupportedError if it has no place in a step."""
    if reads_lods(op.type):
        b.lods.update({name: b.lod(name) for name in op.input_arg_names})
    with channels_first(b, op, dict(attrs)) as settled:
        if not fold(b, op, settled):
            STEP_IMPORTERS[op.type](b, op, settled)
    if op.type not in OF_LOOPS:
        _pass_lods_on(b, op)


def _pass_lods_on(b: StepBuilder, op: Operator) -> None:
    """Which results have the LoD of which input: as operators declare it, and as gradients of elementwise operators have it.

    Some operators of sequences make another one.
    """
    before = {name: b.origins[name] for name in op.input_arg_names if name in b.origins}
    for name in op.output_arg_names:
        b.origins.pop(name, None)
    if op.type in OWN_LODS:
        name = op.outputs["Out"][0]
        b.origins[name] = b.lods.get(name, ())
        return
    pairs = [*get_op(op.type).share_lod, *LODS.get(op.type, ())]
    if op.type.startswith("elementwise_") and op.type.endswith("_grad"):
        pairs.append(("Out@GRAD", "X@GRAD"))
    if op.type == "box_coder":
        pairs.append(("PriorBox" if op.has_attr("axis") and op.attr("axis") == 1 else "TargetBox", "OutputBox"))
    if _is_of_rows(op, b):
        pairs.append(("X", "Out"))
    for source, target in pairs:
        sources, targets = op.inputs.get(source, []), op.outputs.get(target, [])
        for number, name in enumerate(targets):
            origin = sources[number] if number < len(sources) else sources[0] if sources else EMPTY
            if name != EMPTY and origin in before:
                b.origins[name] = before[origin]


def _is_of_rows(op: Operator, b: StepBuilder) -> bool:
    """Whether the results of an operator have the LoD of X for these attributes: those that leave the first axis alone."""
    if op.type == "split":
        axis = axis_of(b, op, {"axis": op.attr("axis") if op.has_attr("axis") else 0})
        return axis % len(b.values[op.inputs["X"][0]].shape) != 0
    if op.type == "pad":
        return not any(op.attr("paddings")[:2])
    if op.type in ("expand", "expand_as", "gather_nd"):
        return b.shape_of(op, "X")[:1] == b.values[op.outputs["Out"][0]].shape[:1]
    return op.type.startswith("reduce_") and not op.type.endswith("_grad") and _keeps_rows(op, b)


def _keeps_rows(op: Operator, b: StepBuilder) -> bool:
    """Whether a reduction leaves the first axis alone."""
    x, out = b.values[op.inputs["X"][0]].shape, b.values[op.outputs["Out"][0]].shape
    return bool(x and out and x[0] == out[0] and x[0] > 1)
