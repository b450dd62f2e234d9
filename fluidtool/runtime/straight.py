"""The fast path for a plan that is one region: no scope, no variables; the feed goes straight to the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fluidtool.errors import FluidError
from fluidtool.runtime.signatures import lod_of_value
from fluidtool.tensor import LoDTensor

if TYPE_CHECKING:
    from fluidtool.ops.context import Device
    from fluidtool.runtime.engines.base import CompiledRegion, MarkingRegion
    from fluidtool.runtime.graph.importers.registry import Lod
    from fluidtool.runtime.plan import Plan
    from fluidtool.runtime.scope import Scope


def run_straight(
    plan: Plan,
    feed: Mapping[str, Any],
    scope: Scope,
    device: Device,
    look: bool = True,
    repeat: Callable[[Mapping[str, Any]], object] | None = None,
) -> list[Any] | None:
    """The fetched values; None if the run needs the slow path.

    look: whether parameters that have changed are looked at; not where they may be on another device still. repeat: runs a feed
    on the slow path, for the error of ids that are found out of range when somebody reads the results; without it the run waits.

    That is the first run (something has to be compiled), a feed of anything but the arrays that the region reads,
    and a failing operator: the slow path finds out which one.
    """
    region = plan.block(0).sole
    if region is None or len(feed) != len(region.inputs) or len(plan.fetches) != len(region.outputs):
        return None
    values = [feed.get(name) for name in region.inputs]
    arrays = [value.array if type(value) is LoDTensor else value for value in values]
    parameters = plan.bindings(scope).constants_of(region, region.constants)
    constants = parameters.arrays() if look else parameters.unchanged()
    if constants is None or not all([type(array) is np.ndarray or device.holds(array) for array in arrays]):
        return None
    lods = [lod_of_value(value) for value in values]
    specializations = region.specializations
    with specializations.lock:
        compiled = specializations.get(region.signature(arrays, lods), constants)
    if compiled is None:
        return None
    if repeat is None or not compiled.marks_ids:
        return computed(compiled, region.inputs, arrays, lods, plan.fetches)
    from fluidtool.runtime.unchecked import computed_ahead

    return computed_ahead(cast("MarkingRegion", compiled), region.inputs, arrays, lods, plan.fetches, repeat)


def computed(
    compiled: CompiledRegion, inputs: Sequence[str], arrays: Sequence[Any], lods: Sequence[Lod], fetches: Sequence[str]
) -> list[Any] | None:
    """The fetched values, which are all outputs of a region; None if they cannot be computed of these arrays."""
    try:
        given = dict(zip(inputs, arrays, strict=True))
        results = compiled.run(given, None, dict(zip(inputs, lods, strict=True)))
    except (FluidError, MemoryError):  # caused by the values; any other exception is a bug
        return None
    kept = compiled.lods
    return [LoDTensor(results.pop(name), [list(level) for level in kept[name]]) for name in fetches]
