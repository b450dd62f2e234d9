"""Operators of a training program -> the graph of a step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.ops.registry import get_op
from fluidtool.proto.enums import VarType
from fluidtool.runtime.engines.cuda.training import (
    collectives,
    conditions,
    counters,
    ctc,
    forward,
    gradients,
    gru,
    lstm,
    lstm_gradient,
    projected,
    rows,
    sequences,
    stacked,
    structured,
    units,
    updates,
)
from fluidtool.runtime.engines.cuda.training.building import STEP_IMPORTERS, BuiltStep, Rings, StepBuilder
from fluidtool.runtime.engines.cuda.training.rows import stay_within
from fluidtool.runtime.graph.importers.registry import EMPTY, Lod
from fluidtool.runtime.graph.ir import UnsupportedError, Value

PARTS = (
    collectives,
    conditions,
    counters,
    ctc,
    forward,
    gradients,
    gru,
    lstm,
    lstm_gradient,
    projected,
    rows,
    sequences,
    stacked,
    structured,
    units,
    updates,
)
"""The modules whose functions import operators."""
LODS = {
    "cross_entropy2": (("X", "XShape"),),
    "concat": (("X", "Out"),),
    "stack": (("X", "Y"),),
    "mul_grad": (("X", "X@GRAD"), ("Y", "Y@GRAD")),
}
"""What kernels say of LoDs beyond what operators declare."""
WHOLE = (np.int64, np.int32)  # those of 32 bits are widened as they are copied in
TYPED = {"fill_constant": "dtype", "cast": "out_dtype"}  # attributes that say of which type results are
OF_SERVERS = ("is_distributed", "epmap")


def may_be_in_step(op: Operator) -> bool:
    """Whether an operator may have a place in a step: it has an importer, and its variables are dense."""
    if op.type not in STEP_IMPORTERS or op.variable_attrs():
        return False
    if conditions.is_condition(op):
        return conditions.may_be_condition(op)
    if op.sub_blocks() or (op.type == "increment" and not counters.may_be_counter(op)):
        return False
    if op.type in TYPED and op.has_attr(TYPED[op.type]) and op.attr(TYPED[op.type]) != forward.FLOAT32:
        return False
    if op.type.startswith("lookup_table") and any(op.has_attr(name) and op.attr(name) for name in OF_SERVERS):
        return False
    kept = op.inputs.get("Cache", []) if op.type.startswith("cudnn_lstm") else []  # a variable for what forward leaves
    names = [name for name in (*op.input_arg_names, *op.output_arg_names) if name not in kept]
    found = (op.block.find_var_recursive(name) for name in names)
    others = [var for var in found if var is not None and var.type != VarType.LOD_TENSOR]
    return all(var.type == VarType.SELECTED_ROWS and stay_within(op, var.name) for var in others)


def build_step(
    operators: Sequence[tuple[Operator, Mapping[str, Any]]],
    given: Mapping[str, Any],
    states: Collection[str],
    wanted: Sequence[str],
    known_lods: Mapping[str, Lod] | None = None,
    rings: Rings | None = None,
) -> tuple[BuiltStep, dict[str, Value]]:
    """A step, and the values of what it is given: arrays by name, of which only shapes and data types count.

    states: names that the step may change in place. known_lods: the LoDs of what is given, if the step is for these only.
    rings: the ranks that an operator sums over.
    Raises UnsupportedError, which names the result of the operator that has no place in it.
    """
    values = {}
    shapes = {name: array[:-1] for name, array in given.items() if type(array) is tuple}  # XShape ends with 0
    for name, array in given.items():
        if name in shapes or array.dtype not in (np.float32, *WHOLE) or array.size == 0:
            continue  # an operator that reads it is refused
        values[name] = Value(name, tuple(array.shape), integer=array.dtype in WHOLE)
    own = {name: values[name] for name in states if name in values and given[name].dtype != np.int32}
    builder = StepBuilder(own, rings)
    builder.operators = frozenset(id(op) for op, _ in operators)
    builder.values.update(values)
    builder.shapes.update(shapes)
    lods: dict[str, str | Lod] = {name: name for name in given}
    for op, attrs in operators:
        try:
            if sequences.reads_lods(op.type):
                builder.lods.update(_lods_of(op, lods, known_lods or {}))
            STEP_IMPORTERS[op.type](builder, op, attrs)
            _pass_lods_on(op, lods, builder)
        except UnsupportedError as error:
            error.result = op.output_arg_names[0]
            raise
    stores = {
        name: builder.values[name]
        for name, value in builder.states.items()
        if builder.values[name] is not value and name not in builder.moved
    }
    known = (builder.values.keys() - builder.padded) | builder.shapes.keys()
    missing = [name for name in wanted if name not in known]
    if missing:
        raise UnsupportedError(f"{missing[0]} is only known to the operators of a step", result=missing[0])
    step = BuiltStep(
        tuple(builder.nodes),
        builder.values,
        stores,
        tuple(builder.updates),
        tuple(builder.draws),
        tuple(builder.bounds),
        lods={name: lods[name] for name in wanted if name in lods},
        row_updates=tuple(builder.row_updates),
        reductions=tuple(builder.reductions),
        shapes={name: (*builder.shapes[name], 0) for name in wanted if name in builder.shapes},
    )
    return step, values


def _lods_of(op: Operator, lods: Mapping[str, str | Lod], known: Mapping[str, Lod]) -> dict[str, Lod]:
    """The LoD of each input of an operator."""
    found = {name: lods.get(name, ()) for name in op.input_arg_names}
    return {name: known.get(lod, ()) if isinstance(lod, str) else lod for name, lod in found.items()}


def _pass_lods_on(op: Operator, lods: dict[str, str | Lod], builder: StepBuilder) -> None:
    """Which results have the LoD of which input: as operators declare it, and as gradients of elementwise operators have it.

    Some operators of sequences make another one.
    """
    for name in op.output_arg_names:
        lods.pop(name, None)
    if op.type in sequences.OWN_LODS:
        name = op.outputs["Out"][0]
        lods[name] = builder.lods.get(name, ())
        return
    pairs = [*get_op(op.type).share_lod, *LODS.get(op.type, ())]
    if op.type.startswith("elementwise_") and op.type.endswith("_grad"):
        pairs.append(("Out@GRAD", "X@GRAD"))
    if op.type.startswith("reduce_") and not op.type.endswith("_grad") and _keeps_rows(op, builder):
        pairs.append(("X", "Out"))
    for source, target in pairs:
        sources, targets = op.inputs.get(source, []), op.outputs.get(target, [])
        for number, name in enumerate(targets):
            origin = sources[number] if number < len(sources) else sources[0] if sources else EMPTY
            if name != EMPTY and origin in lods:
                lods[name] = lods[origin]


def _keeps_rows(op: Operator, builder: StepBuilder) -> bool:
    """Whether a reduction leaves the first axis alone."""
    x, out = builder.values[op.inputs["X"][0]].shape, builder.values[op.outputs["Out"][0]].shape
    return bool(x and out and x[0] == out[0] and x[0] > 1)
