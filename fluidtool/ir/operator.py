"""Operator: one instruction of a block. Inputs and outputs are lists of variable names by slot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from ctypes import c_float
from math import isfinite
from operator import index
from typing import TYPE_CHECKING, Any

from fluidtool.errors import ArgumentTypeError, ProgramError, WrongKindError
from fluidtool.ir.original import Original
from fluidtool.ir.roles import ROLE_ATTR, OpRole
from fluidtool.ir.variable import Variable
from fluidtool.proto.enums import VARIABLES, AttrType

if TYPE_CHECKING:
    from fluidtool.ir.block import Block
    from fluidtool.ir.descriptions import OpDesc

BLOCK, BLOCKS = int(AttrType.BLOCK), int(AttrType.BLOCKS)  # compared with every attribute again and again
EMPTY = "@EMPTY@"  # in a slot of an operator: no variable
BLOCK_KINDS = frozenset({BLOCK, BLOCKS})
Names = dict[str, list[str]]


class _Hooks:
    """What `append_op` needs of the operator library; `fluidtool.ops` fills it, `ir` itself knows no operator."""

    prepare: Callable[[Operator], None] | None = None
    infer: Callable[[Operator], None] | None = None


hooks = _Hooks


class Operator:
    """type, inputs, outputs and attributes of one operator.

    Attribute values keep their declared AttrType. BLOCK attributes hold the index of a block. `extra` and `attr_extra`
    are encoded fields of newer versions, kept for saving. `original` is how the file that the operator was read from has
    it, None for one that was made here.
    """

    __slots__ = (
        "__dict__",
        "_attr_types",
        "_attrs",
        "_block",
        "_inputs",
        "_outputs",
        "_type",
        "attr_extra",
        "extra",
        "is_target",
        "original",
    )

    def __init__(
        self,
        block: Block,
        desc: Any = None,
        type: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Any] | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> None:
        if not type:
            raise ProgramError("`type` to initialized an Operator can not be None.")
        self._block, self._type = block, type
        self._inputs: Names = {
            slot: _names(type, slot, value) for slot, value in (inputs or {}).items() if value is not None
        }
        self._outputs: Names = {slot: _names(type, slot, value) for slot, value in (outputs or {}).items()}
        self._attrs: dict[str, Any] = {}
        self._attr_types: dict[str, AttrType | int] = {}
        self.is_target = False
        self.extra: bytes = b""
        self.attr_extra: dict[str, bytes] = {}
        self.original: Original | None = None
        for name, value in (attrs or {}).items():
            if value is not None:
                self._store(name, value, None)

    def infer(self) -> None:
        """Declare what follows for the outputs of the operator: shapes, data types, kinds and LoD levels."""
        if hooks.infer is not None:
            hooks.infer(self)

    # -- structure
    @property
    def type(self) -> str:
        """The operator's type, such as 'softmax'."""
        return self._type

    @type.setter
    def type(self, type: str) -> None:
        self._type = type
        self._changed()

    @property
    def desc(self) -> OpDesc:
        """What scripts use as `op.desc`."""
        from fluidtool.ir.descriptions import OpDesc

        return OpDesc(self)

    @property
    def block(self) -> Block:
        """The block that contains this operator."""
        return self._block

    @block.setter
    def block(self, block: Block) -> None:
        self._block = block

    @property
    def inputs(self) -> Names:
        """Variable names by input slot; change them through `set_input` or `rename_input`."""
        return self._inputs

    @property
    def outputs(self) -> Names:
        """Variable names by output slot; change them through `set_output` or `rename_output`."""
        return self._outputs

    @property
    def input_names(self) -> list[str]:
        """The input slots."""
        return list(self._inputs)

    @property
    def output_names(self) -> list[str]:
        """The output slots."""
        return list(self._outputs)

    @property
    def input_arg_names(self) -> list[str]:
        """Every variable read, slot by slot; at the end those that attributes name (Paddle 2.5 and later)."""
        found: list[str] = []
        for names in self._inputs.values():
            found += names
        if not VARIABLES.isdisjoint(self._attr_types.values()):
            for names in self.variable_attrs().values():
                found += names
        return found

    @property
    def output_arg_names(self) -> list[str]:
        """Every variable written, slot by slot."""
        found: list[str] = []
        for names in self._outputs.values():
            found += names
        return found

    @property
    def idx(self) -> int:
        """The position in the block."""
        for place, op in enumerate(self._block.ops):
            if op is self:
                return place
        raise ProgramError(f"operator {self._type} is no longer in its block")

    def input(self, name: str) -> list[str]:
        """The variable names of an input slot; [] for a slot that is not there."""
        return list(self._inputs.get(name, []))

    def output(self, name: str) -> list[str]:
        """The variable names of an output slot; [] for a slot that is not there."""
        return list(self._outputs.get(name, []))

    def set_input(self, name: str, arguments: Iterable[Any]) -> None:
        """Replace the variable names of an input slot."""
        self._inputs[name] = _names(self._type, name, list(arguments))
        self._changed()

    def set_output(self, name: str, arguments: Iterable[Any]) -> None:
        """Replace the variable names of an output slot."""
        self._outputs[name] = _names(self._type, name, list(arguments))
        self._changed()

    def rename_input(self, old_name: str, new_name: str) -> None:
        """Read `new_name` wherever `old_name` is read."""
        self.rename_inputs({old_name: new_name})

    def rename_inputs(self, renamed: Mapping[str, str]) -> None:
        """Read the new names wherever the old ones are read, all at once: an operator may have very many inputs."""
        for names in self._inputs.values():
            names[:] = [renamed.get(name, name) for name in names]
        self.rename_in_attrs(renamed)
        self._changed()

    def rename_in_attrs(self, renamed: Mapping[str, str]) -> None:
        """Rename the variables that attributes name."""
        for attr, names in self.variable_attrs().items():
            new = [renamed.get(name, name) for name in names]
            self._attrs[attr] = new if self._attr_types[attr] == AttrType.VARS else new[0]
            if new != names:
                self._changed()

    def rename_output(self, old_name: str, new_name: str) -> None:
        """Write `new_name` wherever `old_name` is written."""
        for names in self._outputs.values():
            names[:] = [new_name if name == old_name else name for name in names]
        self._changed()

    # -- attributes
    @property
    def attr_names(self) -> list[str]:
        """The names of the attributes."""
        return list(self._attrs)

    def has_attr(self, name: str) -> bool:
        """Whether the attribute is set."""
        return name in self._attrs

    def attr_type(self, name: str) -> AttrType | int:
        """The declared type of an attribute; raises ProgramError when it is not set."""
        self._need(name)
        return self._attr_types[name]

    def attr(self, name: str) -> Any:
        """The value of an attribute (a block's index for BLOCK); raises ProgramError when it is not set."""
        self._need(name)
        return self._attrs[name]

    def get_attr(self, name: str, default: Any = None) -> Any:
        """The value of an attribute, or `default` when it is not set."""
        return self._attrs.get(name, default)

    def set_attr(self, name: str, val: Any, type: AttrType | int | None = None) -> None:
        """Set an attribute; keeps the declared type, raises ProgramError when the value does not fit it."""
        self._store(name, val, type)
        self._changed()

    def remove_attr(self, name: str) -> None:
        """Remove an attribute, if it is set."""
        self._attrs.pop(name, None)
        self._attr_types.pop(name, None)
        self.attr_extra.pop(name, None)
        self._changed()

    def all_attrs(self) -> dict[str, Any]:
        """Every attribute; BLOCK attributes as Block objects, as in Paddle."""
        blocks = self._block.program.blocks
        out = {}
        for name, value in self._attrs.items():
            kind = self._attr_types[name]
            if kind == AttrType.BLOCK:
                value = blocks[value]
            elif kind == AttrType.BLOCKS:
                value = [blocks[index] for index in value]
            out[name] = value
        return out

    def block_attr_id(self, name: str) -> int:
        """The index held by a BLOCK attribute."""
        return int(self.attr(name))

    def block_attr(self, name: str) -> int:
        """The index held by a BLOCK attribute (the Block itself is `block_attr_block`)."""
        return int(self.attr(name))

    def block_attr_block(self, name: str) -> Block:
        """The block that a BLOCK attribute names."""
        return self._block.program.block(self.block_attr_id(name))

    def blocks_attr_ids(self, name: str) -> list[int]:
        """The indexes held by a BLOCKS attribute."""
        return [int(index) for index in self.attr(name)]

    def _blocks_attr(self, name: str) -> list[Block]:
        """The blocks that a BLOCKS attribute names."""
        return [self._block.program.block(index) for index in self.blocks_attr_ids(name)]

    def _is_optimize_op(self) -> bool:
        """Whether an optimizer has appended the operator."""
        return bool(int(self.get_attr(ROLE_ATTR, 0)) & OpRole.Optimize)

    def sub_blocks(self) -> list[int]:
        """The indexes of every block that this operator's attributes name."""
        found: list[int] = []
        if BLOCK_KINDS.isdisjoint(self._attr_types.values()):
            return found
        for name, kind in self._attr_types.items():
            if kind == BLOCK:
                found.append(int(self._attrs[name]))
            elif kind == BLOCKS:
                found += [int(index) for index in self._attrs[name]]
        return found

    def variable_attrs(self) -> dict[str, list[str]]:
        """The variables that attributes name, by attribute; their values count when the operator runs."""
        if VARIABLES.isdisjoint(self._attr_types.values()):
            return {}
        named = {attr: self._attrs[attr] for attr, kind in self._attr_types.items() if kind in VARIABLES}
        return {attr: list(value) if isinstance(value, list) else [value] for attr, value in named.items()}

    # -- text
    def to_string(self, throw_on_error: bool = False) -> str:
        """The operator as protobuf text."""
        return self._block.program.text_of(self, throw_on_error)

    def __str__(self) -> str:
        return self.to_string()

    def __repr__(self) -> str:
        inputs = ", ".join(f"{slot}={names}" for slot, names in self._inputs.items())
        outputs = ", ".join(f"{slot}={names}" for slot, names in self._outputs.items())
        return f"<{self._type}: {inputs} -> {outputs}>"

    _rename_input = rename_input
    _rename_output = rename_output
    _set_attr = set_attr
    _update_desc_attr = set_attr
    _remove_attr = remove_attr
    _block_attr = block_attr_block
    _block_attr_id = block_attr_id
    _blocks_attr_ids = blocks_attr_ids
    _all_attrs = all_attrs

    # -- inside
    def _need(self, name: str) -> None:
        if name not in self._attrs:
            from difflib import get_close_matches

            near = get_close_matches(name, self._attrs, n=2)
            hint = (
                f"; did you mean {' or '.join(near)}?"
                if near
                else f"; it has {', '.join(sorted(self._attrs)) or 'none'}"
            )
            raise ProgramError(f"operator {self._type} has no attribute {name!r}{hint}")

    def _store(self, name: str, value: Any, kind: AttrType | int | None) -> None:
        kind = kind if kind is not None else self._attr_types.get(name)
        if kind is None:
            kind = guess_attr_type(self._type, name, value)
        try:
            self._attrs[name] = as_attr_value(kind, value)
        except (TypeError, ValueError, AttributeError) as error:
            guess_attr_type(self._type, name, value)
            shown = AttrType(kind).name
            raise ProgramError(
                f"attribute {name} of operator {self._type} is {shown}, but {value!r} does not match it"
            ) from error
        self._attr_types[name] = kind

    def _changed(self) -> None:
        self._block.program.touch()


