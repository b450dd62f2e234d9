"""Operators that depend only on the shapes of their inputs: computed at compile time, by their own kernels."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from fluidtool.errors import FluidError
from fluidtool.ir import Operator
from fluidtool.ops.context import OpContext, Runtime
from fluidtool.ops.registry import get_op
from fluidtool.proto.enums import VarType
from fluidtool.runtime.graph.importers.registry import GraphBuilder, imports, need
from fluidtool.runtime.graph.ir import UnsupportedError, Value

_HOST = SimpleNamespace(name="numpy", xp=np, array=np.asarray, host=np.asarray)
DEVICE_ONLY = cast(Runtime, SimpleNamespace(device=_HOST, host=_HOST))
MOST = 1 << 20  # elements of a constant, which has memory of its own


@imports("prior_box", "density_prior_box", results=("Boxes", "Variances"))
@imports("anchor_generator", results=("Anchors", "Variances"))
def _grid(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    for slot, array in _computed(r, op, attrs).items():
        r.add("view", [Value(op.outputs[slot][0], array.shape, array)], op, slot, array.shape)


@imports("fill_constant", "fill_constant_batch_size_like", "fill_any_like", "fill_zeros_like")
def _constant(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    """Floats and whole numbers that arithmetic reads as constants."""
    (name,), read = op.outputs["Out"], [slot for slot, names in op.inputs.items() if names]
    var = op.block.find_var_recursive(name)
    need(var is None or var.type == VarType.LOD_TENSOR, "a constant that is no tensor")
    need(read in ([], ["X"], ["Input"]), "a constant whose shape or value is computed")
    need(not attrs.get("force_cpu"), "a constant that stays on the host")
    need(not any(r.lods.get(each) for names in op.inputs.values() for each in names), "a constant for each sequence")
    found = _computed(r, op, attrs)["Out"]
    need(
        found.dtype in (np.float32, np.int64, np.int32) and 0 < found.size <= MOST, "a constant that is empty, or large"
    )
    short = found.dtype == np.int32
    integer = short or found.dtype == np.int64
    r.values[name] = Value(name, found.shape, found.astype(np.int64) if short else found, integer, short)
    r.conditions.pop(name, None)


def _computed(r: GraphBuilder, op: Operator, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The results by slot, from inputs of which only shapes and data types are known."""
    info, inputs = get_op(op.type), list[Any]()
    for slot in info.inputs:
        if slot.duplicable or not op.inputs.get(slot.name):
            inputs.append([] if slot.duplicable else None)
            continue
        value = r.get(op, slot.name, integer=None)
        kind = np.int32 if value.short else value.dtype
        inputs.append(np.broadcast_to(np.zeros((), kind), value.shape))
    context = OpContext(op, info, {}, {}, cast(Any, None), DEVICE_ONLY)
    try:
        results = info.kernel(context, *inputs, **{name: attrs[name] for name in info.kernel_attrs})
    except FluidError as error:  # the numpy kernel raises it again, with the place in the program
        raise UnsupportedError(str(error)) from error
    return results if isinstance(results, dict) else {info.outputs[0].name: results}
