"""The two enumerations of the file format as plain integers: usable without importing protobuf or numpy.

Numbers are those of `framework.proto`, Fluid 0.12 to Paddle 2.6; `tests/proto` holds them equal to the generated code.
"""

from __future__ import annotations

from enum import IntEnum


class NamedInteger(IntEnum):
    """Integers that print as those of Paddle do: 'VarType.FP32'. In a format string with digits they are numbers."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(int(self), spec) if spec else str(self)


class AttrType(NamedInteger):
    """Type of an operator attribute (`OpDesc.Attr.type`)."""

    INT = 0
    FLOAT = 1
    STRING = 2
    INTS = 3
    FLOATS = 4
    STRINGS = 5
    BOOLEAN = 6
    BOOLEANS = 7
    BLOCK = 8
    LONG = 9
    BLOCKS = 10
    LONGS = 11
    FLOAT64S = 12
    VAR = 13
    VARS = 14
    FLOAT64 = 15
    SCALAR = 16
    SCALARS = 17


VARIABLES = frozenset({AttrType.VAR, AttrType.VARS})
"""Types of attributes that name variables, whose values count when the operator runs (Paddle 2.5 and later)."""


class VarType(NamedInteger):
    """Data types (BOOL … COMPLEX128) and kinds of variables (LOD_TENSOR …) share one enumeration in the format."""

    BOOL = 0
    INT16 = 1
    INT32 = 2
    INT64 = 3
    FP16 = 4
    FP32 = 5
    FP64 = 6
    LOD_TENSOR = 7
    SELECTED_ROWS = 8
    FEED_MINIBATCH = 9
    FETCH_LIST = 10
    STEP_SCOPES = 11
    LOD_RANK_TABLE = 12
    LOD_TENSOR_ARRAY = 13
    PLACE_LIST = 14
    READER = 15
    CHANNEL = 16
    RAW = 17
    TUPLE = 18
    SIZE_T = 19
    UINT8 = 20
    INT8 = 21
    BF16 = 22
    COMPLEX64 = 23
    COMPLEX128 = 24
    STRING = 25
    STRINGS = 26
    VOCAB = 27
    FEED_LIST = 28
    PSTRING = 29
    SPARSE_COO = 30
    SPARSE_CSR = 31
