"""Operators of a training program -> the graph of a step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.ops.registry import get_op
from fluidtool.proto.enums import VarType
from fluidtool.runtime.engines.cuda.training import forward, gradients, updates
from fluidtool.runtime.engines.cuda.training.building import EMPTY, STEP_IMPORTERS, BuiltStep, StepBuilder
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.ir import UnsupportedError, Value

PARTS = (forward, gradients, updates)
"""The modules whose functions import operators."""
LODS = {
    "cross_entropy2": (("X", "XShape"),),
    "concat": (("X", "Out"),),
    "mul_grad": (("X", "X@GRAD"), ("Y", "Y@GRAD")),
}
"""What kernels say of LoDs beyond what operators declare."""
TYPED = {"fill_constant": "dtype", "cast": "out_dtype"}  # attributes that say of which type results are
SPARSE = ("is_sparse", "is_distributed")


def may_be_in_step(op: Operator) -> bool:
    """Whether an operator may have a place in a step: it has an importer, and its variables are dense."""
    if op.type not in STEP_IMPORTERS or op.sub_blocks() or op.variable_attrs():
        return False
    if op.type in TYPED and op.has_attr(TYPED[op.type]) and op.attr(TYPED[op.type]) != forward.FLOAT32:
        return False
    if op.type.startswith("lookup_table") and any(op.has_attr(name) and op.attr(name) for name in SPARSE):
        return False
    found = (op.block.find_var_recursive(name) for name in (*op.input_arg_names, *op.output_arg_names))
    return all(var is None or var.type == VarType.LOD_TENSOR for var in found)


def build_step(
    operators: Sequence[tuple[Operator, Mapping[str, Any]]],
    given: Mapping[str, Any],
    states: Collection[str],
    wanted: Sequence[str],
) -> tuple[BuiltStep, dict[str, Value]]:
    """A step, and the values of what it is given: arrays by name, of which only shapes and data types count.

    states: names that the step may change in place. Raises UnsupportedError, which names the result of the operator that
    has no place in it.
    """
    values = {}
    shapes = {name: array[:-1] for name, array in given.items() if type(array) is tuple}  # XShape ends with 0
    for name, array in given.items():
        if name in shapes or array.dtype not in (np.float32, np.int64) or array.size == 0:
            continue  # an operator that reads it is refused
        values[name] = Value(name, tuple(array.shape), integer=array.dtype == np.int64)
    builder = StepBuilder({name: values[name] for name in states if name in values})
    builder.values.update(values)
    builder.shapes.update(shapes)
    lods: dict[str, str] = {name: name for name in given}
    for op, attrs in operators:
        try:
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
    missing = [name for name in wanted if name not in builder.values and name not in builder.shapes]
    need(not missing, f"{missing} is not computed")
    step = BuiltStep(
        tuple(builder.nodes), builder.values, stores, tuple(builder.updates), tuple(builder.draws),
        tuple(builder.bounds), {name: lods[name] for name in wanted if name in lods},
        {name: (*builder.shapes[name], 0) for name in wanted if name in builder.shapes},
    )  # fmt: skip
    return step, values


def _pass_lods_on(op: Operator, lods: dict[str, str], builder: StepBuilder) -> None:
    """Which results have the LoD of which input: as operators declare it, and as gradients of elementwise operators have it."""
    for name in op.output_arg_names:
        lods.pop(name, None)
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
