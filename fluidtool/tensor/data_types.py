"""Data types: the format's numbers (`VarType`), numpy's dtypes, and the spellings that scripts use."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from fluidtool.errors import ArgumentTypeError, UnsupportedOperatorError
from fluidtool.proto.enums import VarType

_NUMPY = {
    VarType.BOOL: np.dtype(np.bool_),
    VarType.INT16: np.dtype(np.int16),
    VarType.INT32: np.dtype(np.int32),
    VarType.INT64: np.dtype(np.int64),
    VarType.FP16: np.dtype(np.float16),
    VarType.FP32: np.dtype(np.float32),
    VarType.FP64: np.dtype(np.float64),
    VarType.SIZE_T: np.dtype(np.uint64),
    VarType.UINT8: np.dtype(np.uint8),
    VarType.INT8: np.dtype(np.int8),
    VarType.COMPLEX64: np.dtype(np.complex64),
    VarType.COMPLEX128: np.dtype(np.complex128),
}
_VAR_TYPE = {dtype: var_type for var_type, dtype in _NUMPY.items()}


@cache
def _bfloat16() -> np.dtype[Any]:
    try:
        import ml_dtypes
    except ImportError as error:
        raise UnsupportedOperatorError(
            "the data type BF16 needs the package ml_dtypes; install it with: pip install 'fluidtool[bf16]'"
        ) from error
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


def numpy_dtype(data_type: int) -> np.dtype[Any]:
    """The numpy dtype of a data type number of the format; raises ArgumentTypeError for kinds that hold no numbers."""
    if data_type == VarType.BF16:
        return _bfloat16()
    try:
        return _NUMPY[VarType(data_type)]
    except (KeyError, ValueError):
        known = ", ".join(str(t.name) for t in _NUMPY)
        raise ArgumentTypeError(f"{data_type!r} is not a data type of tensors; expected one of {known}, BF16") from None


def var_type_of(dtype: Any) -> VarType:
    """The format's number of a numpy dtype (or anything that numpy takes for one)."""
    dtype = np.dtype(dtype)
    try:
        return _VAR_TYPE[dtype]
    except KeyError:
        if dtype.name == "bfloat16":
            return VarType.BF16
        raise ArgumentTypeError(
            f"numpy dtype {dtype} has no counterpart in Fluid programs; convert the array to one of "
            f"{', '.join(str(d) for d in _VAR_TYPE)}"
        ) from None


def as_data_type(dtype: Any) -> VarType:
    """A data type from any spelling: VarType, its number, 'float32', 'FP32', np.float32, an array's dtype."""
    if isinstance(dtype, VarType):
        return dtype
    if isinstance(dtype, int) and not isinstance(dtype, bool):
        return VarType(dtype)
    if isinstance(dtype, str):
        if dtype in VarType.__members__:
            return VarType[dtype]
        if dtype in ("bfloat16", "uint16"):
            return VarType.BF16
    try:
        return var_type_of(dtype)
    except TypeError:
        raise ArgumentTypeError(
            f"{dtype!r} is not a data type; expected a name such as 'float32' or 'int64', a numpy dtype or a VarType"
        ) from None
