"""`difference(left, right)`: what two programs do not have in common, block by block.

Operators are aligned by type and by what they write (`alignment.py`), variables by name, sub-blocks by the operators that
hold them, so that an operator that was inserted, or a block that got another number, is no difference anywhere else.
Not compared is what says nothing: the order of variables, of slots and of attributes, slots without variables, and the
call stacks that Paddle records, unless they are asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from itertools import islice
from struct import pack, unpack
from typing import Any

from fluidtool.ir.alignment import Key, Pair, align
from fluidtool.ir.block import Block
from fluidtool.ir.operator import Operator
from fluidtool.ir.program import Program
from fluidtool.ir.roles import CALLSTACK_ATTR
from fluidtool.ir.variable import Variable, data_type_name
from fluidtool.proto.enums import AttrType, VarType
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text

LATER = "fields of later versions"


@dataclass(frozen=True, slots=True)
class Change:
    """One field that differs; None where a side does not have it."""

    field: str
    left: Any
    right: Any


@dataclass(frozen=True, slots=True)
class OperatorDifference:
    """An operator that one side lacks (its position there is None), or one whose slots or attributes differ.

    It is known by what it writes, or reads if it writes nothing.
    """

    type: str
    left: int | None
    right: int | None
    left_names: tuple[str, ...]
    right_names: tuple[str, ...]
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class VariableDifference:
    """A variable that one side does not declare (its declaration there is ''), or declares otherwise."""

    name: str
    left: str
    right: str
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class BlockDifference:
    """What differs within a pair of blocks; a block that one side lacks has the index None there and nothing else."""

    left: int | None
    right: int | None
    changes: tuple[Change, ...] = ()
    operators: tuple[OperatorDifference, ...] = ()
    variables: tuple[VariableDifference, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether the two blocks are there and nothing differs between them."""
        both = self.left is not None and self.right is not None
        return both and not (self.changes or self.operators or self.variables)