def _names(op_type: str, slot: str, value: Any) -> list[str]:
    """Variable names from a Variable, a name, or a list of them."""
    items = value if isinstance(value, (list, tuple)) else [value]
    names = []
    for item in items:
        if isinstance(item, bytes):
            item = item.decode()
        if isinstance(item, str):
            names.append(item)
        elif isinstance(item, Variable) or hasattr(item, "name"):
            names.append(item.name)
        else:
            raise ArgumentTypeError(
                f"slot {slot} of operator {op_type} takes variables or their names, "
                f"found {type(item).__name__}: {item!r}"
            )
    return names


def guess_attr_type(op_type: str, name: str, value: Any) -> AttrType:
    """The AttrType of a Python value where no declaration says: a list goes by its items.

    Raises WrongKindError (a TypeError and a ValueError) for what no attribute holds: None, variables, lists of both numbers
    and text, nested lists.
    """
    if isinstance(value, (list, tuple)) or (hasattr(value, "tolist") and getattr(value, "ndim", 0) == 1):
        found = _guess_list_type(list(value))
    else:
        found = _guess_single_type(value)
    if found is None:
        raise WrongKindError(
            f"attribute {name} of operator {op_type} cannot hold {type(value).__name__}: {value!r}; "
            "expected bool, int, float, str, a block or a list of one of these"
        )
    return found


