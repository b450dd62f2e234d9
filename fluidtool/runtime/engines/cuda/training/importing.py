"""Operators of a training program -> the graph of a step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.proto.enums import VarType
from fluidtool.runtime.dependencies import names_used
from fluidtool.runtime.engines.cuda.training import (
    arrays,
    collectives,
    conditions,
    counters,
    ctc,
    forward,
    gradients,
    groups,
    gru,
    images,
    loops,
    lstm,
    lstm_gradient,
    moves,
    projected,
    rows,
    sequences,
    stacked,
    structured,
    units,
    updates,
    yolo,
)
from fluidtool.runtime.engines.cuda.training.building import STEP_IMPORTERS, BuiltStep, Rings, StepBuilder
from fluidtool.runtime.engines.cuda.training.operators import import_operator
from fluidtool.runtime.engines.cuda.training.rows import stay_within
from fluidtool.runtime.engines.cuda.training.unrolling import COUNTS, NUMBERS, OF_LOOPS, unrolled
from fluidtool.runtime.graph.importers.grids import stays_on_host
from fluidtool.runtime.graph.importers.registry import Lod
from fluidtool.runtime.graph.ir import UnsupportedError, Value

PARTS = (
    arrays,
    collectives,
    conditions,
    counters,
    ctc,
    forward,
    gradients,
    groups,
    gru,
    images,
    loops,
    lstm,
    lstm_gradient,
    moves,
    projected,
    rows,
    sequences,
    stacked,
    structured,
    units,
    updates,
    yolo,
)
"""The modules whose functions import operators."""
WHOLE = (np.int64, np.int32)  # those of 32 bits are widened as they are copied in
OF_FLOATS = (np.bool_, np.uint8)  # booleans and the masks of dropout, which become floats, 1 and 0
TYPED = {
    "fill_constant": "dtype",
    "fill_constant_batch_size_like": "dtype",
    "cast": "out_dtype",
}  # attributes that say of which type results are
OF_SERVERS = ("is_distributed", "epmap")


def may_be_in_step(op: Operator) -> bool:
    """Whether an operator may have a place in a step: it has an importer, and its variables are dense, or stay within loops."""
    return is_of_loops(op) or _has_place(op)


def is_of_loops(op: Operator) -> bool:
    """Whether an operator may be in a step because loops may be."""
    return id(op) in unrolled(op.block.program, _has_place).operators


def refusal(op: Operator) -> str:
    """Why a loop may not be in a step; '' for other operators."""
    return unrolled(op.block.program, _has_place).reasons.get(id(op), "")


def _has_place(op: Operator) -> bool:
    if op.type not in STEP_IMPORTERS or op.type in OF_LOOPS or op.variable_attrs():
        return False
    if conditions.is_condition(op):
        return conditions.may_be_condition(op)
    if op.sub_blocks() or (op.type == "increment" and not counters.may_be_counter(op)):
        return False
    if op.type in TYPED and op.has_attr(TYPED[op.type]) and op.attr(TYPED[op.type]) != forward.FLOAT32:
        on_host = _counts_steps(op) or stays_on_host(op, STEP_IMPORTERS)
        return op.attr(TYPED[op.type]) in forward.WHOLES and not on_host
    if op.type.startswith("lookup_table") and any(op.has_attr(name) and op.attr(name) for name in OF_SERVERS):
        return False
    kept = op.inputs.get("Cache", []) if op.type.startswith("cudnn_lstm") else []  # a variable for what forward leaves
    names = [name for name in (*op.input_arg_names, *op.output_arg_names) if name not in kept]
    found = (op.block.find_var_recursive(name) for name in names)
    others = [var for var in found if var is not None and var.type != VarType.LOD_TENSOR]
    return all(var.type == VarType.SELECTED_ROWS and stay_within(op, var.name) for var in others)


def _counts_steps(op: Operator) -> bool:
    """Whether loops or branches read whole numbers that an operator makes: the host counts and chooses."""
    made = set(op.output_arg_names)
    users = (each for each in op.block.ops if not made.isdisjoint(names_used(op.block.program, each)))
    return any(each.sub_blocks() or each.type in OF_LOOPS for each in users)


def _makes_count(op: Operator) -> bool:
    """Whether an operator makes a number that loops count or end by, for which the host would wait where others are left to it."""
    return op.type in COUNTS or op.type in NUMBERS


def build_step(
    operators: Sequence[tuple[Operator, Mapping[str, Any]]],
    given: Mapping[str, Any],
    states: Collection[str],
    wanted: Sequence[str],
    known_lods: Mapping[str, Lod] | None = None,
    rings: Rings | None = None,
    inner: bool = False,
) -> tuple[BuiltStep, dict[str, Value]]:
    """A step, and the values of what it is given: arrays by name, of which only shapes and data types count.

    states: names that the step may change in place. known_lods: the LoDs of what is given, if the step is for these only.
    rings: the ranks that an operator sums over. inner: whether the step is a part of a step of a loop.
    Raises UnsupportedError, which names the result of the operator that has no place in it.
    """
    values = {}
    shapes = {name: array[:-1] for name, array in given.items() if type(array) is tuple}  # XShape ends with 0
    for name, array in given.items():
        if name in shapes or array.dtype not in (np.float32, *OF_FLOATS, *WHOLE) or array.size == 0:
            continue  # an operator that reads it is refused
        values[name] = Value(name, tuple(array.shape), None, array.dtype in WHOLE, array.dtype == np.int32)
    booleans, masks = ({name for name in values if given[name].dtype == kind} for kind in OF_FLOATS)
    own = {name: values[name] for name in states if name in values and given[name].dtype in (np.float32, np.int64)}
    builder = StepBuilder(own, rings, inner)
    builder.operators = frozenset(id(op) for op, _ in operators)
    builder.values.update({name: value for name, value in values.items() if name not in booleans | masks})
    builder.conditions.update({name: values[name] for name in booleans})
    builder.masks.update({name: values[name] for name in masks})
    builder.shapes.update(shapes)
    builder.origins.update({name: name for name in given})
    builder.known = known_lods or {}
    for op, attrs in operators:
        try:
            import_operator(builder, op, attrs)
        except UnsupportedError as error:
            error.result = op.output_arg_names[0]
            raise
    stores = {
        name: builder.values[name]
        for name, value in builder.states.items()
        if builder.values[name] is not value and name not in builder.moved
    }
    for name, value in stores.items():
        if value.integer and prod(value.shape) > 1:
            raise UnsupportedError(f"{name}: whole numbers that stay in the scope", result=name)
    changed = {name for op, _ in operators for name in op.output_arg_names}
    for name in changed.intersection(states).difference(own):
        raise UnsupportedError(f"{name}: a state of another type than float32 and int64", result=name)
    masks = {name for op, _ in operators if op.type == "dropout" for name in op.output("Mask")}
    results = builder.values | builder.conditions | {name: builder.masks[name] for name in masks}
    counts = {name for op, _ in operators if is_of_loops(op) and _makes_count(op) for name in op.output_arg_names}
    known = (results.keys() - builder.padded - counts) | builder.shapes.keys()
    missing = [name for name in wanted if name not in known]
    if missing:
        raise UnsupportedError(f"{missing[0]} is only known to the operators of a step", result=missing[0])
    step = BuiltStep(
        tuple(builder.nodes),
        results,
        stores,
        tuple(builder.updates),
        tuple(builder.draws),
        tuple(builder.bounds),
        checked=tuple(builder.checked),
        marked=tuple(builder.marked),
        lods={name: builder.origins[name] for name in wanted if name in builder.origins},
        row_updates=tuple(builder.row_updates),
        reductions=tuple(builder.reductions),
        shapes={name: (*builder.shapes[name], 0) for name in wanted if name in builder.shapes},
        types={
            name: np.bool_ if name in builder.conditions else np.uint8 if name in masks else np.int32
            for name in wanted
            if name in builder.conditions or name in masks or (name in builder.values and builder.values[name].short)
        },
    )
    return step, values
