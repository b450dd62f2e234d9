"""Steps that change the arrays of a server's variables within their own memory.

Elsewhere operators make new arrays. A server updates the same parameters for days, so here the array itself is changed,
unless it is held elsewhere: its holder (an answer under way, a checkpoint being written) keeps what it
has, and the update works on a copy. The numbers are those of the operators, bit for bit. What has no form here runs as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fluidtool.runtime.ownership import is_shared
from fluidtool.runtime.scope import ScopeVariable
from fluidtool.runtime.step import BoundStep
from fluidtool.tensor import LoDTensor, SelectedRows

Array = np.ndarray[Any, Any]
CHUNK = 1 << 14  # elements: what is worked on at a time fits into the cache
FLOATS = frozenset("fd")  # characters of float32 and float64: the name of a type is made anew each time it is asked for


class Form:
    """A step of its own making, which falls back to the one it stands for."""

    def __init__(self, step: BoundStep) -> None:
        self.step, self.context, self.release = step, step.context, step.release
        self._spare: Array = np.empty(0, np.float32)
        self._is_later = any(self.context.op.has_attr(name) for name in LATER)

    def run(self) -> None:
        """Compute."""
        if not self._run():
            self.step.run()

    def _run(self) -> bool:
        raise NotImplementedError

    def _in(self, slot: str) -> ScopeVariable | None:
        holders = self.context.inputs.get(slot, ())
        return holders[0] if holders else None

    def _in_place(self, *slots: str) -> bool:
        """Whether each of these inputs is its own output (`Param` and `ParamOut`), an array of numbers on the host."""
        if self._is_later:
            return False
        for slot in slots:
            outputs = self.context.outputs.get(f"{slot}Out", ())
            holder = self._in(slot)
            if holder is None or not outputs or outputs[0] is not holder or not is_plain(holder.value):
                return False
        return True

    def _number(self, slot: str, like: Array) -> Any:
        holder = self._in(slot)
        value = None if holder is None else holder.value
        if value is None or not is_plain(value) or value.array.size != 1:
            return None
        return value.array.reshape(()).astype(like.dtype, copy=False)

    def _work(self, like: Array) -> Array:
        """Room for one chunk."""
        if self._spare.dtype != like.dtype or not self._spare.size:
            self._spare = np.empty(CHUNK, like.dtype)
        return self._spare


LATER = ("multi_precision", "use_global_beta_pow", "regularization_method", "rescale_grad")  # of Paddle 2.x


def is_plain(value: Any) -> bool:
    """Whether it is a LoDTensor with floats in one chunk of memory on the host."""
    array = value.array if type(value) is LoDTensor else None
    return type(array) is np.ndarray and array.dtype.char in FLOATS and array.flags.c_contiguous


def owned(holder: ScopeVariable) -> Array:
    """The flat array of a variable, which may be written into: its own one, or a copy where somebody else holds that."""
    tensor: LoDTensor = holder.value
    if is_shared(tensor):
        tensor.array = tensor.array.copy()
    return tensor.array.reshape(-1)  # type: ignore[no-any-return]


def chunks(size: int) -> Iterator[slice]:
    """The chunks of a flat array, one after the other."""
    return (slice(start, min(start + CHUNK, size)) for start in range(0, size, CHUNK))


def decay(array: Array, factor: float) -> None:
    """array *= factor, in chunks."""
    for part in chunks(array.size):
        array[part] *= factor


def alike(*holders: ScopeVariable) -> bool:
    """Whether all have one shape and data type."""
    arrays = [holder.value.array for holder in holders]
    return all(array.shape == arrays[0].shape and array.dtype == arrays[0].dtype for array in arrays)


def is_gradient_of(grad: Any, parameter: ScopeVariable) -> bool:
    """Whether it is a dense gradient of a parameter."""
    like = parameter.value.array
    return is_plain(grad) and grad.array.shape == like.shape and grad.array.dtype == like.dtype


def is_rows_of(grad: Any, parameter: ScopeVariable) -> bool:
    """Whether it is a sparse gradient of a parameter, each row once."""
    return isinstance(grad, SelectedRows) and fit(grad, parameter.value.array) and are_ascending(grad.row_ids)


def fit(grad: SelectedRows, table: Array) -> bool:
    """Whether all rows are rows of the table, of its shape and data type."""
    rows, values = grad.row_ids, grad.tensor.array
    if not len(rows) or type(values) is not np.ndarray or values.dtype != table.dtype:
        return False
    return bool(values.shape == (len(rows), *table.shape[1:]) and rows.min() >= 0 and rows.max() < len(table))


def are_ascending(rows: Array) -> bool:
    """Whether each row comes once, in order, as `sum` leaves them."""
    return bool((rows[1:] > rows[:-1]).all())
