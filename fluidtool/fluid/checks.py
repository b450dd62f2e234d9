"""Checks of layer arguments, with the errors that Paddle 1.8.5 raises (data_feeder.py)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import index
from typing import Any

from fluidtool.errors import ArgumentTypeError, AssertedError, UsageError, WrongKindError
from fluidtool.ir import Variable
from fluidtool.ir.variable import data_type, data_type_name
from fluidtool.proto.enums import VarType

DATA_TYPES = ("bool", "float16", "uint16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8")


def convert_dtype(dtype: Any) -> str:
    """'float32' from any spelling of a data type; raises WrongKindError for plain numbers."""
    if isinstance(dtype, int) and not isinstance(dtype, VarType):
        raise WrongKindError(f"dtype must be any of {list(DATA_TYPES)}, found {dtype!r}")
    return data_type_name(data_type(dtype))


def check_type(input: Any, input_name: str, expected_type: Any, op_name: str, extra_message: str = "") -> None:
    """Raise ArgumentTypeError (a TypeError) unless `input` is of the expected type or one of them."""
    if not isinstance(input, expected_type):
        raise ArgumentTypeError(
            f"The type of '{input_name}' in {op_name} must be {expected_type}, but received {type(input)}. {extra_message}"
        )


def check_given(**arguments: object) -> None:
    """Raise AssertedError (an AssertionError) if one of these arguments is None."""
    for name, value in arguments.items():
        if value is None:
            raise AssertedError(f"{name} must be given, found None")


def check_set(**arguments: object) -> None:
    """Raise UsageError (a ValueError) if one of these arguments is None."""
    for name, value in arguments.items():
        if value is None:
            raise UsageError(f"{name} is not set, found None")


def declared_sizes(shape: Sequence[int | None], op_name: str) -> list[int]:
    """A shape whose None are sizes known only at run time, -1; raises ArgumentTypeError for what is not an integer."""
    try:
        return [-1 if size is None else index(size) for size in shape]
    except TypeError:
        raise ArgumentTypeError(f"'shape' in {op_name} must have integers and None, found {shape!r}") from None


def check_dtype(
    input_dtype: Any, input_name: str, expected_dtype: Collection[str], op_name: str, extra_message: str = ""
) -> None:
    """Raise ArgumentTypeError (a TypeError) unless the data type is one of the expected names."""
    found = convert_dtype(input_dtype)
    if found not in DATA_TYPES:
        raise WrongKindError(
            f"dtype of '{input_name}' in {op_name} must be any of {list(DATA_TYPES)}, but received {found}"
        )
    if found not in expected_dtype:
        raise ArgumentTypeError(
            f"The data type of '{input_name}' in {op_name} must be {list(expected_dtype)}, but received {found}. "
            f"{extra_message}"
        )


def check_variable_and_dtype(
    input: Any, input_name: str, expected_dtype: Collection[str], op_name: str, extra_message: str = ""
) -> None:
    """Raise ArgumentTypeError unless `input` is a Variable of one of the expected data types."""
    check_type(input, input_name, Variable, op_name, extra_message)
    if input.dtype is not None:
        check_dtype(input.dtype, input_name, expected_dtype, op_name, extra_message)
