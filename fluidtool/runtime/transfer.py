"""Values of a scope that are on another device than the run: moved to it, as Paddle transfers the inputs of operators."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from fluidtool.ops.context import Device
from fluidtool.runtime.engines.numpy import NUMPY
from fluidtool.runtime.scope import ScopeVariable, StoredVariable
from fluidtool.tensor import LoDTensor, LoDTensorArray, SelectedRows


class CopiedVariable(ScopeVariable):
    """A variable that another device holds: its value is a copy on this one, made again once the source has other values.

    Setting the value makes it a variable of its own.
    """

    __slots__ = ("_copied", "_device", "_own", "_source")

    def __init__(self, source: ScopeVariable, device: Device) -> None:
        self._source: ScopeVariable | None = source
        self._device, self._own = device, None
        self._copied: Callable[[], Any] = _nothing
        super().__init__(source.name)
        self._source = source

    @property
    def value(self) -> Any:
        """The copy."""
        source = self._source
        if source is not None:
            value = source.value
            array = _array_of(value)
            if array is None or array is not self._copied():
                self._own = moved(value, self._device)
                self._copied = _nothing if array is None else weakref.ref(array)
        return self._own

    @value.setter
    def value(self, value: Any) -> None:
        self._source, self._own = None, value

    @property
    def is_copy(self) -> bool:
        """Whether the value is still the source's."""
        return self._source is not None


def _nothing() -> None:
    return None


def _array_of(value: Any) -> Any:
    """The array that stands for a tensor or its rows; None for other values."""
    tensor = value.tensor if isinstance(value, SelectedRows) else value
    return tensor.array if isinstance(tensor, LoDTensor) else None


def may_be_elsewhere() -> bool:
    """Whether this process may have values on a GPU."""
    return "cupy" in sys.modules


def move_here(holders: Iterable[ScopeVariable], device: Device) -> None:
    """Put the values of variables on the device; those that are there already, or in a file for the host, stay."""
    for holder in holders:
        if device is NUMPY and isinstance(holder, StoredVariable) and holder.load is not None:
            continue
        value = holder.value
        if not is_here(value, device):
            holder.value = moved(value, device)


def is_here(value: Any, device: Device) -> bool:
    """Whether all arrays of a value are on the device."""
    if isinstance(value, SelectedRows):
        value = value.tensor
    if isinstance(value, LoDTensor):
        return value.array is None or device.holds(value.array)
    return not isinstance(value, LoDTensorArray) or all(is_here(item, device) for item in value)


def moved(value: Any, device: Device) -> Any:
    """The same value with its arrays on the device."""
    if isinstance(value, LoDTensor):
        return value if value.array is None else LoDTensor(device.array(value.array), value.offsets)
    if isinstance(value, SelectedRows):
        return SelectedRows(value.row_ids, value.table_height, moved(value.tensor, device).array)
    return LoDTensorArray(moved(item, device) for item in value) if isinstance(value, LoDTensorArray) else value