@dataclass(frozen=True, slots=True)
class ProgramDifference:
    """What differs between two programs: fields of the whole, and the blocks in which something does."""

    changes: tuple[Change, ...] = ()
    blocks: tuple[BlockDifference, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return not self.changes and not self.blocks


def difference(left: Program, right: Program, *, callstack: bool = False) -> ProgramDifference:
    """Compare two programs; `difference(b, a)` says the same with the sides exchanged.

    Floating-point attributes are compared as files keep them, in single precision; NaN equals NaN.
    """
    return _Comparison(left, right, callstack).run()


@dataclass(slots=True)
class _Comparison:
    """The two programs, and which block is which."""

    left: Program
    right: Program
    callstack: bool
    pairs: dict[int, int] = field(default_factory=dict)  # the index of a left block -> that of the right one
    taken: set[int] = field(default_factory=set)  # the right blocks of the pairs

    def run(self) -> ProgramDifference:
        aligned: list[tuple[Block, Block, list[Pair]]] = []
        unheld = self._unheld()
        waiting = deque([self._pair(0, 0)])
        while waiting:
            mine, other = waiting.popleft()
            left, right = self.left.block(mine), self.right.block(other)
            pairs = align([_key(op) for op in left.ops], [_key(op) for op in right.ops])
            aligned.append((left, right, pairs))
            waiting += self._inner_pairs(left, right, pairs)
            if not waiting:
                waiting += islice(unheld, 1)
        found = [self._block(*item) for item in sorted(aligned, key=lambda item: (item[0].idx, item[1].idx))]
        found += [BlockDifference(block.idx, None) for block in self.left.blocks if block.idx not in self.pairs]
        found += [BlockDifference(None, block.idx) for block in self.right.blocks if block.idx not in self.taken]
        changes = _changes(_program_fields(self.left), _program_fields(self.right))
        return ProgramDifference(changes, tuple(block for block in found if not block.equal))

    def _inner_pairs(self, left: Block, right: Block, pairs: Iterable[Pair]) -> list[tuple[int, int]]:
        """The blocks that operators which belong together hold under the same attribute."""
        found: list[tuple[int, int]] = []
        for i, j in pairs:
            if i is None or j is None:
                continue
            mine, other = left.ops[i], right.ops[j]
            for name in sorted(set(mine.attr_names) & set(other.attr_names)):
                for a, b in zip(_held(mine, name), _held(other, name), strict=False):
                    if a not in self.pairs and b not in self.taken:
                        found.append(self._pair(a, b))
        return found

    def _pair(self, left: int, right: int) -> tuple[int, int]:
        """Note that two blocks belong together."""
        self.pairs[left] = right
        self.taken.add(right)
        return left, right

    def _unheld(self) -> Iterator[tuple[int, int]]:
        """The pairs of blocks of one index that no operator of either side holds, one after the other."""
        both = self.left, self.right
        held = {index for p in both for block in p.blocks for op in block.ops for index in op.sub_blocks()}
        for index in range(1, min(p.num_blocks for p in both)):
            if index not in held and index not in self.pairs and index not in self.taken:
                yield self._pair(index, index)

    # ---------------------------------------------------------------- one pair of blocks
    def _block(self, left: Block, right: Block, pairs: Iterable[Pair]) -> BlockDifference:
        same_place = all(
            self._as_right(getattr(left, key)) == getattr(right, key) for key in ("parent_idx", "forward_block_idx")
        )
        changes = _changes(_block_fields(left, not same_place), _block_fields(right, not same_place))
        operators = []
        for i, j in pairs:
            mine = None if i is None else left.ops[i]
            other = None if j is None else right.ops[j]
            found = () if mine is None or other is None else self._operator(mine, other)
            if mine is None or other is None or found:
                some = mine or other
                assert some is not None
                operators.append(OperatorDifference(some.type, i, j, _names(mine), _names(other), found))
        names = sorted({*left.vars, *right.vars})
        variables = [_variable(name, left.vars.get(name), right.vars.get(name)) for name in names]
        return BlockDifference(left.idx, right.idx, changes, tuple(operators), tuple(v for v in variables if v))

    def _as_right(self, index: int) -> int | str:
        """The index that a block of the left has on the right; a text that no index equals when it has none."""
        return index if index < 0 else self.pairs.get(index, f"block {index}")

    def _operator(self, left: Operator, right: Operator) -> tuple[Change, ...]:
        fields = []
        for op, renumber in ((left, self._as_right), (right, lambda index: index)):
            found: dict[str, Any] = {f"input {slot}": names for slot, names in op.inputs.items() if names}
            found |= {f"output {slot}": names for slot, names in op.outputs.items() if names}
            found |= {name: _attribute(op, name, renumber) for name in op.attr_names if self._compared(name)}
            found |= {"is_target": True} if op.is_target else {}
            found |= {LATER: op.extra.hex()} if op.extra else {}
            fields.append(found)
        shown = []
        for name in sorted({*fields[0], *fields[1]}, key=_order):
            mine, other = fields[0].get(name), fields[1].get(name)
            if mine != other:
                shown.append(Change(name, *_shown(left, right, name, mine, other)))
        return tuple(shown)

    def _compared(self, name: str) -> bool:
        return self.callstack or name != CALLSTACK_ATTR


def _parts(block: BlockDifference) -> tuple[Any, ...]:
    return block.changes, block.operators, block.variables


# ---------------------------------------------------------------- fields
def _key(op: Operator) -> Key:
    return op.type, _names(op)


def _names(op: Operator | None) -> tuple[str, ...]:
    return () if op is None else tuple(op.output_arg_names or op.input_arg_names)


def _order(field: str) -> tuple[int, str]:
    """Inputs, outputs, then attributes."""
    return (0 if field.startswith("input ") else 1 if field.startswith("output ") else 2), field


def _held(op: Operator, name: str) -> list[int]:
    kind = op.attr_type(name)
    return [op.attr(name)] if kind == AttrType.BLOCK else list(op.attr(name)) if kind == AttrType.BLOCKS else []


def _attribute(op: Operator, name: str, renumber: Callable[[int], Any]) -> tuple[Any, Any]:
    """(type, value) of an attribute, as a file keeps it."""
    kind, value = op.attr_type(name), op.attr(name)
    if kind in (AttrType.BLOCK, AttrType.BLOCKS):
        value = [renumber(index) for index in _held(op, name)]
    elif kind == AttrType.FLOAT:
        value = _single(value)
    elif kind == AttrType.FLOATS:
        value = [_single(item) for item in value]
    elif kind in (AttrType.FLOAT64, AttrType.FLOAT64S):
        value = repr(value)
    extra = op.attr_extra.get(name, b"")
    return kind, (value, extra) if extra else value


def _single(value: float) -> float | str:
    """A float in single precision; NaN, which equals nothing, as a text."""
    try:
        single = float(unpack("f", pack("f", value))[0])
    except OverflowError:
        single = float("inf") if value > 0 else float("-inf")
    return "nan" if single != single else single


def _shown(left: Operator, right: Operator, name: str, mine: Any, other: Any) -> tuple[Any, Any]:
    """The two values of a field as the programs have them; with their types where only these differ."""
    if not left.has_attr(name) and not right.has_attr(name):
        return mine, other
    values = tuple(op.attr(name) if op.has_attr(name) else None for op in (left, right))
    if mine is None or other is None or mine[0] == other[0]:
        return values[0], values[1]
    kinds = [getattr(op.attr_type(name), "name", op.attr_type(name)) for op in (left, right)]
    return f"{values[0]} ({kinds[0]})", f"{values[1]} ({kinds[1]})"


def _program_fields(program: Program) -> dict[str, Any]:
    encoded = {"op_compatible_map": program.op_compatible_map, "op_version_map": program.op_version_map}
    return {
        "version": program.version,
        **{name: _hex(value) for name, value in (encoded | {LATER: program.extra}).items()},
    }


def _block_fields(block: Block, place: bool) -> dict[str, Any]:
    fields = {"parent_idx": block.parent_idx, "forward_block_idx": block.forward_block_idx} if place else {}
    return fields | {LATER: _hex(block.extra)}


def _variable_fields(var: Variable) -> dict[str, Any]:
    return {
        "type": VarType(var.type).name if var.type in VarType._value2member_map_ else var.type,
        "shape": list(var.shape) if var.has_shape else None,
        "dtype": None if var.dtype is None else data_type_name(var.dtype),
        "lod_level": var.lod_level,
        "persistable": var.persistable,
        "need_check_feed": var.need_check_feed,
        "type_bytes": _hex(var.type_bytes),
        LATER: _hex(var.extra),
    }


def _hex(value: bytes | None) -> str | None:
    return value.hex() if value else None


def _changes(left: Mapping[str, Any], right: Mapping[str, Any]) -> tuple[Change, ...]:
    return tuple(Change(name, left[name], right[name]) for name in left if left[name] != right[name])


def _variable(name: str, left: Variable | None, right: Variable | None) -> VariableDifference | None:
    if left is None or right is None:
        return VariableDifference(name, describe(left), describe(right))
    changes = _changes(_variable_fields(left), _variable_fields(right))
    return VariableDifference(name, describe(left), describe(right), changes) if changes else None


def describe(var: Variable | None) -> str:
    """'float32 (-1, 3) LoD 1 persistable'; '' for a variable that is not there."""
    if var is None:
        return ""
    fields = _variable_fields(var)
    words = [] if fields["type"] == VarType.LOD_TENSOR.name else [str(fields["type"]).lower().replace("_", " ")]
    words += [fields["dtype"]] if fields["dtype"] else []
    words += [shape_text(fields["shape"])] if fields["shape"] is not None else []
    words += [f"LoD {fields['lod_level']}"] if fields["lod_level"] else []
    words += [name for name in ("persistable", "need_check_feed") if fields[name]]
    return " ".join(words)
