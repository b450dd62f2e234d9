"""Who refers to an array: in-place changes must not affect anyone else."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.runtime.scope import ScopeVariable
from fluidtool.tensor import LoDTensor
from fluidtool.tensor.references import ONE, references


def owner_is_shared(array: Any) -> bool:
    """Whether something else than this view refers to the array whose memory it is."""
    if references(array, "base") > ONE:
        return True
    owner = array.base
    return type(owner) is not np.ndarray or not owner.flags.owndata


def may_be_overwritten(holder: ScopeVariable | None) -> bool:
    """Whether an array of float32 is referred to by this variable only, itself or as the only view of another."""
    if holder is None or references(holder, "value") > ONE:
        return False
    tensor = holder.value
    if type(tensor) is not LoDTensor or type(tensor.array) is not np.ndarray or references(tensor, "array") > ONE:
        return False
    array = tensor.array
    if array.dtype != np.float32 or not array.flags.writeable:
        return False
    return array.flags.owndata or not owner_is_shared(array)


def is_shared(tensor: LoDTensor) -> bool:
    """Whether something else refers to the tensor's array or a view of it, or it is read-only."""
    if references(tensor, "array") > ONE:  # first: `flags` refer to the array, too
        return True
    flags = tensor.array.flags
    return not (flags.owndata and flags.writeable)


def is_alone(tensor: LoDTensor) -> bool:
    """Whether nothing else refers to the tensor's array, of any library, which is as a copy would be: row-major, writable, and
    in memory of its own.
    """
    if references(tensor, "array") > ONE or tensor.array.base is not None or not tensor.array.flags.c_contiguous:
        return False
    return type(tensor.array) is not np.ndarray or bool(tensor.array.flags.writeable)


def holds_alone(holder: ScopeVariable | None) -> bool:
    """Whether only the variable refers to its array: float32, row-major, not a view, no other reference or view.

    Views, fetched results, tensors that a script keeps, other variables and compiled regions all count as references.
    """
    if holder is None or references(holder, "value") > ONE:
        return False
    value = holder.value
    if type(value) is not LoDTensor or type(value.array) is not np.ndarray or is_shared(value):
        return False
    return value.array.dtype == np.float32 and value.array.flags.c_contiguous
