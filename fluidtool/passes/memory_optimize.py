"""memory_optimize: variables whose values are needed at different times get one name, so that they share memory.

What Paddle 1.3 to 1.4 reuses, this reuses (memory_optimization_transpiler.py): LoDTensors of block 0, and those of loops
and branches in it, that are not persistable, of one data type and, at level 0, one shape; at level 1 any sizes, as
long as both or neither depend on the batch. Where Paddle takes memory operator by operator, this looks at the whole
program first and needs less. What is fed or fetched is left alone, named in `skip_opt_set` or not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from math import prod

from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.ir import Program, Variable
from fluidtool.ir.reuse import original_names, rename_arguments, set_original_names
from fluidtool.passes.buffers import Buffer, Candidate, share
from fluidtool.passes.liveness import Liveness, Trace, liveness, traces
from fluidtool.passes.memory_variables import Untouchable, variable_names
from fluidtool.passes.result import Decision, PassResult
from fluidtool.records import dataclass

RULE = "memory_optimize"
UNKNOWN_SIZE = 8


@dataclass(frozen=True, slots=True)
class _Shared:
    """The buffers of one trace, and why other variables have none."""

    flow: Liveness
    buffers: tuple[Buffer, ...]
    left: dict[str, str]

    def names(self) -> dict[str, str]:
        """variable -> the name of its buffer, for variables that share.

        The buffer has the name of its largest user; in a loop with its gradient, of one that the forward block declares,
        since the variables of the gradient are not there yet when Paddle runs it.
        """
        early = self.flow.trace.blocks[0].vars
        found: dict[str, str] = {}
        for buffer in self.buffers:
            if len(buffer.members) > 1:
                largest = max(buffer.members, key=lambda c: (c.name in early, c.size, -c.first)).name
                found.update((candidate.name, largest) for candidate in buffer.members)
        return found


def memory_optimize(
    program: Program,
    skip_opt_set: object = None,
    print_log: bool = False,
    level: int = 0,
    skip_grads: bool = False,
) -> PassResult:
    """Let variables of `program` share memory, in place. No fetched or persistable value changes by a bit.

    skip_opt_set: variables or names that keep memory of their own. level: 0 for equal shapes, 1 for any sizes.
    skip_grads: leave the gradients alone that optimizers read. print_log: write every reuse to stdout. What activations
    need before and after, `peak.estimate` says.
    Raises UsageError (a ValueError) for another level or a `skip_opt_set` that is no set or list, ArgumentTypeError (a
    TypeError) for other items in it; the program is then as it was.
    """
    if not isinstance(program, Program):
        raise ArgumentTypeError(f"memory_optimize takes a Program, found {type(program).__name__}")
    if level not in (0, 1):
        raise UsageError(f"only support opt_level 0 or 1. Found {level!r}: 0 reuses equal shapes, 1 any sizes")
    untouchable = Untouchable(program, variable_names(skip_opt_set), skip_grads)
    plan = [_plan(trace, untouchable, level) for trace in traces(program)]
    decisions = tuple(decision for shared in plan for decision in _decisions(shared))
    if print_log:
        sys.stdout.writelines(_log(plan))
    for shared in plan:
        _rename(shared)
    return PassResult(decisions)


# ---------------------------------------------------------------- planning
def _plan(trace: Trace, untouchable: Untouchable, level: int) -> _Shared:
    flow = liveness(trace)
    candidates, left = [], {}
    for name in sorted(flow.occupied, key=lambda name: (flow.first(name), name)):
        reason = untouchable.reason(flow, name)
        var = _declaration(trace, name)
        if reason is None and var is not None:
            reason = _without_memory(var)
        if reason is None and var is not None:
            candidates.append(Candidate(name, _kind(var, level), _size(var), flow.occupied[name]))
        elif reason is not None:
            left[name] = reason
    return _Shared(flow, tuple(share(candidates)), left)


def _declaration(trace: Trace, name: str) -> Variable | None:
    return next((block.vars[name] for block in trace.blocks if name in block.vars), None)


def _without_memory(var: Variable) -> str | None:
    if var.dtype is None or not var.shape:
        return "its shape or data type is not declared"
    return None if _size(var) else "it has no memory"


def _kind(var: Variable, level: int) -> tuple[object, ...]:
    """What two variables must have in common to share memory."""
    return (var.dtype, var.shape if level == 0 else var.shape[0] < 0)


def _size(var: Variable) -> int:
    """Elements for a batch of 1; other sizes that only a run can tell, such as those of images, count UNKNOWN_SIZE."""
    first, *others = var.shape
    return (1 if first < 0 else first) * prod(UNKNOWN_SIZE if size < 0 else size for size in others)


# ---------------------------------------------------------------- changing
def _rename(shared: _Shared) -> None:
    names = shared.names()
    if not names:
        return
    for op in shared.flow.operators:
        known = original_names(op)
        arguments = (*op.input_arg_names, *op.output_arg_names)
        originals = {names.get(n, n): known.get(n, n) for n in arguments if n in names or n in known}
        rename_arguments(op, names)
        set_original_names(op, originals)


# ---------------------------------------------------------------- saying so
def _decisions(shared: _Shared) -> Iterator[Decision]:
    names = shared.names()
    for name in sorted(shared.flow.occupied, key=lambda name: (shared.flow.first(name), name)):
        op = shared.flow.operators[shared.flow.first(name)]
        buffer = names.get(name)
        done = buffer is not None and buffer != name
        reason = shared.left.get(name) or "it is in use together with every variable that it could share memory with"
        if buffer is not None:
            reason = f"uses the memory of {buffer}" if done else "its memory is also used by others"
        yield Decision(RULE, op.block.idx, op.type, name, done, reason)


def _log(plan: list[_Shared]) -> Iterator[str]:
    """A line for every reuse, in the words of Paddle 1.0."""
    for shared in plan:
        names = shared.names()
        for number, buffer in enumerate(shared.buffers):
            for candidate in buffer.members:
                cache = names.get(candidate.name, candidate.name)
                if cache != candidate.name:
                    var = _declaration(shared.flow.trace, candidate.name)
                    shape = () if var is None else tuple(var.shape)
                    yield (
                        f"Hit Cache !!!! cache pool index is {number}, var name is {candidate.name}, "
                        f"cached var name is {cache}, var shape is {shape} \n"
                    )
