"""Steps as the library reads them: their buffers have addresses, and are as large as the kernels need them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fluidtool.runtime.engines.native.extents import ExtentError, check
from fluidtool.runtime.engines.native.library import STEP
from fluidtool.runtime.engines.native.steps import TASKS, Buffer, Draft


def bind(drafts: Sequence[Draft], address: Callable[[Buffer], int], width: int) -> NDArray[np.void]:
    """The steps for vectors of `width` floats; `address` gives the first byte of a buffer.

    Raises ExtentError for a step that would leave one of its buffers: a fault of fluidtool.
    """
    steps = np.zeros(len(drafts), STEP)
    kinds, activations, pointers, sizes, numbers = (steps[name] for name in ("kind", "activation", "p", "n", "f"))
    for number, draft in enumerate(drafts):
        try:
            check(draft, width)
        except ExtentError as error:
            name = "" if draft.node is None else f" for {draft.node.output.name}"
            raise ExtentError(f"the native step {draft.kind.name}{name} must not run: {error}") from None
        kinds[number], activations[number] = draft.kind, draft.activation.kind
        for slot, (buffer, offset) in draft.pointers.items():
            pointers[number, slot] = address(buffer) + 4 * offset
        row = [0] * TASKS
        for slot, size in draft.sizes.items():
            row[slot] = size
        sizes[number] = (*row, draft.tasks)
        found = draft.numbers or draft.activation.constants
        if found:
            numbers[number, : len(found)] = found
    return steps
