"""The form of every inference rewrite: a rule looks at one operator and answers with an Edit, a reason, or nothing.

    def rule(site: Site) -> Edit | str | None

None: this operator is no candidate. A string, or `raise Unfit(reason)`: a candidate that must stay as it is, and why. An
Edit: the operators that go and those that come. `rewrite` asks the rule at every operator of every block, applies the
edits that do not overlap in one sweep, and sweeps again until nothing changes. A rule changes nothing itself: a new
parameter or variable goes into the Edit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fluidtool.errors import ProgramError
from fluidtool.ir import Block, Operator, Program
from fluidtool.ir.dataflow import BlockFlow, block_flow, sub_block_operators
from fluidtool.ir.reuse import restore_names
from fluidtool.ir.surgery import copy_variable
from fluidtool.passes.result import Decision, PassResult, decide
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import LoDTensor, var_type_of

SWEEPS = 100
OUTER_INPUTS = ("parameters", "X", "Input")  # of recurrent, while, conditional_block
BATCH_NORMS = frozenset({"batch_norm", "sync_batch_norm"})


class Unfit(Exception):
    """Why a candidate stays as it is; raised by the helpers of a rule, caught by `rewrite`."""


@dataclass(frozen=True, slots=True)
class NewParameter:
    """A parameter that an edit brings: declared in block 0; its array goes to the scope, to where that of `like` is."""

    name: str
    array: Any
    like: str


@dataclass(frozen=True, slots=True)
class NewVariable:
    """An intermediate variable that an edit brings, declared like `like` (but for what is given) in the block of the edit."""

    name: str
    like: str
    shape: tuple[int, ...] | None = None
    lod_level: int | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """Operators at `remove` go; `insert` comes at `position` (the place of the last of them); `reason` says what was done."""

    remove: frozenset[int]
    position: int
    insert: tuple[Operator, ...]
    reason: str
    parameters: tuple[NewParameter, ...] = ()
    rename: dict[str, str] = field(default_factory=dict)  # what later readers read instead of a name written once
    variables: tuple[NewVariable, ...] = ()


@dataclass(frozen=True, slots=True)
class Site:
    """One operator as a rule sees it: the def-use view of its block, the values of parameters, the names to keep."""

    flow: BlockFlow
    position: int
    scope: Scope
    keep: frozenset[str]
    written: Counter[str]  # how many operators of the program write a name

    @property
    def block(self) -> Block:
        """The block of the operator."""
        return self.flow.block

    @property
    def op(self) -> Operator:
        """The operator."""
        return self.flow.block.ops[self.position]

    def at(self, position: int) -> Site:
        """Another operator of the same block."""
        return Site(self.flow, position, self.scope, self.keep, self.written)

    def input(self, slot: str) -> str:
        """The one name in an input slot; empty when there is none."""
        names = self.op.inputs.get(slot, [])
        return names[0] if names else ""

    def output(self, slot: str) -> str:
        """The one name in an output slot; empty when there is none."""
        names = self.op.outputs.get(slot, [])
        return names[0] if names else ""

    def producer(self, name: str) -> Site | None:
        """The operator of this block that wrote the value of `name` which this operator reads."""
        position = self.flow.producer(self.position, name)
        return None if position is None else self.at(position)

    def readers(self, name: str) -> list[Site]:
        """The operators of this block (with what lies below them) that read the value of `name` written here."""
        return [self.at(position) for position in self.flow.consumers(self.position, name)]

    def why_visible(self, name: str, reader: int | Collection[int]) -> str:
        """Why the value of `name` written here may not vanish into operator(s) `reader`; empty when it may."""
        wanted = self.why_wanted(name)
        if wanted:
            return wanted
        vanishing = {reader} if isinstance(reader, int) else reader
        others = [position for position in self.flow.consumers(self.position, name) if position not in vanishing]
        if others:
            types = sorted({self.block.ops[position].type for position in others})
            return f"{name} is also {'fetched' if types == ['fetch'] else 'read by ' + ', '.join(types)}"
        return ""

    def why_wanted(self, name: str) -> str:
        """Why the value of `name` written here is wanted beyond the operators of this block; empty when it is not."""
        if name in self.keep and self.flow.is_last_write(self.position, name):
            return f"{name} is fetched or to be kept"
        return self.why_not_private(name)

    def why_not_private(self, name: str) -> str:
        """Why `name` means something outside this block or after the run; empty when it does not."""
        var = self.block.vars.get(name)
        if var is None:
            return f"{name} belongs to an outer block"
        if var.persistable:
            return f"{name} is persistable"
        if self._read_elsewhere(name):
            return f"{name} is also read in another block"
        around = self._passed_on_by(name)
        return f"{name} is passed on by {around}" if around else ""

    def _passed_on_by(self, name: str) -> str:
        """The operator around this block that takes `name` out of it by its name, as `recurrent` does; or empty."""
        for block in self.block.program.blocks if self.block.idx else ():
            for op in block.ops:
                if self.block.idx in op.sub_blocks() and name in {*op.output_arg_names, *_texts(op)}:
                    return op.type
        return ""

    def _read_elsewhere(self, name: str) -> bool:
        """Whether a block that is not below this one, such as one of gradients, reads this block's variable."""
        return any(
            block is not self.block
            and any(name in op.input_arg_names for op in block.ops)
            and not any(around is self.block for around in block.ancestry())
            and self.block in block.reach()
            for block in self.block.program.blocks
        )

    def holds_until(self, name: str, position: int) -> bool:
        """Whether the value of `name` that this operator reads is still there at a later operator."""
        return not any(name in self.flow.effects[i].writes for i in range(self.position, position))

    def is_constant(self, name: str) -> bool:
        """Whether `name` is a persistable variable that no operator of the program writes and that has a value."""
        var = self.block.find_var_recursive(name)
        return var is not None and var.persistable and self.array(name) is not None and not self.written[name]

    def array(self, name: str) -> Any:
        """The array of a parameter in the scope; None when it has none."""
        return _array(self.scope, name)

    def new_parameter(self, name: str, array: np.ndarray[Any, Any], like: str) -> NewParameter:
        """A parameter to put into an edit; one of this name in the scope that holds the very same numbers is used again."""
        while name in self.scope or any(name in block.vars for block in self.block.program.blocks):
            if self._holds(name, array):
                break
            name = self.fresh_name(name)
        return NewParameter(name, array, like)

    def _holds(self, name: str, array: np.ndarray[Any, Any]) -> bool:
        there = _array(self.scope, name)
        declared = [block.vars[name] for block in self.block.program.blocks if name in block.vars]
        return (
            there is not None
            and all(var.persistable for var in declared)
            and not self.written[name]
            and there.dtype == array.dtype
            and np.array_equal(on_host(there), array)
        )

    def numbers(self, name: str) -> np.ndarray[Any, Any]:
        """The array of a constant on the host; raises Unfit when `name` is no constant, and says what it is."""
        if not name:
            raise Unfit("the operator names no variable where a parameter is expected")
        if not self.is_constant(name):
            raise Unfit(self._why_not_constant(name))
        return on_host(self.array(name))

    def _why_not_constant(self, name: str) -> str:
        var = self.block.find_var_recursive(name)
        if var is None or not var.persistable:
            return f"{name} is not a parameter: it is computed or fed"
        if self.written[name]:
            return f"{name} is written by the program"
        return f"{name} has no value in the scope; load the parameters first"

    def fresh_name(self, name: str, taken: Iterable[str] = ()) -> str:
        """`name`, or `name_1`, `name_2`, … when a variable of the program or of the scope, or of `taken`, has it."""
        blocks, used = self.block.program.blocks, set(taken)
        candidate, number = name, 0
        while candidate in used or candidate in self.scope or any(candidate in block.vars for block in blocks):
            number += 1
            candidate = f"{name}_{number}"
        return candidate

    def new_operator(self, type: str, inputs: Any, outputs: Any, attrs: dict[str, Any]) -> Operator:
        """An operator of this block that is not in it yet, with the role of this site's operator."""
        op = Operator(self.block, type=type, inputs=inputs, outputs=outputs, attrs=attrs)
        if self.op.has_attr("op_role") and not op.has_attr("op_role"):
            op.set_attr("op_role", self.op.attr("op_role"))
        return op


