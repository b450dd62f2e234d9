"""How many refer to an array: memory to which nothing else refers may be written again."""

from __future__ import annotations

from collections.abc import Iterable
from sys import getrefcount
from typing import Any

import numpy as np

from fluidtool.tensor.lod_tensor import LoDTensor


def references(owner: Any, attribute: str) -> int:
    """The reference count of an attribute's value, including the references that counting adds."""
    return getrefcount(getattr(owner, attribute))


def are_alone(tensors: Iterable[Any]) -> bool:
    """Whether nothing but its tensor refers to any of their arrays."""
    return all([getrefcount(tensor.array) <= ONE for tensor in tensors])


ONE = references(LoDTensor(np.zeros(1, np.float32)), "array")  # if only the attribute refers to it
