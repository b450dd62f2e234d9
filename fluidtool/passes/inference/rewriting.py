"""The form of every inference rewrite: a rule looks at one operator and answers with an Edit, a reason, or nothing.

    def rule(site: Site) -> Edit | str | None

None: this operator is no candidate. A string, or `raise Unfit(reason)`: a candidate that must stay as it is, and why. An
Edit: the operators that go and those that come. `rewrite` asks the rule at every operator of every block, applies the
edits that do not overlap in one sweep, and sweeps again until nothing changes. A rule changes nothing itself: a new
parameter or variable goes into the Edit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

from fluidtool.errors import ProgramError
from fluidtool.ir import Block, Operator, Program
from fluidtool.ir.dataflow import block_flow, sub_block_operators
from fluidtool.ir.reuse import restore_names
from fluidtool.ir.surgery import copy_variable
from fluidtool.passes.inference.quantisers import REASON, before_quantisers
from fluidtool.passes.inference.site import Edit, NewParameter, NewVariable, Site, Unfit, on_host
from fluidtool.passes.result import Decision, PassResult, decide
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import LoDTensor, var_type_of

__all__ = [
    "BATCH_NORMS",
    "Edit",
    "NewParameter",
    "NewVariable",
    "Rule",
    "Site",
    "Unfit",
    "drop_unused",
    "on_host",
    "rewrite",
    "uses_running_statistics",
]

SWEEPS = 100
OUTER_INPUTS = ("parameters", "X", "Input")  # of recurrent, while, conditional_block
BATCH_NORMS = frozenset({"batch_norm", "sync_batch_norm"})


Rule = Callable[[Site], "Edit | str | None"]


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
        named = _named(program)
        edited = [sweep(name, rule, block, scope, frozenset(keep), done, left, exact) for block in program.blocks]
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
    name: str,
    rule: Rule,
    block: Block,
    scope: Scope,
    keep: frozenset[str],
    done: list[Decision],
    left: list[Decision],
    exact: bool = False,
) -> bool:
    """One look at every operator of a block; whether anything was edited."""
    flow, edits, touched = block_flow(block), list[Edit](), set[int]()
    changed, used = set[str](), set[str]()
    quantised = frozenset[int]() if exact else before_quantisers(flow)
    written = Counter(name for other in block.program.blocks for op in other.ops for name in _changed_by(op))
    for position, op in enumerate(block.ops):
        answer = _ask(rule, Site(flow, position, scope, keep, written))
        if isinstance(answer, str):
            left.append(decide(name, op, False, answer))
        elif answer is not None and answer.position in quantised:
            left.append(decide(name, op, False, REASON))
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
    except (Unfit, ProgramError) as reason:  # a ProgramError: the program lacks a declaration or an attribute
        return str(reason)


def _brought(edit: Edit) -> set[str]:
    """The names that an edit declares."""
    return {new.name for new in edit.parameters} | {new.name for new in edit.variables}


def _names_of(edit: Edit, block: Block) -> set[str]:
    """Every name that an edit depends on or brings."""
    ops = (*(block.ops[position] for position in edit.remove), *edit.insert)
    used = {name for op in ops for name in (*op.input_arg_names, *op.output_arg_names)}
    return used | {*edit.rename.values()} | _brought(edit)


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
