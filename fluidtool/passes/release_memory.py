"""release_memory: a `delete_var` operator after the last use of every variable that a run does not need any longer.

What Paddle 0.12 to 1.5 deletes, this deletes (memory_optimization_transpiler.py), the same traces of operators looked
at as in `memory_optimize`; but nothing that is fed or fetched, and nothing that is written again later: Paddle makes the
variables once, before the first operator, so that one which writes to a deleted name ends the process (delete_var_op.cc,
executor.cc of 1.8.5). Names that `memory_optimize` let several variables share are so deleted after the last of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from fluidtool.errors import ArgumentTypeError
from fluidtool.ir import Operator, Program
from fluidtool.ir.reuse import original_names, set_original_names
from fluidtool.ir.roles import ROLE_ATTR
from fluidtool.passes.liveness import Liveness, Trace, liveness, traces
from fluidtool.passes.memory_variables import Untouchable, variable_names
from fluidtool.passes.result import Decision, PassResult
from fluidtool.records import dataclass

RULE, DELETE = "release_memory", "delete_var"
WRITTEN_AGAIN = "it is written again later, and Paddle cannot write to a deleted variable"


@dataclass(frozen=True, slots=True)
class _Release:
    """Variables to delete after an operator."""

    op: Operator
    names: tuple[str, ...]


def release_memory(program: Program, skip_opt_set: object = None) -> PassResult:
    """Insert `delete_var` operators into `program`, in place. No fetched or persistable value changes by a bit.

    skip_opt_set: variables or names to keep. What activations need before and after, `peak.until_deleted` says.
    Raises UsageError (a ValueError) for a `skip_opt_set` that is no set or list, ArgumentTypeError (a TypeError) for
    other items in it; the program is then as it was.
    """
    if not isinstance(program, Program):
        raise ArgumentTypeError(f"release_memory takes a Program, found {type(program).__name__}")
    untouchable = Untouchable(program, variable_names(skip_opt_set), renames=False)
    releases: list[_Release] = []
    decisions: list[Decision] = []
    loops = _loops_in_one_scope(program)
    for trace in traces(program):
        _plan(trace, untouchable, trace.blocks[0].idx in loops, releases, decisions)
    _insert(releases)
    return PassResult(tuple(decisions))


def _plan(
    trace: Trace, untouchable: Untouchable, in_one_scope: bool, releases: list[_Release], decisions: list[Decision]
) -> None:
    flow = liveness(trace)
    for position, op in enumerate(flow.operators):
        names = []
        for name in sorted(flow.dying[position]):
            reason = untouchable.reason(flow, name) or _reason(flow, position, name, in_one_scope)
            done = reason is None
            names += [name] if done else []
            reason = f"deleted after {op.type}, its last use" if reason is None else reason
            decisions.append(Decision(RULE, op.block.idx, op.type, name, done, reason))
        if names:
            releases.append(_Release(op, tuple(names)))


def _reason(flow: Liveness, position: int, name: str, in_one_scope: bool) -> str | None:
    if in_one_scope:
        return "all iterations of the loop share one scope, in which Paddle creates its variables once"
    if flow.operators[position].type == DELETE:
        return "it is already deleted"
    return WRITTEN_AGAIN if flow.last(name) > position else None


def _loops_in_one_scope(program: Program) -> set[int]:
    """The blocks of loops for inference (Paddle 1.8.5 while_op.cc)."""
    loops = [op for op in program.global_block().ops if op.type == "while" and op.get_attr("is_test", False)]
    return {index for op in loops for index in op.sub_blocks()}


def _insert(releases: Iterable[_Release]) -> None:
    """Put an operator right behind each; it has the role of the one whose last use it follows, so that both go together."""
    after = {id(release.op): release for release in releases}
    for block in dict.fromkeys(release.op.block for release in after.values()):
        ops = []
        for op in block.ops:
            ops.append(op)
            if id(op) in after:
                ops.append(_deletion(after[id(op)]))
        block.ops = ops
        block.program.touch()


def _deletion(release: _Release) -> Operator:
    op = release.op
    attrs = {ROLE_ATTR: op.get_attr(ROLE_ATTR)} if op.has_attr(ROLE_ATTR) else {}
    deletion = Operator(op.block, type=DELETE, inputs={"X": list(release.names)}, attrs=attrs)
    known = original_names(op)
    set_original_names(deletion, {name: known[name] for name in release.names if name in known})
    return deletion
