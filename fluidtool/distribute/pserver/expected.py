"""What a server takes: the declared kind, shape and data type of a variable, and whether a value fits them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fluidtool.distribute.rpc.handler import Message, Refused, Value
from fluidtool.ir import Variable
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text
from fluidtool.tensor import LoDTensor, SelectedRows, numpy_dtype


@dataclass(frozen=True, slots=True)
class Expected:
    """A variable that trainers send. shape: of the whole (a dimension of -1 is any size), also where rows are sent."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_sparse: bool

    @property
    def nbytes(self) -> int:
        """The bytes of the whole."""
        return math.prod(self.shape) * self.dtype.itemsize

    def check(self, message: Message) -> Value:
        """The value of the message; raises Refused where it is not what was declared."""
        value = message.value
        if self.is_sparse:
            return self._check_rows(value)
        if not isinstance(value, LoDTensor) or value.array is None:
            raise self._refuse("a LoDTensor", type(value).__name__)
        array = value.array
        if array.dtype != self.dtype:
            raise self._refuse(f"{self.dtype} numbers", str(array.dtype))
        if array.shape != self.shape and not fits(self.shape, array.shape):
            raise self._refuse(f"shape {shape_text(self.shape)}", shape_text(array.shape))
        return value

    def _check_rows(self, value: Any) -> Value:
        if not isinstance(value, SelectedRows) or value.tensor.array is None:
            raise self._refuse("SelectedRows", type(value).__name__)
        rows, array = value.row_ids, value.tensor.array
        if not len(rows) and not array.size:
            return self.nothing()
        if array.dtype != self.dtype:
            raise self._refuse(f"{self.dtype} numbers", str(array.dtype))
        if not fits((len(rows), *self.shape[1:]), array.shape):
            raise self._refuse(
                f"{len(rows)} rows of shape {shape_text(self.shape[1:])}", f"values {shape_text(array.shape)}"
            )
        height = self.shape[0]
        if height >= 0 and (value.table_height != height or rows.min() < 0 or rows.max() >= height):
            found = f"rows {int(rows.min())} to {int(rows.max())} of a table of {value.table_height}"
            raise self._refuse(f"rows of a table of {height}", found)
        return value

    def nothing(self) -> Value:
        """A contribution of nothing, which `sum` leaves out."""
        empty = np.empty((0, *self.shape[1:]) if self.is_sparse else (0,), self.dtype)
        return SelectedRows((), self.shape[0], empty) if self.is_sparse else LoDTensor(empty)

    def _refuse(self, expected: str, found: str) -> Refused:
        return Refused(
            f"variable {self.name} was refused: this server expects {expected}, found {found}; trainers and servers must "
            "run programs of the same transpilation"
        )


def fits(declared: tuple[int, ...], found: tuple[int, ...]) -> bool:
    """Whether a shape is the declared one, in which -1 is any size."""
    return len(declared) == len(found) and all(a in (b, -1) for a, b in zip(declared, found, strict=True))


def expected_of(variable: Variable) -> Expected:
    """What is declared of a variable."""
    dtype = numpy_dtype(VarType.FP32 if variable.dtype is None else variable.dtype)
    shape = tuple(variable.shape or ())
    return Expected(variable.name, shape, np.dtype(dtype), variable.type == VarType.SELECTED_ROWS)
