"""The form of every inference rewrite: a rule looks at one operator and answers with an Edit, a reason, or nothing.

    def rule(match: MatchContext) -> Edit | str | None

None: this operator is no candidate. A string, or `raise NoMatch(reason)`: a candidate that must stay as it is, and why. An
Edit: the operators that go and those that come. `rewrite` asks the rule at every operator of every block, applies the
edits that do not overlap in one sweep, and sweeps again until nothing changes. A rule changes nothing itself: a new
parameter or variable goes into the Edit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from fluidtool.errors import ProgramError
from fluidtool.ir import Block, Operator, Program
from fluidtool.ir.dataflow import block_flow, sub_block_operators
from fluidtool.ir.reuse import restore_names
from fluidtool.ir.surgery import copy_variable
from fluidtool.passes.inference.match import Edit, MatchContext, NewParameter, NewVariable, NoMatch, on_host
from fluidtool.passes.inference.names import BATCH_NORMS, Names, names_of, uses_running_statistics
from fluidtool.passes.inference.quantisers import REASON, before_quantisers
from fluidtool.passes.result import Decision, PassResult, decide
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import LoDTensor, var_type_of

__all__ = [
    "BATCH_NORMS",
    "Edit",
    "MatchContext",
    "NewParameter",
    "NewVariable",
    "NoMatch",
    "Rule",
    "drop_unused",
    "on_host",
    "rewrite",
    "uses_running_statistics",
]

SWEEPS = 100
OUTER_INPUTS = ("parameters", "X", "Input")  # of recurrent, while, conditional_block
Rule = Callable[[MatchContext], "Edit | str | None"]


def rewrite(
    name: str, rule: Rule, program: Program, scope: Scope, keep: Collection[str] = (), *, exact: bool = False
) -> PassResult:
    """Apply a rule everywhere until it finds nothing more, in place; `keep` names what is fetched from outside.

    exact: the numbers stay to the last bit; otherwise what a quantiser reads later on is left (`quantisers.py`).

    Variables that nothing names any more are dropped from the program (never from the scope). What `memory_optimize` did
    before is undone: a rule makes new operators of old ones, which would mean other variables by the names they share.
    """
    restore_names(program)
    done: list[Decision] = []
    for _ in range(SWEEPS):
        left: list[Decision] = []
        named = program.known(_named, program)
        names = program.known(names_of, program)
        edited = [
            sweep(name, rule, block, scope, frozenset(keep), names, done, left, exact) for block in program.blocks
        ]
        if not any(edited):
            break
        drop_unused(program, keep, named)
        program.touch()
    else:
        raise ProgramError(
            f"the pass {name} still finds something to do after {SWEEPS} sweeps; this is a bug in the pass"
        )
    return PassResult((*done, *left))


def sweep(
    name: str,
    rule: Rule,
    block: Block,
    scope: Scope,
    keep: frozenset[str],
    names: Names,
    done: list[Decision],
    left: list[Decision],
    exact: bool = False,
) -> bool:
    """One look at every operator of a block; whether anything was edited."""
    flow, edits, touched = block.program.known(block_flow, block), list[Edit](), set[int]()
    changed, used = set[str](), set[str]()
    quantised = before_quantisers(flow) if names.quantises and not exact else frozenset[int]()
    for position, op in enumerate(block.ops):
        answer = _ask(rule, MatchContext(flow, position, scope, keep, names))
        if isinstance(answer, str):
            left.append(decide(name, op, False, answer))
        elif answer is not None and answer.position in quantised:
            left.append(decide(name, op, False, REASON))
        elif answer is not None:
            # What an edit of this sweep removed, renamed or brought is seen by the next sweep only.
            brought = {new: array for new, array in _brought(answer).items() if not names.declared.get(new)}
            changes = {*answer.rename, *brought}
            uses = _names_of(answer, block)
            if touched & answer.remove or changed & uses or changes & used:
                continue
            touched |= answer.remove
            changed |= changes
            used |= uses
            edits.append(answer)
            names.pending |= brought
            done.append(decide(name, op, True, answer.reason))
    if edits:
        apply(block, edits, scope, names)
        names.pending.clear()
        block.program.touch()
    return bool(edits)


def _ask(rule: Rule, match: MatchContext) -> Edit | str | None:
    if match.op.variable_attrs():  # rules read attributes as numbers
        return None
    try:
        return rule(match)
    except (NoMatch, ProgramError) as reason:  # a ProgramError: the program lacks a declaration or an attribute
        return str(reason)


def _brought(edit: Edit) -> dict[str, Any]:
    """The names that an edit declares, with the arrays of parameters."""
    return {new.name: None for new in edit.variables} | {new.name: new.array for new in edit.parameters}


def _names_of(edit: Edit, block: Block) -> set[str]:
    """Every name that an edit depends on or brings."""
    ops = (*(block.ops[position] for position in edit.remove), *edit.insert)
    used = {name for op in ops for name in (*op.input_arg_names, *op.output_arg_names)}
    return used | {*edit.rename.values(), *_brought(edit)}


def apply(block: Block, edits: list[Edit], scope: Scope, names: Names) -> None:
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
            for new in edit.insert:
                names.add(new)
        if position in removed:
            names.drop(op)
        else:
            _rename_inputs(block.program, op, renamed, names)
            ops.append(op)
    block.ops = ops
    for edit in edits:
        for parameter in edit.parameters:
            _declare(block, parameter, scope)
            names.declared[parameter.name].append(block.program.global_block().var(parameter.name))
            _pass_into(block, parameter.name, names)
        for variable in edit.variables:
            copy = copy_variable(block.var_recursive(variable.like), block)
            copy.name = variable.name
            if variable.shape is not None:
                copy.shape = variable.shape
            if variable.lod_level is not None:
                copy.lod_level = variable.lod_level
            block.add_var(copy)
            names.declared[copy.name].append(copy)


def _pass_into(block: Block, name: str, names: Names) -> None:
    """List a parameter as an input of every operator around a sub-block: what these do not list is not saved."""
    for op in names.owners.get(block.idx, ()) if block.idx else ():
        slot = next((slot for slot in OUTER_INPUTS if slot in op.inputs), None)
        if slot is not None and name not in op.input_arg_names:
            names.drop(op)
            op.set_input(slot, [*op.input(slot), name])
            names.add(op)
            _pass_into(op.block, name, names)


def _rename_inputs(program: Program, op: Operator, renamed: dict[str, str], names: Names) -> None:
    for inner in (op, *sub_block_operators(program, op)):
        if not renamed.keys().isdisjoint(inner.input_arg_names):
            names.drop(inner)
            inner.rename_inputs(renamed)
            names.add(inner)


def _declare(block: Block, new: NewParameter, scope: Scope) -> None:
    block.create_parameter(shape=list(new.array.shape), dtype=var_type_of(new.array.dtype), name=new.name)
    like = scope.find_var(new.like)
    tensor = LoDTensor()
    tensor.set(new.array, like.value.place() if like is not None and isinstance(like.value, LoDTensor) else None)
    scope.var(new.name).value = tensor


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
