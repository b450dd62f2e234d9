"""The straight way through a plan that is one stretch: no scope of its own, no variables, what is fed goes to the library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fluidtool.errors import FluidError
from fluidtool.runtime.engines.native.stretches import lod_of_value
from fluidtool.runtime.plan import Plan
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import LoDTensor


def run_straight(plan: Plan, feed: Mapping[str, Any], scope: Scope) -> list[Any] | None:
    """The fetched values; None where this run needs more.

    That is so the first time (something is to be compiled), where anything but the arrays that the stretch reads is fed,
    and where an operator fails: the long way finds out which one.
    """
    stretch = plan.block(0).sole
    if stretch is None or len(feed) != len(stretch.inputs) or len(plan.fetches) != len(stretch.outputs):
        return None
    values = [feed.get(name) for name in stretch.inputs]
    arrays = [value.array if type(value) is LoDTensor else value for value in values]
    constants = plan.bindings(scope).constants_of(stretch).arrays()
    if constants is None or not all([type(array) is np.ndarray for array in arrays]):
        return None
    lods = [lod_of_value(value) for value in values]
    with stretch.lock:
        form = stretch.form(stretch.signature(arrays, lods), constants)
    if form is None:
        return None
    try:
        given = dict(zip(stretch.inputs, arrays, strict=True))
        results = form.run(given, None, dict(zip(stretch.inputs, lods, strict=True)))
    except (FluidError, MemoryError):  # of the values at hand; any other exception is a fault of ours
        return None
    kept = form.lods
    return [LoDTensor(results.pop(name), [list(level) for level in kept[name]]) for name in plan.fetches]
