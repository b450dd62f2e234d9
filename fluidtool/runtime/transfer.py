"""Values of a scope that are on another device than the run: moved to it, as Paddle transfers the inputs of operators."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from fluidtool.ops.context import Device
from fluidtool.runtime.engines.numpy import NUMPY
from fluidtool.runtime.scope import ScopeVariable, StoredVariable
from fluidtool.tensor import LoDTensor, LoDTensorArray, SelectedRows


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