Rule = Callable[[Site], "Edit | str | None"]


def rewrite(name: str, rule: Rule, program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """Apply a rule everywhere until it finds nothing more, in place; `keep` names what is fetched from outside.

    Variables that nothing names any more are dropped from the program (never from the scope). What `memory_optimize` did
    before is undone: a rule makes new operators of old ones, which would mean other variables by the names they share.
    """
    restore_names(program)
    done: list[Decision] = []
    for _ in range(SWEEPS):
        left: list[Decision] = []
        named = _named(program)
        edited = [sweep(name, rule, block, scope, frozenset(keep), done, left) for block in program.blocks]
        if not any(edited):
            break
        drop_unused(program, keep, named)
        program.touch()
    else:
        raise ProgramError(
            f"the pass {name} still finds something to do after {SWEEPS} sweeps; this is a fault of the pass"
        )
    return PassResult((*done, *left))


def sweep(
    name: str, rule: Rule, block: Block, scope: Scope, keep: frozenset[str], done: list[Decision], left: list[Decision]
) -> bool:
    """One look at every operator of a block; whether anything was edited."""
    flow, edits, touched = block_flow(block), list[Edit](), set[int]()
    changed, used = set[str](), set[str]()
    written = Counter(name for other in block.program.blocks for op in other.ops for name in _changed_by(op))
    for position, op in enumerate(block.ops):
        answer = _ask(rule, Site(flow, position, scope, keep, written))
        if isinstance(answer, str):
            left.append(decide(name, op, False, answer))
        elif answer is not None:
            # What an edit of this sweep removed, renamed or brought is seen by the next sweep only.
            changes = {*answer.rename, *_brought(answer)}
            uses = _names_of(answer, block)
            if touched & answer.remove or changed & uses or changes & used:
                continue
            touched |= answer.remove
            changed |= changes
            used |= uses
            edits.append(answer)
            done.append(decide(name, op, True, answer.reason))
    if edits:
        apply(block, edits, scope)
    return bool(edits)


def _ask(rule: Rule, site: Site) -> Edit | str | None:
    try:
        return rule(site)
    except Unfit as reason:
        return str(reason)


def _brought(edit: Edit) -> set[str]:
    """The names that an edit declares."""
    return {new.name for new in edit.parameters} | {new.name for new in edit.variables}


def _names_of(edit: Edit, block: Block) -> set[str]:
    """Every name that an edit depends on or brings."""
    ops = (*(block.ops[position] for position in edit.remove), *edit.insert)
    used = {name for op in ops for name in (*op.input_arg_names, *op.output_arg_names)}
    return used | {*edit.rename.values()} | _brought(edit)


def _texts(op: Operator) -> set[str]:
    """Every string that the attributes hold."""
    values = [op.attr(name) for name in op.attr_names]
    return {
        text for value in values for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)
    }


