"""cupy.ufunc: elementwise functions, for the data types that cupy has loops for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.gpu.standin import indexing
from tests.gpu.standin.arrays import kernel, ndarray, new, unwrapped, wrapped
from tests.gpu.standin.events import atomics, to_device

ATOMIC = {
    "add": "iIlLqQefd",
    "subtract": "iI",
    "maximum": "iIlLqQfd",
    "minimum": "iIlLqQfd",
    "bitwise_and": "iIlLqQ",
    "bitwise_or": "iIlLqQ",
    "bitwise_xor": "iIlLqQ",
}
REDUCING = {"add": "sum", "multiply": "prod"}
ACCUMULATING = {"add": "cumsum", "multiply": "cumprod"}


class ufunc:
    """An elementwise function with the loops of cupy. compute: what numpy has for it."""

    def __init__(self, name: str, loops: tuple[str, ...], compute: Callable[..., Any], nin: int, nout: int) -> None:
        self.name = self.__name__ = name
        self.types, self.nin, self.nout = list(loops), nin, nout
        self._loops = [tuple(loop.split("->")) for loop in loops]
        self._compute = compute

    def __call__(self, *args: Any, **named: Any) -> Any:
        if unknown := set(named) - {"out", "dtype", "casting"}:
            raise TypeError(f"Wrong arguments {unknown}")
        out = named.pop("out", None)
        out = out[0] if isinstance(out, tuple) else out
        for arg in args:
            if isinstance(arg, (list, tuple, np.ndarray)) or arg is None:
                raise TypeError(f"Unsupported type {type(arg)}")
        if out is not None and not isinstance(out, ndarray):
            raise TypeError("output must be a cupy.ndarray")
        kernel(*args, out)
        values = [unwrapped(arg) for arg in args]
        result = self._result(values[: self.nin]) if named.get("dtype") is None else None
        if out is not None:
            named["out"] = out.host
        with np.errstate(all="ignore"):
            found = self._compute(*values, **named)
        if out is not None:
            return out
        return args[self.nin] if len(args) > self.nin else self._typed(found, result)

    def _typed(self, found: Any, result: str | None) -> Any:
        """The result in the data type that cupy gives it."""
        if self.nout > 1 or result in (None, "E"):
            return wrapped(found)
        return new(np.asarray(found).astype(result, copy=False))

    def _result(self, values: list[Any]) -> str | None:
        """The data type of the result, by the first loop that takes the arguments; None if numpy's rules for numbers decide."""
        if not values or not all(isinstance(value, (np.ndarray, np.generic)) for value in values):
            return None
        dtypes = [value.dtype for value in values]
        for inputs, outputs in self._loops:
            if all(map(_fits, dtypes, inputs)):
                return outputs
        raise TypeError(f"Wrong type ({[str(dtype) for dtype in dtypes]}) of arguments for cupy_{self.name}")

    def at(self, array: Any, key: Any, values: Any = None) -> None:
        """Add (or another operation) at indices, atomically."""
        if self.name not in ATOMIC:
            raise NotImplementedError(f"`cupy_{self.name}.at` is not supported yet")
        if not isinstance(array, ndarray):
            raise AttributeError("'numpy.ndarray' object has no attribute '_scatter_op'")
        if array.dtype.char not in ATOMIC[self.name]:
            raise TypeError(f"cupy.{self.name}.at only supports {ATOMIC[self.name]} as data type, found {array.dtype}")
        chosen = indexing.read(key, array.shape)
        kernel(array, values, *chosen.on_device)
        if self.name == "add" and array.dtype.kind == "f":
            atomics()
        given = np.asarray(values if isinstance(values, np.ndarray) else unwrapped(values))
        getattr(np, self.name).at(array.host, chosen.key, given.astype(array.dtype, copy=False))

    def reduce(self, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        """The sum or the product along axes; cupy has no others."""
        if self.name not in REDUCING:
            raise NotImplementedError(f"`cupy_{self.name}.reduce` is not supported yet")
        return getattr(array, REDUCING[self.name])(axis, dtype, out, keepdims)

    def accumulate(self, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Any:
        """The running sum or product along an axis; cupy has no others."""
        if self.name not in ACCUMULATING:
            raise NotImplementedError(f"`cupy_{self.name}.accumulate` is not supported yet")
        return getattr(array, ACCUMULATING[self.name])(axis, dtype, out)

    def reduceat(self, array: Any, indices: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        """Sums of slices; cupy has no others."""
        if self.name != "add":
            raise NotImplementedError(f"`cupy_{self.name}.reduceat` is not supported yet")
        if not isinstance(indices, ndarray):
            to_device()
            indices = new(np.asarray(indices))
        kernel(array, indices)
        return new(np.add.reduceat(array.host, indices.host, axis, dtype))

    def outer(self, a: Any, b: Any, **named: Any) -> Any:
        """The function of all pairs of elements."""
        kernel(a, b)
        return new(getattr(np, self.name).outer(unwrapped(a), unwrapped(b)))


def _fits(dtype: np.dtype[Any], char: str) -> bool:
    """Whether a loop takes an argument; 'E' is bfloat16."""
    if dtype.name == "bfloat16" or char == "E":
        return dtype.name == "bfloat16" and char == "E"
    return np.can_cast(dtype, char)
