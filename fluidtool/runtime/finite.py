"""`FiniteCheck`: an observer that stops a run at the first operator that produces NaN or infinity."""

from __future__ import annotations

from typing import Any

from fluidtool.errors import NotFiniteError
from fluidtool.runtime.step import BoundStep, located
from fluidtool.tensor import LoDTensor, SelectedRows


class FiniteCheck:
    """Runs in place of each step (`Executor.run(observer=...)`); raises NotFiniteError naming the operator."""

    def __call__(self, step: BoundStep, block: int) -> None:
        """Run the step and check its outputs."""
        if not step.context.op.sub_blocks():
            self._given(step)
        step.run()
        op = step.context.op
        for slot, holders in step.outputs.items():
            for holder in holders:
                found = not_finite(holder.value) if holder is not None else None
                if found:
                    raise located(
                        NotFiniteError(
                            f"operator {op.type} (number {op.idx} of block {block}) made its output {slot}, variable "
                            f"{holder.name}, {found}; its inputs are finite"
                        )
                    )

    def _given(self, step: BoundStep) -> None:
        """A value that no operator computed (a feed, a parameter) is not blamed on its reader."""
        op = step.context.op
        for slot, holders in step.context.inputs.items():
            for holder in holders:
                found = not_finite(holder.value) if holder is not None else None
                if found:
                    raise located(
                        NotFiniteError(
                            f"operator {op.type} (number {op.idx} of block {op.block.idx}) reads in its input {slot} the "
                            f"variable {holder.name}, {found}; no operator computed it: it was fed or is a parameter"
                        )
                    )


def not_finite(value: Any) -> str:
    """'3 of 80 elements NaN or infinite, first at [0, 4]'; '' if all are finite."""
    array = (
        value.array if isinstance(value, LoDTensor) else value.tensor.array if isinstance(value, SelectedRows) else None
    )
    if array is None or not _floating(array):
        return ""
    import numpy as np

    array = value.numpy() if isinstance(value, LoDTensor) else value.tensor.numpy()
    usable = np.isfinite(array)
    if usable.all():
        return ""
    first = [int(index) for index in np.unravel_index(int(np.argmin(usable)), array.shape)]
    nans, total = int(np.isnan(array).sum()), int(array.size - np.count_nonzero(usable))
    kinds = (
        f"{nans} NaN and {total - nans} infinite" if 0 < nans < total else f"{total} {'NaN' if nans else 'infinite'}"
    )
    return f"with {kinds} of {array.size} elements, the first at {first}"


def _floating(array: Any) -> bool:
    return array.dtype.kind in "fc" or array.dtype.name == "bfloat16"
