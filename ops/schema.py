"""What an operator declares: its slots, its attributes, and the metadata that shape inference passes around.

Slots are written as one string, names separated by blanks; a suffix tells more:
`*` takes several variables, `?` may be absent, `~` is an intermediate output that only the gradient reads.
What only Paddle 2.x allows stands behind a `/`: `Scale/?` may be absent there, `Index/+` exists only there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fluidtool.ir.operator import as_attr_value
from fluidtool.ir.roles import FRAMEWORK_ATTR_TYPES
from fluidtool.proto.enums import AttrType, VarType
from fluidtool.records import dataclass

INT, FLOAT, STRING = AttrType.INT, AttrType.FLOAT, AttrType.STRING
INTS, FLOATS, STRINGS = AttrType.INTS, AttrType.FLOATS, AttrType.STRINGS
BOOLEAN, BOOLEANS, BLOCK, BLOCKS = AttrType.BOOLEAN, AttrType.BOOLEANS, AttrType.BLOCK, AttrType.BLOCKS
LONG, LONGS, FLOAT64S = AttrType.LONG, AttrType.LONGS, AttrType.FLOAT64S


@dataclass(frozen=True, slots=True)
class Slot:
    """One named input or output of an operator; `later`: the marks that only Paddle 2.x gives it."""

    name: str
    duplicable: bool = False
    dispensable: bool = False
    intermediate: bool = False
    later: str = ""


@dataclass(frozen=True, slots=True)
class Limit:
    """What Paddle asks of an attribute when an operator is appended: a range of numbers, or one of these words.

    low and high are None where there is no bound; `beyond`: low itself is too low.
    """

    low: float | None = None
    high: float | None = None
    beyond: bool = False
    words: tuple[str, ...] = ()

    def allows(self, value: Any) -> bool:
        """Whether a value is within; NaN never is."""
        if self.words:
            return value in self.words
        above = self.low is None or (value > self.low if self.beyond else value >= self.low)
        return above and (self.high is None or value <= self.high)

    def __str__(self) -> str:
        if self.words:
            return f"one of {', '.join(self.words)}"
        low = f"{'above' if self.beyond else 'at least'} {self.low:g}"
        return low if self.high is None else f"{low} and at most {self.high:g}"


@dataclass(frozen=True, slots=True)
class AttrSpec:
    """Declared type and default of one attribute; default: as the type holds it (float32 for FLOAT).

    renamed: the name that it has in programs of Paddle 2.x. also: another type that it has there, which the kernel reads itself.
    variable: Paddle 2.5 and later let it name variables, whose values count when the operator runs.
    limit: what its values must be.
    """

    type: AttrType
    default: Any = None
    required: bool = False
    renamed: str = ""
    also: AttrType | None = None
    variable: bool = False
    limit: Limit | None = None

    def __post_init__(self) -> None:
        if self.default is not None:
            object.__setattr__(self, "default", as_attr_value(self.type, self.default))


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """The metadata of a variable without running: -1 in `shape` is a size known only at run time."""

    shape: tuple[int, ...]
    dtype: VarType
    lod_level: int = 0
    kind: VarType = VarType.LOD_TENSOR

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def with_shape(self, shape: tuple[int, ...] | list[int]) -> TensorMeta:
        """The same with another shape."""
        return replace(self, shape=tuple(shape))

    def with_dtype(self, dtype: VarType) -> TensorMeta:
        """The same with another data type."""
        return replace(self, dtype=dtype)

    def with_lod_level(self, lod_level: int) -> TensorMeta:
        """The same with another LoD level."""
        return replace(self, lod_level=lod_level)


def slots(text: str) -> tuple[Slot, ...]:
    """`"X* Bias? XShape~ Index/+"` -> Slot objects."""
    parsed = []
    for word in text.split():
        first, _, later = word.partition("/")
        name = first.rstrip("*?~")
        marks = first[len(name) :] + later
        parsed.append(Slot(name, "*" in marks, "?" in marks or "+" in marks, "~" in marks, later))
    return tuple(parsed)


def ints(*values: int) -> AttrSpec:
    """An INTS attribute with this default."""
    return AttrSpec(INTS, list(values))


def floats(*values: float) -> AttrSpec:
    """A FLOATS attribute with this default."""
    return AttrSpec(FLOATS, list(values))


def strings(*values: str) -> AttrSpec:
    """A STRINGS attribute with this default."""
    return AttrSpec(STRINGS, list(values))


def bools(*values: bool) -> AttrSpec:
    """A BOOLEANS attribute with this default."""
    return AttrSpec(BOOLEANS, list(values))


def longs(*values: int) -> AttrSpec:
    """A LONGS attribute with this default."""
    return AttrSpec(LONGS, list(values))


def long(value: int = 0) -> AttrSpec:
    """A LONG attribute with this default."""
    return AttrSpec(LONG, value)


def block() -> AttrSpec:
    """A BLOCK attribute: the index of a sub-block, always required."""
    return AttrSpec(BLOCK, None, required=True)


def blocks() -> AttrSpec:
    """A BLOCKS attribute: indexes of sub-blocks, always required."""
    return AttrSpec(BLOCKS, None, required=True)


def required(attr_type: AttrType, *, renamed: str = "") -> AttrSpec:
    """An attribute without a default; `renamed`: its name in programs of Paddle 2.x."""
    return AttrSpec(attr_type, None, required=True, renamed=renamed)


USE_CUDNN: dict[str, Any] = {"use_cudnn": False}
USE_MKLDNN: dict[str, Any] = {"use_mkldnn": False}

# Attributes that the framework adds to every operator.
FRAMEWORK_ATTRS: dict[str, AttrSpec] = {
    name: AttrSpec(attr_type, {INT: 4096, STRING: "", STRINGS: []}[attr_type])
    for name, attr_type in FRAMEWORK_ATTR_TYPES.items()
}


def limited(value: Any, low: float | None = None, high: float | None = None, *, beyond: bool = False) -> AttrSpec:
    """The attribute with this default, or this spec, whose values are numbers from low to high."""
    spec = attr_specs({"": value})[""]
    least, most = (None if bound is None else as_attr_value(spec.type, bound) for bound in (low, high))
    return replace(spec, limit=Limit(least, most, beyond))


def one_of(value: Any, *words: str) -> AttrSpec:
    """The attribute with this default, or this spec, whose values are some of these words."""
    return replace(attr_specs({"": value})[""], limit=Limit(words=words))


def attr_specs(attrs: Mapping[str, Any]) -> dict[str, AttrSpec]:
    """Plain defaults become AttrSpecs: bool BOOLEAN, int INT, float FLOAT, str STRING."""
    specs = {}
    for name, value in attrs.items():
        if isinstance(value, AttrSpec):
            specs[name] = value
        else:
            specs[name] = AttrSpec(_SCALAR_TYPES[type(value)], value)
    return specs


_SCALAR_TYPES = {bool: BOOLEAN, int: INT, float: FLOAT, str: STRING}


def or_variable(value: Any) -> AttrSpec:
    """The attribute with this default, or this spec; Paddle 2.5 and later let it name variables."""
    return replace(attr_specs({"": value})[""], variable=True)
