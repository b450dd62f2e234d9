"""The form of every inference rewrite: a rule looks at one operator and answers with an Edit, a reason, or nothing.

    def rule(site: Site) -> Edit | str | None

None: this operator is no candidate. A string: a candidate that must stay as it is, and why. An Edit: the operators that
go and those that come. `rewrite` asks the rule at every operator of every block, applies the edits that do not overlap
in one sweep, and sweeps again until nothing changes. A rule changes nothing itself: a new parameter goes into the Edit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from fluidtool.errors import ProgramError
from fluidtool.ir import Block, Operator, Program
from fluidtool.ir.dataflow import BlockFlow, block_flow, sub_block_operators
from fluidtool.passes.result import Decision, PassResult, decide
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import LoDTensor

SWEEPS = 100


@dataclass(frozen=True, slots=True)
class NewParameter:
    """A parameter that an edit brings: it is declared like `like` where that one is, and its array goes to the scope."""

    name: str
    array: Any
    like: str


@dataclass(frozen=True, slots=True)
class Edit:
    """Operators at `remove` go; `insert` comes at `position` (the place of the last of them); `reason` says what was done."""

    remove: frozenset[int]
    position: int
    insert: tuple[Operator, ...]
    reason: str
    parameters: tuple[NewParameter, ...] = ()
    rename: dict[str, str] = field(default_factory=dict)  # what later readers read instead of a name written once


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

    def why_visible(self, name: str, reader: int) -> str:
        """Why the value of `name` written here may not vanish into operator `reader`; empty when it may."""
        var = self.block.vars.get(name)
        if name in self.keep:
            return f"{name} is fetched or to be kept"
        if var is None:
            return f"{name} belongs to an outer block"
        if var.persistable:
            return f"{name} is persistable"
        others = [position for position in self.flow.consumers(self.position, name) if position != reader]
        if others:
            types = sorted({self.block.ops[position].type for position in others})
            return f"{name} is also {'fetched' if types == ['fetch'] else 'read by ' + ', '.join(types)}"
        return ""

    def holds_until(self, name: str, position: int) -> bool:
        """Whether the value of `name` that this operator reads is still there at a later operator."""
        return not any(name in self.flow.effects[i].writes for i in range(self.position, position))

    def is_constant(self, name: str) -> bool:
        """Whether `name` is a persistable variable that no operator of the program writes and that has a value."""
        var = self.block.find_var_recursive(name)
        return var is not None and var.persistable and self.array(name) is not None and not self.written[name]

    def array(self, name: str) -> Any:
        """The array of a parameter in the scope; None when it has none."""
        found = self.scope.find_var(name)
        value = found.value if found is not None else None
        return value.array if isinstance(value, LoDTensor) else None

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

    Variables that nothing names any more are dropped from the program (never from the scope).
    """
    done: list[Decision] = []
    for _ in range(SWEEPS):
        left: list[Decision] = []
        edited = [sweep(name, rule, block, scope, frozenset(keep), done, left) for block in program.blocks]
        if not any(edited):
            break
        drop_unused(program, keep)
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
    written = Counter(name for other in block.program.blocks for op in other.ops for name in op.output_arg_names)
    names: set[str] = set()
    for position, op in enumerate(block.ops):
        answer = rule(Site(flow, position, scope, keep, written))
        if isinstance(answer, str):
            left.append(decide(name, op, False, answer))
        elif answer is not None:
            new = {parameter.name for parameter in answer.parameters}
            if touched & answer.remove or names & new:
                continue  # the next sweep sees it afresh
            touched |= answer.remove
            names |= new
            edits.append(answer)
            done.append(decide(name, op, True, answer.reason))
    if edits:
        apply(block, edits, scope)
    return bool(edits)


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


def _rename_inputs(program: Program, op: Operator, renamed: dict[str, str]) -> None:
    for inner in (op, *sub_block_operators(program, op)):
        for old, new in renamed.items():
            inner.rename_input(old, new)


def _declare(block: Block, new: NewParameter, scope: Scope) -> None:
    like = block.var_recursive(new.like)
    block.create_parameter(shape=list(new.array.shape), dtype=like.dtype, name=new.name)
    scope.var(new.name).value = LoDTensor(new.array)


def drop_unused(program: Program, keep: Collection[str]) -> None:
    """Drop the declarations that no operator names any more, apart from those of `keep`."""
    named = set(keep)
    for block in program.blocks:
        for op in block.ops:
            named.update(op.input_arg_names, op.output_arg_names)
    for block in program.blocks:
        block.vars = {name: var for name, var in block.vars.items() if name in named}
