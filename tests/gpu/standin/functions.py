"""The functions of cupy, and of its parts for linear algebra and Fourier transforms."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.gpu.standin.arrays import (
    device_arrays,
    kernel,
    ndarray,
    new,
    refuse_host,
    require_stable,
    unwrapped,
    unwritten,
    view,
    wrapped,
)
from tests.gpu.standin.devices import MACHINE
from tests.gpu.standin.events import atomics, synchronize, to_device
from tests.gpu.standin.indexing import wrap
from tests.gpu.standin.names import Name, names
from tests.gpu.standin.ufuncs import ufunc


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Functions whose first argument may be something else than an array: shapes, lists of arrays, numbers.
TAKES_OTHERS = _words(
    "concatenate concat stack hstack vstack dstack column_stack row_stack zeros ones empty full einsum ix_ indices "
    "unravel_index ravel_multi_index block select identity eye linspace arange tri meshgrid broadcast_arrays choose "
    "tril_indices triu_indices atleast_1d atleast_2d atleast_3d fromiter frombuffer logspace bartlett hanning hamming "
    "blackman kaiser diag_indices mask_indices"
)
# Functions that look at data types and shapes only, and take arrays of the host too.
OF_TYPES = _words(
    "result_type can_cast promote_types issubdtype isscalar broadcast_shapes min_scalar_type common_type ndim shape size "
    "iscomplexobj isrealobj format_float_positional may_share_memory shares_memory"
)
WITHOUT_LAUNCH = OF_TYPES | _words(
    "transpose swapaxes moveaxis rollaxis broadcast_to expand_dims squeeze split array_split empty empty_like atleast_1d "
    "atleast_2d sliding_window_view as_strided broadcast_arrays diagonal flip"
)
WAITING = _words(
    "nonzero flatnonzero argwhere unique bincount unique_values unique_inverse unique_counts extract setdiff1d intersect1d "
    "union1d histogram trim_zeros compress"
)
SORTING = ("sort", "argsort")
OF_PYTHON = ("type", "float", "bool")  # the kinds of names that stand for the same thing in numpy


def asnumpy(a: Any, stream: Any = None, order: Any = "C", out: Any = None, *, blocking: bool = True) -> Any:
    """A copy on the host; an array of the host is returned as it is."""
    return a.get() if isinstance(a, ndarray) else np.asarray(a, order=order)


def array(
    obj: Any,
    dtype: Any = None,
    copy: bool | None = True,
    order: Any = "K",
    subok: bool = False,
    ndmin: int = 0,
    *,
    blocking: bool = False,
) -> Any:
    """An array on the device that the thread uses, from anything."""
    if isinstance(obj, ndarray):
        return _from_device(obj, dtype, copy, order, ndmin)
    if isinstance(obj, (list, tuple)) and _has_device(obj):
        kernel(obj)
        obj = unwrapped(obj)
    else:
        to_device()
    with np.errstate(all="ignore"):
        return new(np.array(obj, dtype=dtype, order=order or "C", ndmin=ndmin))


def asarray(a: Any, dtype: Any = None, order: Any = None, *, copy: bool | None = None, blocking: bool = False) -> Any:
    """An array on the device that the thread uses; one that is there is returned as it is."""
    return array(a, dtype, copy, order)


def ascontiguousarray(a: Any, dtype: Any = None) -> Any:
    """An array in row-major order."""
    if not isinstance(a, ndarray):
        return array(a, dtype, None, "C")
    if a.flags.c_contiguous and (dtype is None or np.dtype(dtype) == a.dtype):
        return a
    kernel(a)
    return new(np.ascontiguousarray(a.host, dtype))


def _from_device(given: ndarray, dtype: Any, copy: bool | None, order: Any, ndmin: int) -> Any:
    elsewhere = given.device.id != MACHINE.current
    if elsewhere:
        given = given.copy()
    if elsewhere or not (copy or (dtype is not None and np.dtype(dtype) != given.dtype) or ndmin > given.ndim):
        return given
    kernel(given)
    return new(np.array(given.host, dtype=dtype, order=order or "K", ndmin=ndmin))


def _has_device(values: Any) -> bool:
    return any(isinstance(v, ndarray) or (isinstance(v, (list, tuple)) and _has_device(v)) for v in values)


def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """x where the condition holds, else y; the condition is an array."""
    if x is None and y is None:
        return condition.nonzero()
    if isinstance(condition, np.ndarray):
        refuse_host(condition)
    if not isinstance(condition, (ndarray, np.generic)):
        raise AttributeError(f"'{type(condition).__name__}' object has no attribute 'astype'")
    for value in (x, y):
        if isinstance(value, (np.ndarray, list, tuple)):
            refuse_host(value)
    kernel(condition, x, y)
    return new(np.where(unwrapped(condition), unwrapped(x), unwrapped(y)))


def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = None) -> None:
    """Write the values of one array into another."""
    kernel(dst, src, where)
    np.copyto(dst.host, unwrapped(src), casting=casting, **({} if where is None else {"where": unwrapped(where)}))


def take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: Any = None) -> Any:
    """Elements by their numbers, which wrap around."""
    if not isinstance(indices, ndarray):
        to_device()
        indices = new(np.asarray(indices))
    kernel(a, indices)
    size = a.size if axis is None else a.shape[axis]
    return new(np.take(a.host, wrap(indices.host, size), axis))


def take_along_axis(arr: Any, indices: Any, axis: Any) -> Any:
    """Elements along an axis by their numbers, which wrap around."""
    if not isinstance(arr, ndarray) or not isinstance(indices, ndarray):
        raise AttributeError("cupy.take_along_axis takes arrays")
    kernel(arr, indices)
    size = arr.size if axis is None else arr.shape[axis]
    return new(np.take_along_axis(arr.host, wrap(indices.host, size), axis))


def repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    """Elements repeated; how often is known on the host."""
    if isinstance(repeats, (ndarray, np.ndarray)):
        raise ValueError("an array cannot be specified as `repeats` argument.")
    kernel(a)
    return new(np.repeat(a.host, repeats, axis))


def lexsort(keys: Any) -> Any:
    """The order of columns of keys, the last of which is the most important."""
    if isinstance(keys, (list, tuple)):
        raise AttributeError(f"'{type(keys).__name__}' object has no attribute 'ndim'")
    if keys.ndim > 2:
        raise NotImplementedError("Keys with the rank of three or more is not supported in lexsort")
    kernel(keys)
    return new(np.lexsort(keys.host))


def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """Where values belong in a sorted array."""
    if not isinstance(a, ndarray) or not isinstance(v, ndarray):
        raise NotImplementedError("Only int or ndarray are supported for a and v")
    kernel(a, v, sorter)
    return new(np.searchsorted(a.host, v.host, side, unwrapped(sorter)))  # type: ignore[call-overload]


def matmul(*args: Any, **named: Any) -> Any:
    """The product of matrices."""
    if unknown := set(named) - {"axes", "axis", "keepdims", "casting", "dtype", "signature", "order", "out"}:
        raise TypeError(f"Wrong arguments {unknown}")
    for value in args[:2]:
        if not isinstance(value, ndarray):
            raise TypeError(f"Unsupported type {type(value)}")
    kernel(*args, *named.values())
    out = named.get("out")
    with np.errstate(all="ignore"):
        found = np.matmul(*map(unwrapped, args), **{key: unwrapped(value) for key, value in named.items()})
    return new(found) if out is None else out


OWN: dict[str, Any] = {
    function.__name__: function
    for function in (
        asnumpy,
        array,
        asarray,
        ascontiguousarray,
        where,
        copyto,
        take,
        take_along_axis,
        repeat,
        lexsort,
        searchsorted,
        matmul,
    )
} | {"asanyarray": asarray, "ndarray": ndarray, "ufunc": ufunc, "newaxis": None, "dtype": np.dtype, "bool": np.bool_}


def filled(part: str, library: Any) -> dict[str, Any]:
    """What stands for the names of a part of cupy: what numpy has for them, checked and counted."""
    found = {name: _stand_in(name, entry, library) for name, entry in names(part).items()}
    return {name: value for name, value in found.items() if value is not None}


def _stand_in(name: str, entry: Name, library: Any) -> Any:
    target = getattr(library, name, None)
    if entry.kind == "ufunc":
        return ufunc(name, entry.loops, target, target.nin, target.nout) if isinstance(target, np.ufunc) else None
    if entry.kind in ("function", "builtin_function_or_method", "_GUFunc"):
        return _function(name, entry.signature, target) if callable(target) else None
    return target if entry.kind in OF_PYTHON else None


def _function(name: str, signature: inspect.Signature | None, target: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(target)
    def call(*args: Any, **named: Any) -> Any:
        if signature is not None:
            signature.bind(*args, **named)
        if name in OF_TYPES:
            return target(*map(_stripped, args), **named)
        _require_array(name, args)
        _count(name, args, named)
        with np.errstate(all="ignore"):
            found = target(*map(unwrapped, args), **_for_numpy(name, named))
        return named["out"] if isinstance(named.get("out"), ndarray) else _result(name, found, args)

    return call


def _result(name: str, found: Any, args: tuple[Any, ...]) -> Any:
    """The result as arrays: on the device of the thread, or over the memory of the first argument."""
    if name in ("empty", "empty_like"):
        return wrapped(unwritten(found))
    source = next(device_arrays(args), None)
    if name in WITHOUT_LAUNCH and isinstance(found, np.ndarray) and source is not None:
        return view(found, source)
    return wrapped(found)


def _stripped(value: Any) -> Any:
    return value.host if isinstance(value, ndarray) else value


def _require_array(name: str, args: tuple[Any, ...]) -> None:
    if args and name not in TAKES_OTHERS and isinstance(args[0], (list, tuple, int, float)):
        raise AttributeError(f"cupy.{name} takes an array first, found {type(args[0]).__name__}")


def _count(name: str, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    if name in WAITING:
        synchronize()
    if name == "bincount" and (len(args) > 1 or named.get("weights") is not None):
        atomics()
    if name not in WITHOUT_LAUNCH:
        kernel(*args, *named.values())


def _for_numpy(name: str, named: dict[str, Any]) -> dict[str, Any]:
    found = {key: unwrapped(value) for key, value in named.items() if value is not None or key == "axis"}
    if name in SORTING:
        require_stable(found.get("kind"))
        found["kind"] = "stable"
    return found
