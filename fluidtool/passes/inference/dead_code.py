"""`drop-dead`: operators whose results nothing needs go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Any

from fluidtool.ir import Operator, Program
from fluidtool.ir.dataflow import operator_effects, sub_block_operators
from fluidtool.ops.registry import find_op
from fluidtool.passes.inference.queries import is_persistable
from fluidtool.passes.inference.rewriting import drop_unused
from fluidtool.passes.result import Decision, PassResult, decide
from fluidtool.runtime.scope import Scope

NAME = "drop-dead"


def drop_dead(program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """Take out operators of every block that lead to no fetched, kept or persistable variable, in place.

    Operators that do more than compute (print, save, send, …) stay, with all they read. Without fetch operators and
    without `keep` nothing says what is wanted, and everything stays.
    """
    block = program.global_block()
    if not keep and not any(op.type == "fetch" for op in block.ops):
        why = "there is no fetch operator and nothing that must be kept: any variable may be needed"
        return PassResult(tuple(decide(NAME, op, False, why) for op in block.ops[-1:]))
    decisions: list[Decision] = []
    while found := _dead(program, set(keep)):
        for op in found:
            decisions.append(decide(NAME, op, True, "its results are not needed"))
        _take_out(program, found)
    if decisions:
        drop_unused(program, keep)
        program.touch()
    return PassResult(tuple(decisions))


def _dead(program: Program, keep: set[str]) -> list[Operator]:
    """The operators that nothing needs: backwards through block 0, then through the blocks below what is left."""
    wanted, dead, does_more = set(keep), list[Operator](), _doing_more(program)
    for op in reversed(program.global_block().ops):
        effects = operator_effects(program, op)
        if does_more(op) or effects.writes & wanted:
            wanted |= effects.reads
        else:
            dead.append(op)
    gone = set(map(id, dead))
    live = [op for op in program.global_block().ops if id(op) not in gone]
    below = [inner for op in live for inner in sub_block_operators(program, op)]
    return dead[::-1] + _unread([op for op in below if not does_more(op)], _readers(program), keep)


def _unread(ops: list[Operator], readers: Counter[str], keep: set[str]) -> list[Operator]:
    """Those of the operators whose results are private to their block, and read by none that stays.

    A later round of a loop may read what an earlier one wrote, so order does not count below block 0.
    """
    writers: dict[str, list[Operator]] = {}
    for op in ops:
        for name in op.output_arg_names:
            writers.setdefault(name, []).append(op)
    gone: dict[int, Operator] = {}
    waiting = ops[::-1]
    while waiting:
        op = waiting.pop()
        if id(op) in gone or any(
            readers[name] or name in keep or name not in op.block.vars for name in op.output_arg_names
        ):
            continue
        gone[id(op)] = op
        for name in _read_by(op):
            readers[name] -= 1
            if not readers[name]:
                waiting += writers.get(name, ())
    return list(gone.values())


def _readers(program: Program) -> Counter[str]:
    """How often operators read a name, or take it out of their sub-blocks."""
    return Counter(name for block in program.blocks for op in block.ops for name in _read_by(op))


def _read_by(op: Operator) -> list[str]:
    """What one operator reads, or takes out of its sub-blocks by name."""
    taken = [*op.output_arg_names, *_named_by_attributes(op)] if op.sub_blocks() else []
    return [*op.input_arg_names, *taken]


def _named_by_attributes(op: Operator) -> Iterable[str]:
    """Strings that attributes hold: `recurrent` names its states and outputs so."""
    for name in op.attr_names:
        value: Any = op.attr(name)
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            yield from (item for item in value if isinstance(item, str))


def _doing_more(program: Program) -> Callable[[Operator], bool]:
    """Whether an operator, or one below it, does more than compute temporary variables; looks at each block once."""
    blocks: dict[int, bool] = {}

    def below(index: int) -> bool:
        if index not in blocks:
            blocks[index] = any(map(does_more, program.block(index).ops))
        return blocks[index]

    def does_more(op: Operator) -> bool:
        return _does_more_itself(op) or any(map(below, op.sub_blocks()))

    return does_more


def _does_more_itself(op: Operator) -> bool:
    """Whether an operator has effects beside its outputs, or writes what persists; unknown operators may."""
    info = find_op(op.type)
    if info is None or info.side_effects or op.type in ("feed", "fetch") or not op.output_arg_names or op.is_target:
        return True
    return any(is_persistable(op.block, name) for name in _written_anew(op))


def _written_anew(op: Operator) -> set[str]:
    """What an operator writes, except statistics that it leaves unchanged in inference."""
    written = set(op.output_arg_names)
    return written - set(op.input_arg_names) if op.get_attr("is_test", False) else written


def _take_out(program: Program, dead: list[Operator]) -> None:
    gone = set(map(id, dead))
    for op in dead:
        for index in op.sub_blocks():
            program.block(index).ops = []
    for block in program.blocks:
        block.ops = [op for op in block.ops if id(op) not in gone]
