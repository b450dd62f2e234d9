"""Arrays one below the other: without a copy if they are neighboring parts of one array already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidtool.ops.context import OpContext


def joined(ctx: OpContext, arrays: Sequence[Any]) -> Any:
    """The rows of all arrays [n, ...], which have equal dimensions from the second on; at least one."""
    return _whole(ctx, arrays) if _are_neighbors(ctx, arrays) else ctx.xp.concatenate(arrays)


def _are_neighbors(ctx: OpContext, arrays: Sequence[Any]) -> bool:
    """Whether each begins where the one before ends, in the memory of one array of the host."""
    first = arrays[0]
    if type(first) is not ctx.np.ndarray or type(first.base) is not ctx.np.ndarray:
        return False
    end = _address(first)
    for array in arrays:
        if array.base is not first.base or not array.flags.c_contiguous:
            return False
        if array.nbytes and _address(array) != end:  # numpy says another address of an array without elements
            return False
        end += array.nbytes
    return True


def _address(array: Any) -> int:
    """The first byte."""
    found: int = array.__array_interface__["data"][0]
    return found


def _whole(ctx: OpContext, arrays: Sequence[Any]) -> Any:
    first = arrays[0]
    shape = (sum(len(array) for array in arrays), *first.shape[1:])
    return ctx.np.lib.stride_tricks.as_strided(first, shape, first.strides)
