"""`numpy.array` and `numpy.asarray` with their old behavior."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from fluidtool.compat.removed.notes import Notes
from fluidtool.fluid.fetched import FetchedArray, fetched_array
from fluidtool.tensor import LoDTensor


def of_old(function: Callable[..., Any], notes: Notes) -> Callable[..., Any]:
    """The function, with four behaviors of older numpy.

    Arrays created from fetched values are FetchedArray, too. `copy=False` copies if it must. Rows of different
    lengths make an array of objects, and integers that a type is too small for lose their upper bits, both with a note.
    """

    @wraps(function)
    def make(value: Any = None, *args: Any, **named: Any) -> Any:
        if named.get("copy") is False:
            del named["copy"]
            make_of = _without_copy
        else:
            make_of = function
        try:
            array = make_of(value, *args, **named)
        except ValueError as error:
            if "inhomogeneous" not in str(error) or args or named.get("dtype") is not None:
                raise
            notes.say("numpy no longer accepts rows of different lengths; fluidtool makes an array of objects")
            return function(value, dtype=object)
        except OverflowError as error:
            dtype = args[0] if args else named.get("dtype")
            if "out of bounds" not in str(error) or dtype is None:
                raise
            notes.say("numpy no longer accepts integers beyond the range of a type; fluidtool drops their upper bits")
            return function(value).astype(dtype)
        return fetched_array(array) if _is_fetched(value) else array

    return make


def _without_copy(value: Any, *args: Any, **named: Any) -> Any:
    import numpy as np

    return np.asanyarray(value, *args) if named.pop("subok", False) else np.asarray(value, *args, **named)


def _is_fetched(value: Any) -> bool:
    if type(value) in (list, tuple) and value:
        return _is_fetched(value[0])
    return isinstance(value, (FetchedArray, LoDTensor))