def _changed_by(op: Operator) -> list[str]:
    """The names that an operator gives another value; batch_norm in inference writes its statistics as they were."""
    if op.type in BATCH_NORMS and uses_running_statistics(op):
        kept = {name for slot in ("Mean", "Variance") for name in op.inputs.get(slot, [])}
        return [name for name in op.output_arg_names if name not in kept]
    return op.output_arg_names


def uses_running_statistics(op: Operator) -> bool:
    """Whether a batch_norm normalises by its running statistics, as inference does, and leaves them as they are."""
    tests = op.get_attr("is_test", False) and not op.get_attr("trainable_statistics", False)
    return bool(tests or op.get_attr("use_global_stats", False))


def apply(block: Block, edits: list[Edit], scope: Scope) -> None:
    """Put edits that do not overlap into a block."""
    removed = {position for edit in edits for position in edit.remove}
    inserted = {edit.position: edit for edit in edits}
    ops: list[Operator] = []
    renamed: dict[str, str] = {}
    for position, op in enumerate(block.ops):
        edit = inserted.get(position)
        if edit is not None:
            ops += edit.insert
            renamed |= edit.rename
        if position not in removed:
            _rename_inputs(block.program, op, renamed)
            ops.append(op)
    block.ops = ops
    for edit in edits:
        for parameter in edit.parameters:
            _declare(block, parameter, scope)
            _pass_into(block, parameter.name)
        for variable in edit.variables:
            copy = copy_variable(block.var_recursive(variable.like), block)
            copy.name = variable.name
            if variable.shape is not None:
                copy.shape = variable.shape
            if variable.lod_level is not None:
                copy.lod_level = variable.lod_level
            block.add_var(copy)


def _pass_into(block: Block, name: str) -> None:
    """List a parameter as an input of every operator around a sub-block: what these do not list is not saved."""
    for around in block.program.blocks if block.idx else ():
        for op in around.ops:
            slot = next((slot for slot in OUTER_INPUTS if slot in op.inputs), None)
            if block.idx in op.sub_blocks() and slot is not None and name not in op.input_arg_names:
                op.set_input(slot, [*op.input(slot), name])
                _pass_into(around, name)


def _rename_inputs(program: Program, op: Operator, renamed: dict[str, str]) -> None:
    for inner in (op, *sub_block_operators(program, op)):
        for old, new in renamed.items():
            inner.rename_input(old, new)


def _declare(block: Block, new: NewParameter, scope: Scope) -> None:
    block.create_parameter(shape=list(new.array.shape), dtype=var_type_of(new.array.dtype), name=new.name)
    like = scope.find_var(new.like)
    tensor = LoDTensor()
    tensor.set(new.array, like.value.place() if like is not None and isinstance(like.value, LoDTensor) else None)
    scope.var(new.name).value = tensor


def _array(scope: Scope, name: str) -> Any:
    found = scope.find_var(name)
    value = found.value if found is not None else None
    return value.array if isinstance(value, LoDTensor) else None


def on_host(array: Any) -> np.ndarray[Any, Any]:
    """An array of either device as numpy."""
    return LoDTensor(array).numpy()


def _named(program: Program) -> set[str]:
    """Every name that an operator reads or writes."""
    return {
        name for block in program.blocks for op in block.ops for name in (*op.input_arg_names, *op.output_arg_names)
    }


def drop_unused(program: Program, keep: Collection[str], before: Collection[str] | None = None) -> None:
    """Drop the declarations that no operator names any more, apart from those of `keep`.

    before: the names that operators named before; a variable that nothing named then is left alone.
    """
    named = {*keep, *_named(program)}
    for block in program.blocks:
        block.vars = {
            name: var
            for name, var in block.vars.items()
            if name in named or (before is not None and name not in before)
        }
