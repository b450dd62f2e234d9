"""Who holds an array: what changes variables where they lie must not change what somebody else has."""

from __future__ import annotations

from sys import getrefcount
from typing import Any

import numpy as np

from fluidtool.runtime.scope import ScopeVariable
from fluidtool.tensor import LoDTensor


def references(owner: Any, attribute: str) -> int:
    """How many references there are to what the attribute of `owner` holds, with those that counting takes."""
    return getrefcount(getattr(owner, attribute))


ONE = references(LoDTensor(np.zeros(1, np.float32)), "array")  # where nobody but the attribute holds it


def is_shared(tensor: LoDTensor) -> bool:
    """Whether somebody else has the tensor's array or a view of it, or it may not be written at all."""
    if references(tensor, "array") > ONE:  # first: `flags` hold the array, too
        return True
    flags = tensor.array.flags
    return not (flags.owndata and flags.writeable)


def holds_alone(holder: ScopeVariable | None) -> bool:
    """Whether the variable's array is its own: float32 in row-major order, not a view, and nobody else has it or a view.

    Views, fetched results, tensors that a script keeps, other variables and compiled regions all count as somebody.
    """
    if holder is None or references(holder, "value") > ONE:
        return False
    value = holder.value
    if type(value) is not LoDTensor or type(value.array) is not np.ndarray or is_shared(value):
        return False
    return value.array.dtype == np.float32 and value.array.flags.c_contiguous
