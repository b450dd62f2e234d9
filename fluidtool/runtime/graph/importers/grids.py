"""Operators that depend on shapes, attributes and constants alone: computed at compile time, by their own kernels."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from fluidtool.errors import FluidError
from fluidtool.ir import Operator
from fluidtool.ops.context import OpContext, Runtime
from fluidtool.ops.registry import get_op
from fluidtool.proto.enums import VarType
from fluidtool.runtime.dependencies import names_used
from fluidtool.runtime.graph.importers.registry import IMPORTERS, GraphBuilder, imports, need
from fluidtool.runtime.graph.ir import UnsupportedError, Value
from fluidtool.tensor import LoDTensor

_HOST = SimpleNamespace(name="numpy", xp=np, array=np.asarray, host=np.asarray)
DEVICE_ONLY = cast(Runtime, SimpleNamespace(device=_HOST, host=_HOST))
MOST = 1 << 20  # elements of a constant, which has memory of its own
OUTPUTS = frozenset({"Out", "Y"})
TYPES = (np.float32, np.int64, np.int32, np.bool_)
OF_SHAPES = frozenset(
    {"fill_constant_batch_size_like", "fill_any_like", "fill_zeros_like", "fill_zeros_like2", "shape", "size"}
)
"""Operators whose results depend on the shapes of their inputs alone."""
FOLDED = frozenset(
    {
        "assign", "cast", "concat", "elementwise_add", "elementwise_div", "elementwise_floordiv", "elementwise_max",
        "elementwise_min", "elementwise_mod", "elementwise_mul", "elementwise_sub", "expand", "gather", "reduce_max", "reduce_min",
        "reduce_prod", "reduce_sum", "reshape", "reshape2", "scale", "slice", "squeeze", "squeeze2", "stack", "transpose",
        "transpose2", "unsqueeze", "unsqueeze2",
    }
)  # fmt: skip
"""Operators that scripts apply to sizes, such as those that `shape` gives."""


@imports("prior_box", "density_prior_box", results=("Boxes", "Variances"))
@imports("anchor_generator", results=("Anchors", "Variances"))
def _grid(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    for slot, array in _computed(r, op, attrs).items():
        need(array.dtype == np.float32, f"{slot} of another type than float32")
        r.add("view", [Value(op.outputs[slot][0], array.shape, array)], op, slot, array.shape)


@imports("fill_constant", "fill_constant_batch_size_like", "fill_any_like", "fill_zeros_like", "shape", "size")
@imports("assign_value", "eye", "linspace", "range")
def _constant(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    need(not stays_on_host(op, IMPORTERS), "a constant that stays on the host")
    of_batch = op.type == "fill_constant_batch_size_like"
    need(not of_batch or not any(r.lods.get(each) for each in op.input_arg_names), "a constant for each sequence")
    add_constant(r, op, attrs)


def stays_on_host(op: Operator, known: Collection[str]) -> bool:
    """Whether the host reads a constant that is made there: an operator does that is not one of the known, or that has a block."""
    if not (op.has_attr("force_cpu") and op.attr("force_cpu")):
        return False
    made = set(op.output_arg_names)
    users = (each for each in op.block.ops if not made.isdisjoint(names_used(op.block.program, each)))
    return any(each.sub_blocks() or each.type not in known for each in users)


def add_constant(r: GraphBuilder, op: Operator, attrs: Mapping[str, Any]) -> None:
    """Numbers that others read as constants; they follow from shapes, LoDs, attributes and other constants."""
    var = op.block.find_var_recursive(op.outputs["Out"][0])
    need(var is None or var.type == VarType.LOD_TENSOR, "a constant that is no tensor")
    unknown = next((name for name in op.input_arg_names if r.constant_of(name) is None), None)
    need(unknown is None or op.type in OF_SHAPES, f"a constant that depends on {unknown}")
    put_constants(r, op, _computed(r, op, attrs))


def put_constants(r: GraphBuilder, op: Operator, results: Mapping[str, Any]) -> None:
    """Make arrays the operator's outputs, by slot: Out, or Y."""
    for slot in OUTPUTS & results.keys() & op.outputs.keys():
        (name,), array = op.outputs[slot], np.asarray(results[slot])
        need(array.dtype in TYPES and 0 < array.size <= MOST, "a constant that is empty, large, or of another type")
        short, whole = array.dtype == np.int32, array.dtype.kind == "i"
        own = np.ascontiguousarray(array, np.int64 if whole else np.float32).reshape(array.shape)
        value = Value(name, array.shape, own, whole, bool(short))
        if array.dtype == np.bool_:
            r.put_condition(op, slot, value)
        else:
            r.alias(value, op, slot)


def fold(r: GraphBuilder, op: Operator, attrs: Mapping[str, Any]) -> bool:
    """Compute an operator of whole numbers now, if all that it reads is known; False if not."""
    if op.type not in FOLDED or not r.for_gpus or not op.input_arg_names:
        return False
    known = [r.constant_of(name) for name in op.input_arg_names]
    if any(array is None or array.dtype not in (np.int64, np.int32) for array in known):
        return False
    put_constants(r, op, _computed(r, op, attrs))
    return True


def _computed(r: GraphBuilder, op: Operator, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The results by slot, from inputs that are known, or of which only shapes and data types are."""
    info, inputs = get_op(op.type), list[Any]()
    holders: dict[str, tuple[Any, ...]] = {}
    for slot in info.inputs:
        named = [(_array(r, name), r.lods.get(name, ())) for name in op.inputs.get(slot.name, ())]
        arrays = [array for array, _ in named]
        inputs.append(arrays if slot.duplicable else arrays[0] if arrays else None)
        holders[slot.name] = tuple(
            SimpleNamespace(value=LoDTensor(array, [list(level) for level in lod])) for array, lod in named
        )
    context = OpContext(op, info, holders, {}, cast(Any, None), DEVICE_ONLY)
    try:
        results = info.kernel(context, *inputs, **{name: attrs[name] for name in info.kernel_attrs})
    except FluidError as error:  # the numpy kernel raises it again, with the place in the program
        raise UnsupportedError(str(error)) from error
    return results if isinstance(results, dict) else {info.outputs[0].name: results}


def _array(r: GraphBuilder, name: str) -> Any:
    """What is known of an input: all of it, or zeros of its shape and type."""
    known = r.constant_of(name)
    if known is not None:
        return known
    value = r.values.get(name)
    kind = (
        np.bool_ if name in r.conditions else np.float32 if value is None else np.int32 if value.short else value.dtype
    )
    return np.broadcast_to(np.zeros((), kind), r.shape_of_name(name))
