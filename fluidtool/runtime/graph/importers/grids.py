"""Operators that depend only on the shapes of their inputs: computed at compile time, by their own kernels."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from fluidtool.errors import FluidError
from fluidtool.ir import Operator
from fluidtool.ops.context import OpContext, Runtime
from fluidtool.ops.registry import get_op
from fluidtool.runtime.graph.importers.registry import GraphBuilder, imports
from fluidtool.runtime.graph.ir import UnsupportedError, Value

_HOST = SimpleNamespace(name="numpy", xp=np, array=np.asarray, host=np.asarray)
DEVICE_ONLY = cast(Runtime, SimpleNamespace(device=_HOST, host=_HOST))


@imports("prior_box", "density_prior_box", results=("Boxes", "Variances"))
@imports("anchor_generator", results=("Anchors", "Variances"))
def _grid(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    info = get_op(op.type)
    inputs = [np.broadcast_to(np.float32(0), r.get(op, slot.name).shape) for slot in info.inputs]
    context = OpContext(op, info, {}, {}, cast(Any, None), DEVICE_ONLY)
    try:
        results = info.kernel(context, *inputs, **{name: attrs[name] for name in info.kernel_attrs})
    except FluidError as error:  # the numpy kernel raises it again, with the place in the program
        raise UnsupportedError(str(error)) from error
    for slot, array in results.items():
        r.add("view", [Value(op.outputs[slot][0], array.shape, array)], op, slot, array.shape)
