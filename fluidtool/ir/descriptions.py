"""What scripts reach for as `desc`: views with the methods of Paddle 1.8.5's C++ descriptions; nothing is kept twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fluidtool.proto.enums import AttrType
from fluidtool.records import dataclass

if TYPE_CHECKING:
    from fluidtool.ir.block import Block
    from fluidtool.ir.operator import Operator
    from fluidtool.ir.variable import Variable


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

    def set_need_check_feed(self, need_check_feed: bool) -> None:
        """Declare whether fed values are checked."""
        self.variable.need_check_feed = need_check_feed

    def set_type(self, type: int) -> None:
        """Declare another kind."""
        self.variable.type = type

    def set_name(self, name: str) -> None:
        """Give the variable another name, in the operators of its block as well."""
        self.variable.block.rename_var(self.variable.name, name)

    def serialize_to_string(self) -> bytes:
        """VarDesc bytes."""
        return self.variable.block.program.bytes_of(self.variable)


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

    def inputs(self) -> dict[str, list[str]]:
        """The variables of all input slots, by slot."""
        return {slot: list(names) for slot, names in self.operator.inputs.items()}

    def outputs(self) -> dict[str, list[str]]:
        """The variables of all output slots, by slot."""
        return {slot: list(names) for slot, names in self.operator.outputs.items()}

    def _rename_input(self, old_name: str, new_name: str) -> None:
        """Read another variable."""
        self.operator.rename_input(old_name, new_name)

    def _rename_output(self, old_name: str, new_name: str) -> None:
        """Write another variable."""
        self.operator.rename_output(old_name, new_name)

    def _block_attr_id(self, name: str) -> int:
        """The number of the block that an attribute names."""
        return self.operator.block_attr_id(name)

    def _blocks_attr_ids(self, name: str) -> list[int]:
        """The numbers of the blocks that an attribute names."""
        return self.operator.blocks_attr_ids(name)

    def set_block_attr(self, name: str, block: BlockDesc) -> None:
        """Let an attribute name a block."""
        self.operator.set_attr(name, block.id, AttrType.BLOCK)

    def set_blocks_attr(self, name: str, blocks: Sequence[BlockDesc]) -> None:
        """Let an attribute name blocks."""
        self.operator.set_attr(name, [block.id for block in blocks], AttrType.BLOCKS)

    def set_type(self, type: str) -> None:
        """Make it another operator with the same slots."""
        self.operator.type = type

    def set_is_target(self, is_target: bool) -> None:
        """Mark it as what a program is pruned to, or not."""
        self.operator.is_target = is_target

    def copy_from(self, other: OpDesc) -> None:
        """Take over type, slots and attributes of another operator."""
        mine, given = self.operator, other.operator
        for name in list(mine.attr_names):
            mine.remove_attr(name)
        mine.type = given.type
        for slots, taken, put in (
            (mine.inputs, given.inputs, mine.set_input),
            (mine.outputs, given.outputs, mine.set_output),
        ):
            slots.clear()
            for slot, names in taken.items():
                put(slot, names)
        for name in given.attr_names:
            mine.set_attr(name, given.attr(name), given.attr_type(name))

    def check_attrs(self) -> None:
        """Kept for scripts: attributes are checked when they are set and when the program runs."""

    def block(self) -> BlockDesc:
        """The block that it stands in."""
        return BlockDesc(self.operator.block)

    def serialize_to_string(self) -> bytes:
        """OpDesc bytes."""
        return self.operator.block.program.bytes_of(self.operator)


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

    def has_var_recursive(self, name: bytes | str) -> bool:
        """Whether the block or one above it declares a variable."""
        return self.inner.has_var_recursive(_text(name))

    def find_var_recursive(self, name: bytes | str) -> VarDesc | None:
        """A variable of the block or of one above it, or None."""
        found = self.inner.find_var_recursive(_text(name))
        return None if found is None else VarDesc(found)

    def all_vars(self) -> list[VarDesc]:
        """All variables of the block."""
        return [VarDesc(var) for var in self.inner.vars.values()]

    @property
    def parent(self) -> int:
        """The number of the block that it is within, -1 of block 0."""
        return self.inner.parent_idx

    def get_forward_block_idx(self) -> int:
        """The number of the block whose gradients it computes, -1 if there is none."""
        return self.inner.forward_block_idx

    def _set_forward_block_idx(self, index: int) -> None:
        """Say whose gradients it computes."""
        self.inner.set_forward_block_idx(index)

    def _remove_op(self, start: int, end: int) -> None:
        """Take the operators from `start` to before `end` out."""
        for _ in range(start, end):
            self.inner.remove_op(start)

    def _remove_var(self, name: bytes | str) -> None:
        """Take a variable out."""
        self.inner.remove_var(_text(name))

    def _rename_var(self, name: bytes | str, new_name: bytes | str) -> None:
        """Give a variable another name, in the block's operators as well."""
        self.inner.rename_var(_text(name), _text(new_name))

    def serialize_to_string(self) -> bytes:
        """BlockDesc bytes."""
        return self.inner.program.bytes_of(self.inner)


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name
