"""Steps as the library reads them: their buffers have addresses, and are as large as the kernels need them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fluidtool.runtime.engines.native.calls import TASKS, Buffer, KernelCall
from fluidtool.runtime.engines.native.extents import ExtentError, check
from fluidtool.runtime.engines.native.library import STEP


def bind(kernel_calls: Sequence[KernelCall], address: Callable[[Buffer], int], width: int) -> NDArray[np.void]:
    """The steps for vectors of `width` floats; `address` gives the first byte of a buffer.

    Raises ExtentError for a step that would leave one of its buffers: a fault of fluidtool.
    """
    steps = np.zeros(len(kernel_calls), STEP)
    kinds, activations, pointers, sizes, numbers = (steps[name] for name in ("kind", "activation", "p", "n", "f"))
    for number, kernel_call in enumerate(kernel_calls):
        try:
            check(kernel_call, width)
        except ExtentError as error:
            name = "" if kernel_call.node is None else f" for {kernel_call.node.output.name}"
            raise ExtentError(f"the native step {kernel_call.kind.name}{name} must not run: {error}") from None
        kinds[number], activations[number] = kernel_call.kind, kernel_call.activation.kind
        for slot, (buffer, offset) in kernel_call.pointers.items():
            pointers[number, slot] = address(buffer) + 4 * offset
        row = [0] * TASKS
        for slot, size in kernel_call.sizes.items():
            row[slot] = size
        sizes[number] = (*row, kernel_call.tasks)
        found = kernel_call.numbers or kernel_call.activation.constants
        if found:
            numbers[number, : len(found)] = found
    return steps