def _guess_single_type(value: Any) -> AttrType | None:
    if hasattr(value, "item") and getattr(value, "size", None) == 1:
        value = value.item()
    if isinstance(value, bool):
        return AttrType.BOOLEAN
    if isinstance(value, int):
        return AttrType.INT if _fits_32_bits(value) else AttrType.LONG
    if isinstance(value, float):
        return AttrType.FLOAT
    if isinstance(value, (str, bytes)):
        return AttrType.STRING
    if hasattr(value, "idx") and hasattr(value, "ops"):
        return AttrType.BLOCK
    return None


def _guess_list_type(items: list[Any]) -> AttrType | None:
    """By one item of each type, and all whole numbers: truth values among numbers are numbers."""
    kinds = {_guess_single_type(item) for item in {type(item): item for item in items}.values()}
    if AttrType.FLOAT in kinds and kinds <= _NUMBERS:
        return AttrType.FLOATS
    if kinds & _WHOLE and kinds <= _NUMBERS:
        return AttrType.INTS if all(_fits_32_bits(item) for item in items) else AttrType.LONGS
    if not kinds:
        return AttrType.INTS
    kind = kinds.pop()
    return None if kinds or kind is None else _LIST_TYPES[kind]


def _fits_32_bits(value: Any) -> bool:
    return bool(-(2**31) <= value < 2**31)


