"""What scripts reach for as `desc`: views with the methods of Paddle 1.8.5's C++ descriptions; nothing is kept twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fluidtool.records import dataclass

if TYPE_CHECKING:
    from fluidtool.ir.block import Block
    from fluidtool.ir.operator import Operator
    from fluidtool.ir.variable import Variable
    from fluidtool.proto.enums import AttrType


@dataclass(frozen=True, slots=True)
class VarDesc:
    """`var.desc`."""

    variable: Variable

    def name(self) -> str:
        """The name."""
        return self.variable.name

    def type(self) -> int:
        """The kind."""
        return self.variable.type

    def dtype(self) -> int | None:
        """The data type."""
        return self.variable.dtype

    def shape(self) -> list[int]:
        """The shape."""
        return list(self.variable.shape)

    def lod_level(self) -> int | None:
        """The LoD level."""
        return self.variable.lod_level

    def persistable(self) -> bool:
        """Whether the value outlives a run."""
        return self.variable.persistable

    def need_check_feed(self) -> bool:
        """Whether fed values are checked."""
        return self.variable.need_check_feed

    def set_dtype(self, dtype: Any) -> None:
        """Declare another data type."""
        self.variable.dtype = dtype

    def set_shape(self, shape: Sequence[int]) -> None:
        """Declare another shape."""
        self.variable.shape = tuple(shape)

    def set_lod_level(self, lod_level: int) -> None:
        """Declare another LoD level."""
        self.variable.lod_level = lod_level

    def set_persistable(self, persistable: bool) -> None:
        """Declare whether the value outlives a run."""
        self.variable.persistable = persistable


@dataclass(frozen=True, slots=True)
class OpDesc:
    """`op.desc`."""

    operator: Operator

    def type(self) -> str:
        """The operator's type."""
        return self.operator.type

    def input(self, slot: str) -> list[str]:
        """The variables of an input slot."""
        return self.operator.input(slot)

    def output(self, slot: str) -> list[str]:
        """The variables of an output slot."""
        return self.operator.output(slot)

    def input_names(self) -> list[str]:
        """The input slots."""
        return list(self.operator.input_names)

    def output_names(self) -> list[str]:
        """The output slots."""
        return list(self.operator.output_names)

    def input_arg_names(self) -> list[str]:
        """The variables of all input slots."""
        return list(self.operator.input_arg_names)

    def output_arg_names(self) -> list[str]:
        """The variables of all output slots."""
        return list(self.operator.output_arg_names)

    def attr(self, name: str) -> Any:
        """The value of an attribute."""
        return self.operator.attr(name)

    def attr_names(self) -> list[str]:
        """The attributes."""
        return list(self.operator.attr_names)

    def has_attr(self, name: str) -> bool:
        """Whether there is such an attribute."""
        return self.operator.has_attr(name)

    def attr_type(self, name: str) -> AttrType | int:
        """The type of an attribute."""
        return self.operator.attr_type(name)

    def infer_shape(self, block: BlockDesc) -> None:
        """Declare what the operator implies of its outputs: shapes, data types and kinds."""
        self.operator.infer()

    def infer_var_type(self, block: BlockDesc) -> None:
        """The same: kinds are inferred together with shapes."""
        self.operator.infer()

    def remove_attr(self, name: str) -> None:
        """Take an attribute away."""
        self.operator.remove_attr(name)

    def _set_attr(self, name: str, value: Any) -> None:
        """Give an attribute a value."""
        self.operator.set_attr(name, value)

    def set_input(self, slot: str, names: Sequence[str]) -> None:
        """Let a slot read other variables."""
        self.operator.set_input(slot, names)

    def set_output(self, slot: str, names: Sequence[str]) -> None:
        """Let a slot write other variables."""
        self.operator.set_output(slot, names)

    def is_target(self) -> bool:
        """Whether pruning keeps the operator whatever is asked for."""
        return self.operator.is_target

    def set_is_target(self, is_target: bool) -> None:
        """Let pruning keep the operator, or not."""
        self.operator.is_target = bool(is_target)


@dataclass(frozen=True, slots=True)
class BlockDesc:
    """`block.desc`."""

    inner: Block

    @property
    def id(self) -> int:
        """The number of the block."""
        return self.inner.idx

    def op_size(self) -> int:
        """How many operators there are."""
        return len(self.inner.ops)

    def op(self, index: int) -> OpDesc:
        """The operator of this number."""
        return OpDesc(self.inner.ops[index])

    def has_var(self, name: bytes | str) -> bool:
        """Whether the block declares a variable."""
        return _text(name) in self.inner.vars

    def var(self, name: bytes | str) -> VarDesc:
        """A variable, which is declared where it is not there."""
        block, text = self.inner, _text(name)
        return VarDesc(block.vars[text] if text in block.vars else block.create_var(name=text))

    def find_var(self, name: bytes | str) -> VarDesc | None:
        """A variable, or None."""
        found = self.inner.vars.get(_text(name))
        return None if found is None else VarDesc(found)


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name
