"""LoDTensor, an array with level-of-detail offsets, and LoDTensorArray, a list of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from typing import Any

import numpy as np

from fluidtool.errors import ArgumentTypeError, LoDError, OperatorError, UninitializedError
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text
from fluidtool.tensor.data_types import numpy_dtype, var_type_of
from fluidtool.tensor.lod import LoD, check_lod, lengths_to_offsets, lod_fault, offsets_to_lengths
from fluidtool.tensor.place import CPUPlace, CUDAPlace, Place

_CPP_TYPES = {
    "float16": "::paddle::platform::float16",
    "float32": "float",
    "float64": "double",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int16": "int16_t",
    "int32": "int",
    "int64": "int64_t",
}


class LoDTensor:
    """An array (numpy or cupy, any shape and data type) and its LoD as offsets.

    A new one has no memory: it may have dimensions, but reading it raises UninitializedError.
    Operators replace `array` and never write into it, so arrays may be shared freely.
    """

    __slots__ = ("_dims", "array", "offsets")

    def __init__(self, array: Any = None, offsets: LoD | None = None) -> None:
        self.array = array
        self.offsets: LoD = [] if offsets is None else offsets
        self._dims: tuple[int, ...] = (0,)

    # -- memory
    def set(self, array: Any, place: Place | None = None) -> None:
        """Copy in `array` (anything that numpy understands); on a CUDAPlace the copy goes to that GPU."""
        if isinstance(array, LoDTensor):
            array = array.numpy()
        if isinstance(place, CUDAPlace):
            import cupy

            with cupy.cuda.Device(place.device_id):
                self.array = cupy.array(array)
        else:
            self.array = np.array(array, order="C")
        var_type_of(self.array.dtype)

    def numpy(self) -> np.ndarray[Any, Any]:
        """The value on the host; raises UninitializedError when there is no memory."""
        if self.array is None:
            raise UninitializedError("the tensor has no memory: it was neither set, nor loaded, nor computed")
        if isinstance(self.array, np.ndarray):
            return self.array
        return np.asarray(self.array.get() if hasattr(self.array, "get") else self.array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """The value on the host; an empty one without memory (Paddle 1.8.5 tensor_py.h)."""
        array = np.empty(0) if self.array is None else self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack__(self, **kwargs: Any) -> Any:
        """The array for other libraries, without a copy; raises UninitializedError when there is no memory."""
        self.numpy()
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        self.numpy()
        device: tuple[int, int] = self.array.__dlpack_device__()
        return device

    def shape(self) -> list[int]:
        """The dimensions; [0] for a fresh tensor."""
        return [int(size) for size in (self._dims if self.array is None else self.array.shape)]

    def set_dims(self, dims: Iterable[int]) -> None:
        """Give a tensor without memory its dimensions; a tensor with memory is reshaped."""
        self._dims = tuple(int(size) for size in dims)
        if self.array is not None:
            self.array = self.array.reshape(self._dims)

    def dtype(self) -> VarType:
        """The data type as the format's number; raises UninitializedError without memory."""
        return var_type_of(self.array.dtype if self.array is not None else self.numpy().dtype)

    def is_initialized(self) -> bool:
        """Whether there is memory to read."""
        return self.array is not None

    def place(self) -> Place:
        """Where the memory is."""
        device: Any = getattr(self.array, "device", None)
        return CUDAPlace(int(device.id)) if hasattr(device, "id") else CPUPlace()

    def clear(self) -> None:
        """Drop the memory and the LoD."""
        self.array, self.offsets, self._dims = None, [], (0,)

    # -- elements
    def __getitem__(self, index: Any) -> LoDTensor:
        """A part, without LoD: a number or a slice for each of the first axes; every axis stays (Paddle 1.8.5).

        Raises IndexError for an index beyond the shape.
        """
        given = index if isinstance(index, tuple) else (index,)
        shape = self.shape()
        if len(given) > len(shape) or not all(isinstance(each, (int, np.integer, slice)) for each in given):
            raise IndexError(
                f"a tensor of shape {shape_text(shape)} is indexed by at most {len(shape)} numbers and slices, found {index!r}"
            )
        parts = [
            each if isinstance(each, slice) else _one(int(each), size) for each, size in zip(given, shape, strict=False)
        ]
        return LoDTensor(self.array[tuple(parts)])

    def _element(self, index: int, dtype: str) -> Any:
        """The array and a check of the index; raises OperatorError for another data type or a number beyond the last."""
        array = self.numpy()
        if array.dtype != dtype:
            raise OperatorError(f"Tensor holds the wrong type, it holds {array.dtype}, but desires to be {dtype}.")
        if not 0 <= index < array.size:
            raise OperatorError(f"the tensor has {array.size} elements, found element {index}")
        return array

    def _get_element(self, index: int, dtype: str) -> float:
        return float(self._element(index, dtype).reshape(-1)[index])

    def _set_element(self, index: int, value: float, dtype: str) -> None:
        array = self._element(index, dtype).copy()
        array.reshape(-1)[index] = value
        self.set(array, self.place())

    def _get_float_element(self, index: int) -> float:
        return self._get_element(index, "float32")

    def _get_double_element(self, index: int) -> float:
        return self._get_element(index, "float64")

    def _set_float_element(self, index: int, value: float) -> None:
        self._set_element(index, value, "float32")

    def _set_double_element(self, index: int, value: float) -> None:
        self._set_element(index, value, "float64")

    def _allocate(self, place: Place, dtype: str) -> None:
        self.set(np.zeros(self.shape(), dtype), place)

    def _alloc_float(self, place: Place) -> None:
        self._allocate(place, "float32")

    def _alloc_double(self, place: Place) -> None:
        self._allocate(place, "float64")

    def _alloc_int(self, place: Place) -> None:
        self._allocate(place, "int32")

    def _mutable_data(self, place: Place, dtype: VarType) -> int:
        """The address of memory of its own for the dimensions; what was in it stays if it is of that data type."""
        wanted = numpy_dtype(dtype)
        if self.array is not None and self.array.dtype == wanted:
            self.set(self.array, place)
        else:
            self._allocate(place, wanted.name)
        return int(self.array.ctypes.data if isinstance(self.array, np.ndarray) else self.array.data.ptr)

    def _to_dlpack(self) -> Any:
        """A DLPack capsule of a copy of the value."""
        self.numpy()
        return self.array.copy().__dlpack__()

    # -- level of detail
    def lod(self) -> LoD:
        """The LoD as offsets, outermost level first."""
        return [list(level) for level in self.offsets]

    def set_lod(self, lod: Sequence[Sequence[int]]) -> None:
        """Set the LoD from offsets; raises LoDError when it cannot describe this tensor, ArgumentTypeError for no integers."""
        try:
            offsets = [[index(offset) for offset in level] for level in lod]
        except TypeError:
            raise ArgumentTypeError(f"a LoD must be lists of integers, found {lod!r}") from None
        check_lod(offsets, len(self.array) if self.array is not None and self.array.ndim else None, "the tensor")
        self.offsets = offsets

    def recursive_sequence_lengths(self) -> LoD:
        """The LoD as lengths, outermost level first."""
        return offsets_to_lengths(self.offsets)

    def set_recursive_sequence_lengths(self, lengths: Sequence[Sequence[int]]) -> None:
        """Set the LoD from lengths; raises LoDError when it cannot describe this tensor, ArgumentTypeError for no integers."""
        try:
            negative = any(index(length) < 0 for level in lengths for length in level)
        except TypeError:
            raise ArgumentTypeError(f"sequence lengths must be lists of integers, found {lengths!r}") from None
        if negative:
            raise LoDError(f"sequence lengths must not be negative, found {[list(level) for level in lengths]}")
        self.set_lod(lengths_to_offsets(lengths))

    def has_valid_recursive_sequence_lengths(self) -> bool:
        """Whether the LoD fits the rows."""
        rows = len(self.array) if self.array is not None and self.array.ndim else None
        return lod_fault(self.offsets, rows) is None

    def __str__(self) -> str:
        """Paddle's text of a tensor: LoD, dimensions and every number, with six digits."""
        if self.array is None:
            return repr(self)
        lod = "".join(f"{{{', '.join(map(str, level))}}}" for level in self.offsets)
        kind = _CPP_TYPES.get(self.array.dtype.name, self.array.dtype.name)
        numbers = " ".join(f"{number:g}" if isinstance(number, float) else str(int(number)) for number in self._flat())
        dims = ", ".join(map(str, self.shape()))
        return f"\tlod: {{{lod}}}\n\tdim: {dims}\n\tlayout: NCHW\n\tdtype: {kind}\n\tdata: [{numbers}]\n"

    def _flat(self) -> list[Any]:
        array = self.numpy()
        return list((array.astype("float64") if array.dtype.kind not in "biu" else array).ravel().tolist())

    def __repr__(self) -> str:
        if self.array is None:
            return f"LoDTensor(no memory, dims={shape_text(self.shape())})"
        return (
            f"LoDTensor(shape={shape_text(self.shape())}, dtype={self.array.dtype}, lod={self.offsets})\n{self.array!r}"
        )

    # the names of paddle.fluid.core
    _is_initialized = is_initialized
    _set_dims = set_dims
    _get_dims = shape
    _dtype = dtype
    _place = place
    _clear = clear
    get_shape = shape


def _one(index: int, size: int) -> slice:
    """The slice that is one number; raises IndexError beyond the size."""
    if not -size <= index < size:
        raise IndexError(f"index {index} is beyond an axis of size {size}")
    return slice(index, index + 1 or None)


class _Capsule:
    """What numpy takes for a DLPack producer in host memory."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def from_dlpack(capsule: Any) -> LoDTensor:
    """The LoDTensor of a DLPack capsule in host memory, with memory of its own."""
    return LoDTensor(np.from_dlpack(_Capsule(capsule)).copy())


class LoDTensorArray(list[LoDTensor]):
    """A list of LoDTensors; an item without memory stands for a position that was never written."""

    def append(self, item: Any) -> None:
        """Append a LoDTensor, or anything that a LoDTensor can be set from."""
        if not isinstance(item, LoDTensor):
            tensor = LoDTensor()
            tensor.set(item)
            item = tensor
        super().append(item)