_WHOLE = frozenset({AttrType.INT, AttrType.LONG})
_NUMBERS = _WHOLE | {AttrType.BOOLEAN, AttrType.FLOAT}
_LIST_TYPES = {
    AttrType.BOOLEAN: AttrType.BOOLEANS,
    AttrType.INT: AttrType.INTS,
    AttrType.LONG: AttrType.LONGS,
    AttrType.FLOAT: AttrType.FLOATS,
    AttrType.STRING: AttrType.STRINGS,
    AttrType.BLOCK: AttrType.BLOCKS,
}


def _boolean(value: Any) -> bool:
    if isinstance(value, (str, bytes)):
        raise TypeError("text is not a truth value")
    return bool(value)


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")  # as the codec does
    if isinstance(value, str):
        return value
    raise TypeError("not text")


def _block_index(value: Any) -> int:
    return int(getattr(value, "idx", value))


def _integer(value: Any) -> int:
    return index(value.item() if hasattr(value, "item") else value)


def _long(value: Any) -> int:
    """Unlike 32-bit integers, these may come as floats, whose fraction is cut off."""
    return int(value) if isinstance(value, float) and isfinite(value) else _integer(value)


def _single(value: Any) -> float:
    """As 32 bits hold it, which is what Paddle computes with: 0.999 is 0.9990000128746033."""
    return c_float(value).value


_CONVERT: dict[int, Callable[[Any], Any]] = {
    AttrType.INT: _integer,
    AttrType.LONG: _long,
    AttrType.FLOAT: _single,
    AttrType.FLOAT64: float,
    AttrType.STRING: _text,
    AttrType.BOOLEAN: _boolean,
    AttrType.BLOCK: _block_index,
}
_CONVERT_ITEMS: dict[int, Callable[[Any], Any]] = {
    AttrType.INTS: _integer,
    AttrType.LONGS: _long,
    AttrType.FLOATS: _single,
    AttrType.FLOAT64S: float,
    AttrType.STRINGS: _text,
    AttrType.BOOLEANS: _boolean,
    AttrType.BLOCKS: _block_index,
}


def as_attr_value(kind: AttrType | int, value: Any) -> Any:
    """`value` as an attribute of type `kind` holds it; raises TypeError or ValueError when it does not fit."""
    if kind in _CONVERT:
        return _CONVERT[kind](value)
    if kind in _CONVERT_ITEMS:
        items = value if isinstance(value, (list, tuple)) or hasattr(value, "tolist") else [value]
        return [_CONVERT_ITEMS[kind](item) for item in items]
    return value
