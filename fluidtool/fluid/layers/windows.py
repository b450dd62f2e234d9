"""Arguments that convolutions and poolings share: sizes per dimension, paddings and data formats."""

from __future__ import annotations

from typing import Any

from fluidtool.errors import ArgumentTypeError, AssertedError, UsageError, WrongKindError
from fluidtool.records import dataclass

CHANNELS_FIRST = ("NCHW", "NCDHW")


def per_dimension(value: Any, count: int, name: str) -> list[int]:
    """`count` numbers from one number or from `count` numbers; raises WrongKindError or UsageError otherwise."""
    if isinstance(value, int):
        return [value] * count
    try:
        numbers = list(value)
        for number in numbers:
            int(number)  # the operator refuses fractions
    except (TypeError, ValueError):
        raise WrongKindError(f"The {name}'s type must be list or tuple. Received: {value!r}") from None
    if len(numbers) != count:
        raise UsageError(f"The {name}'s length must be {count}. Received: {value}")
    return numbers


def height_and_width(value: Any, name: str) -> list[Any]:
    """Two of one number, or a list of two, which the operator checks; raises AssertedError otherwise."""
    if isinstance(value, int):
        return [value, value]
    if not (isinstance(value, list) and len(value) == 2):
        raise AssertedError(f"{name} should either be an integer or a list of two integers, found {value!r}")
    return value


@dataclass(frozen=True, slots=True)
class Padding:
    """Paddings as the operator takes them, and their algorithm."""

    paddings: list[int]
    algorithm: str = "EXPLICIT"

    def both_sides(self, count: int) -> list[int]:
        """Begin and end of every dimension."""
        if len(self.paddings) == 2 * count:
            return self.paddings
        return [size for size in self.paddings for _ in range(2)]

    def shortest(self, count: int) -> list[int]:
        """One number per dimension if begin and end are equal."""
        both = self.both_sides(count)
        symmetric = all(both[2 * i] == both[2 * i + 1] for i in range(count))
        return both[::2] if symmetric else both


def read_padding(padding: Any, count: int, data_format: str, what: str = "padding") -> Padding:
    """'SAME', 'VALID', a number, one per dimension, begin and end of each, or pairs for every dimension of the input."""
    if isinstance(padding, str):
        algorithm = padding.upper()
        if algorithm not in ("SAME", "VALID"):
            raise UsageError(f"Unknown {what}: '{padding}'. It can only be 'SAME' or 'VALID'.")
        return Padding([0] * count, algorithm)
    if isinstance(padding, (list, tuple)) and len(padding) == count + 2 and isinstance(padding[0], (list, tuple)):
        first = data_format in CHANNELS_FIRST
        outside = (padding[0], padding[1]) if first else (padding[0], padding[-1])
        if any(list(pair) != [0, 0] for pair in outside):
            raise UsageError(f"Non-zero {what}({padding}) in the batch or channel dimensions is not supported.")
        padding = [size for pair in (padding[2:] if first else padding[1:-1]) for size in pair]
    if isinstance(padding, (list, tuple)) and len(padding) == 2 * count:
        return Padding(per_dimension(padding, 2 * count, "padding"))
    return Padding(per_dimension(padding, count, "padding"))


def check_format(data_format: str, count: int, attr: str = "Attr(data_format)") -> bool:
    """Whether channels come last; raises UsageError for a format that does not exist."""
    first, last = ("NCHW", "NHWC") if count == 2 else ("NCDHW", "NDHWC")
    if data_format not in (first, last):
        raise UsageError(f"{attr} should be '{first}' or '{last}'. Received {attr}: {data_format}.")
    return data_format == last


def check_cudnn(use_cudnn: Any) -> None:
    """Raise WrongKindError unless use_cudnn is True or False."""
    if not isinstance(use_cudnn, bool):
        raise WrongKindError(f"Attr(use_cudnn) should be True or False. Received Attr(use_cudnn): {use_cudnn}. ")


def check_whole(value: Any, name: str) -> None:
    """Raise ArgumentTypeError unless the value is an int."""
    if not isinstance(value, int):
        raise ArgumentTypeError(f"{name} must be int type")
