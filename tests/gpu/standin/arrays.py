"""cupy.ndarray: an array of a device, whose memory here is an array of numpy."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.gpu.standin import indexing
from tests.gpu.standin.devices import MACHINE, Device
from tests.gpu.standin.events import launch, synchronize, to_device, to_host

REFUSED_KINDS = "OSUMmV"
COMPARISONS = ("less", "less_equal", "equal", "not_equal", "greater", "greater_equal")
OPERATORS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "true_divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "power",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
    "matmul": "matmul",
    "divmod": "divmod",
}
COMPARING = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal"}
UNARY = {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert"}
METHODS = {
    "sum": "axis dtype out keepdims",
    "prod": "axis dtype out keepdims",
    "mean": "axis dtype out keepdims",
    "var": "axis dtype out ddof keepdims",
    "std": "axis dtype out ddof keepdims",
    "max": "axis out keepdims",
    "min": "axis out keepdims",
    "any": "axis out keepdims",
    "all": "axis out keepdims",
    "argmax": "axis out dtype keepdims",
    "argmin": "axis out dtype keepdims",
    "cumsum": "axis dtype out",
    "cumprod": "axis dtype out",
    "clip": "min max out",
    "round": "decimals out",
    "argsort": "axis kind",
    "ptp": "axis out keepdims",
    "diagonal": "offset axis1 axis2",
    "trace": "offset axis1 axis2 dtype out",
    "dot": "b out",
    "compress": "condition axis out",
    "nonzero": "",
    "conj": "",
    "conjugate": "",
    "swapaxes": "axis1 axis2",
    "choose": "choices out mode",
    "partition": "kth axis",
    "argpartition": "kth axis",
}
WAITING = ("nonzero", "compress")
POSITIONAL = {
    "dot": ("b",),
    "compress": ("condition",),
    "choose": ("choices",),
    "swapaxes": ("axis1", "axis2"),
    "partition": ("kth",),
    "argpartition": ("kth",),
}


def unwritten(memory: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """New memory: on a GPU it may hold anything, here bits that are NaN, or -1."""
    ctypes.memset(memory.ctypes.data, 0xFF, memory.nbytes)
    return memory


class MemoryPointer:
    """Where the memory of an array begins."""

    def __init__(self, host: np.ndarray[Any, Any], device_id: int) -> None:
        self.host, self.device_id = host, device_id

    @property
    def ptr(self) -> int:
        return self.host.ctypes.data

    def copy_from_device_async(self, src: MemoryPointer, size: int, stream: Any = None) -> None:
        MACHINE.submit(_nothing)
        MACHINE.require_no_capture()
        launch()
        into, given = (each.host.reshape(-1).view(np.uint8) for each in (self, src))
        if size and not (np.shares_memory(into, self.host) and size <= min(into.size, given.size)):
            raise ValueError(f"a copy of {size} bytes leaves an array, or the array is no block of memory")
        into[:size] = given[:size]


class ndarray:
    """An array on a device. What may be looked at without the device is a property; everything else is a launch."""

    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]
    host: np.ndarray[Any, Any]
    device: Device

    def __init__(
        self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None, order: str = "C"
    ) -> None:
        self.device = Device()
        if memptr is None:
            self.host = unwritten(np.empty(shape, dtype, order))  # type: ignore[call-overload]
        else:
            self.host = np.ndarray(shape, dtype, memptr.host)

    # -- what the host knows
    @property
    def dtype(self) -> np.dtype[Any]:
        return self.host.dtype

    @property
    def ndim(self) -> int:
        return self.host.ndim

    @property
    def size(self) -> int:
        return self.host.size

    @property
    def itemsize(self) -> int:
        return self.host.itemsize

    @property
    def nbytes(self) -> int:
        return self.host.nbytes

    @property
    def strides(self) -> tuple[int, ...]:
        return self.host.strides

    @property
    def flags(self) -> Any:
        return self.host.flags

    @property
    def shape(self) -> tuple[int, ...]:
        return self.host.shape

    @property
    def data(self) -> MemoryPointer:
        return MemoryPointer(self.host, self.device.id)

    @property
    def base(self) -> Any:
        return None if self.host.base is None else view(np.asarray(self.host.base), self)

    def __len__(self) -> int:
        return len(self.host)

    # -- the same memory, seen otherwise
    @property
    def T(self) -> ndarray:
        return view(self.host.T, self)

    @property
    def mT(self) -> ndarray:
        return view(self.host.mT, self)

    @property
    def real(self) -> ndarray:
        return view(self.host.real, self)

    @property
    def imag(self) -> ndarray:
        return view(self.host.imag, self)

    def view(self, dtype: Any = None) -> ndarray:
        return view(self.host.view() if dtype is None else self.host.view(dtype), self)

    def transpose(self, *axes: Any) -> ndarray:
        return view(self.host.transpose(*axes), self)

    def squeeze(self, axis: Any = None) -> ndarray:
        return view(self.host.squeeze(axis), self)

    def ravel(self, order: Any = "C") -> ndarray:
        return self.reshape(-1, order=order)

    def reshape(self, *shape: Any, order: Any = "C") -> ndarray:
        if len(shape) == 1 and not isinstance(shape[0], (int, np.integer)):
            shape = tuple(shape[0])
        if any(isinstance(size, ndarray) for size in shape):
            raise TypeError("'cupy.ndarray' object cannot be interpreted as an integer")
        found = self.host.reshape(shape, order=order)
        if found.size and not np.shares_memory(found, self.host):
            kernel(self)
        return view(found, self)

    # -- to the host
    def get(self, stream: Any = None, order: Any = "C", out: Any = None, blocking: bool = True) -> Any:
        to_host()
        return self.host.copy()

    def item(self, *index: Any) -> Any:
        synchronize()
        return self.host.item(*index)

    def tolist(self) -> Any:
        synchronize()
        return self.host.tolist()

    def tobytes(self, order: Any = "C") -> bytes:
        synchronize()
        return self.host.tobytes(order)

    def __bool__(self) -> bool:
        synchronize()
        return bool(self.host)

    def __int__(self) -> int:
        synchronize()
        return int(self.host)

    def __float__(self) -> float:
        synchronize()
        return float(self.host)

    def __complex__(self) -> complex:
        synchronize()
        return complex(self.host)

    def __format__(self, spec: str) -> str:
        synchronize()
        return format(self.host, spec) if self.host.ndim else format(self.host.item(), spec)

    def __repr__(self) -> str:
        return repr(self.host)

    def __iter__(self) -> Iterator[ndarray]:
        if self.host.ndim == 0:
            raise TypeError("iteration over a 0-d array")
        return (view(self.host[i, ...], self) for i in range(len(self.host)))

    def __contains__(self, item: Any) -> bool:
        raise TypeError("`in` goes through an array of the device element by element")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array explicitly."
        )

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **named: Any) -> Any:
        found = getattr(_cupy(), function.__name__, None)
        if found is None:
            return NotImplemented
        if "out" in named:
            named["out"] = named["out"][0]
        if function.__name__ in COMPARISONS:
            inputs = tuple(x.item() if isinstance(x, np.ndarray) and x.ndim == 0 else x for x in inputs)
        return (found if method == "__call__" else getattr(found, method))(*inputs, **named)

    def __array_function__(self, function: Any, types: Any, args: Any, named: Any) -> Any:
        module = _cupy()
        for part in (*function.__module__.split(".")[1:], function.__name__):
            module = getattr(module, part, None)
            if module is None:
                return NotImplemented
        return module(*args, **named)

    # -- copies on the device
    def copy(self, order: Any = "C") -> ndarray:
        """A copy on the device that the thread uses, whichever this one is on."""
        launch()
        return new(self.host.copy(order))

    def __copy__(self) -> ndarray:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> ndarray:
        return self.copy()

    def __reduce__(self) -> Any:
        return _cupy().asarray, (self.get(),)

    def flatten(self, order: Any = "C") -> ndarray:
        kernel(self)
        return new(self.host.flatten(order))

    def astype(
        self, dtype: Any, order: Any = "K", casting: Any = None, subok: Any = None, copy: bool = True
    ) -> ndarray:
        if refused(dtype):
            raise TypeError(f"Unsupported dtype {dtype}")
        if not copy and np.dtype(dtype) == self.dtype:
            return self
        kernel(self)
        with np.errstate(all="ignore"):
            return new(self.host.astype(dtype, order=order, casting=casting or "unsafe"))

    # -- writing
    def fill(self, value: Any) -> None:
        if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim):
            raise TypeError(f"Unsupported type {type(value)}")
        kernel(self, value)
        self.host.fill(value.host if isinstance(value, ndarray) else value)

    def sort(self, axis: int = -1, kind: Any = None) -> None:
        require_stable(kind)
        kernel(self)
        self.host.sort(axis=axis, kind="stable")

    def set(self, values: Any, stream: Any = None) -> None:
        to_device()
        self.host[...] = values

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, np.ndarray) and type(key) is slice and key == slice(None):
            _require_same(self, value)
            self.set(value)
            return
        chosen = indexing.read(key, self.host.shape)
        if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim):
            if not chosen.arrays:
                raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
            to_device()
            value = new(np.asarray(value))
        kernel(self, value, *chosen.on_device)
        if chosen.masks and isinstance(value, ndarray) and value.ndim:
            synchronize()
        with np.errstate(all="ignore"):
            indexing.assign(self.host, chosen, value.host if isinstance(value, ndarray) else value)

    # -- reading
    def __getitem__(self, key: Any) -> ndarray:
        if isinstance(key, str):
            raise IndexError("only integers, slices, ellipsis, None and integer or boolean arrays are valid indices")
        chosen = indexing.read(key, self.host.shape)
        if not chosen.arrays:
            return view(self.host[chosen.key], self)
        if chosen.masks:
            synchronize()
        kernel(self, *chosen.on_device)
        return new(self.host[chosen.key])

    def take(self, indices: Any, axis: Any = None, out: Any = None) -> ndarray:
        return _cupy().take(self, indices, axis, out)  # type: ignore[no-any-return]

    def repeat(self, repeats: Any, axis: Any = None) -> ndarray:
        return _cupy().repeat(self, repeats, axis)  # type: ignore[no-any-return]

    def scatter_add(self, key: Any, value: Any) -> None:
        _cupy().add.at(self, key, value)


# ---------------------------------------------------------------- between the device and the host's memory
def refused(dtype: Any) -> bool:
    """Whether cupy has no arrays of this data type."""
    found = np.dtype(dtype)
    return (found.kind in REFUSED_KINDS and found.name != "bfloat16") or found.char in "gG"


def new(values: Any) -> ndarray:
    """An array of the device that the thread uses, over this memory."""
    host = np.asarray(values)
    if refused(host.dtype):
        raise ValueError(f"Unsupported dtype {host.dtype}")
    MACHINE.require(host.nbytes)
    found = ndarray.__new__(ndarray)
    found.host, found.device = host, Device()
    return found


def view(values: Any, of: ndarray) -> ndarray:
    """An array over memory of another one, where that is."""
    found = ndarray.__new__(ndarray)
    found.host, found.device = np.asarray(values), of.device
    return found


def wrapped(values: Any) -> Any:
    """Results of numpy as arrays of the device."""
    if isinstance(values, (tuple, list)):
        items = [wrapped(item) for item in values]
        return type(values)(*items) if hasattr(values, "_fields") else type(values)(items)
    return new(values) if isinstance(values, (np.ndarray, np.generic)) else values


def unwrapped(value: Any) -> Any:
    """Arguments for numpy; arrays of numpy are refused, as cupy does."""
    if isinstance(value, ndarray):
        return value.host
    if isinstance(value, np.ndarray):
        refuse_host(value)
    if isinstance(value, (list, tuple)):
        return value if hasattr(value, "_fields") else type(value)(unwrapped(item) for item in value)
    return value


def refuse_host(value: Any) -> None:
    """Raise TypeError for an array of the host."""
    raise TypeError(f"Unsupported type {type(value)}")


def require_stable(kind: Any) -> None:
    """Raise ValueError for an algorithm of sorting that cupy lacks."""
    if kind not in (None, "stable"):
        raise ValueError(f"Unsupported sort kind {kind!r}")


def kernel(*values: Any) -> None:
    """Count a launch; raise ValueError if an array is of another device than the thread uses."""
    MACHINE.submit(_nothing)
    MACHINE.require_no_capture()
    for array in device_arrays(values):
        if array.device.id != MACHINE.current:
            raise ValueError(
                "Array device must be same as the current device: "
                f"array device = {array.device.id} while current = {MACHINE.current}"
            )
    launch()


def _nothing() -> None:
    """What numpy computes is computed where it is called."""


def device_arrays(values: Any) -> Iterator[ndarray]:
    """The arrays of the device among arguments, in lists and tuples too."""
    for value in values:
        if isinstance(value, ndarray):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from device_arrays(value)


def _require_same(array: ndarray, value: Any) -> None:
    if value.dtype != array.dtype or value.shape != array.shape:
        raise ValueError(
            "copying a numpy.ndarray to a cupy.ndarray by empty slice assignment must ensure arrays have same shape and dtype"
        )


def _cupy() -> Any:
    return sys.modules["cupy"]


# ---------------------------------------------------------------- operators and methods, which are all alike
def _binary(name: str, reflected: bool = False) -> Callable[[ndarray, Any], Any]:
    def operate(self: ndarray, other: Any) -> Any:
        if isinstance(other, np.ndarray):
            if other.ndim or name not in COMPARISONS:
                refuse_host(other)
            other = other.item()
        if isinstance(other, (list, tuple, str)) or other is None:
            return NotImplemented
        function = getattr(_cupy(), name)
        return function(other, self) if reflected else function(self, other)

    return operate


def _in_place(name: str) -> Callable[[ndarray, Any], Any]:
    def operate(self: ndarray, other: Any) -> Any:
        if isinstance(other, np.ndarray):
            refuse_host(other)
        return getattr(_cupy(), name)(self, other, out=self)

    return operate


def _unary(name: str) -> Callable[[ndarray], Any]:
    def operate(self: ndarray) -> Any:
        return getattr(_cupy(), name)(self)

    return operate


def _method(name: str, allowed: tuple[str, ...]) -> Callable[..., Any]:
    def method(self: ndarray, *args: Any, **named: Any) -> Any:
        if len(args) > len(allowed) or set(named) - set(allowed):
            raise TypeError(f"{name}() got an unexpected argument: {args} {named}; cupy takes {allowed}")
        named = {**dict(zip(allowed, args, strict=False)), **named}
        kernel(self, *named.values())
        if name in WAITING:
            synchronize()
        first = _by_position(name, named)
        with np.errstate(all="ignore"):
            found = getattr(self.host, name)(*first, **_for_numpy(name, named))
        return found if found is None else wrapped(found)

    return method


def _by_position(name: str, named: dict[str, Any]) -> list[Any]:
    """The first arguments of a method that numpy takes by position only, removed from the others."""
    return [unwrapped(named.pop(key)) for key in POSITIONAL.get(name, ()) if key in named]


def _for_numpy(name: str, named: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a method as numpy takes them."""
    if name in ("argmax", "argmin"):
        named.pop("dtype", None)
    if name == "argsort":
        require_stable(named.get("kind"))
        named["kind"] = "stable"
    return {key: unwrapped(value) for key, value in named.items() if value is not None or key == "axis"}


for _suffix, _name in OPERATORS.items():
    setattr(ndarray, f"__{_suffix}__", _binary(_name))
    setattr(ndarray, f"__r{_suffix}__", _binary(_name, reflected=True))
    if _suffix not in ("matmul", "divmod"):
        setattr(ndarray, f"__i{_suffix}__", _in_place(_name))
for _suffix, _name in COMPARING.items():
    setattr(ndarray, f"__{_suffix}__", _binary(_name))
for _suffix, _name in UNARY.items():
    setattr(ndarray, f"__{_suffix}__", _unary(_name))
for _name, _allowed in METHODS.items():
    setattr(ndarray, _name, _method(_name, tuple(_allowed.split())))
ndarray.__module__ = "cupy"
