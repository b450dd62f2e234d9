"""Inference programs: feed operators in front, fetch operators behind (Paddle 1.8.5 io.py)."""

from __future__ import annotations

from collections.abc import Sequence

from fluidtool.errors import ProgramError
from fluidtool.ir import Operator, Program
from fluidtool.ir.surgery import inference_optimize, prune
from fluidtool.proto.enums import VarType

PADDLE_VERSION = 1008005
FEED_VAR, FETCH_VAR = "feed", "fetch"


def feed_names(program: Program) -> list[str]:
    """What the program's feed operators feed, by column; one that names nothing feeds nothing."""
    return list(program.known(_fed, program))


def fetch_names(program: Program) -> list[str]:
    """What the program's fetch operators fetch, by column; one that names nothing fetches nothing."""
    return list(program.known(_fetched, program))


def _fed(program: Program) -> tuple[str, ...]:
    return tuple(name for op in _by_column(program, "feed") for name in op.output("Out")[:1])


def _fetched(program: Program) -> tuple[str, ...]:
    return tuple(name for op in _by_column(program, "fetch") for name in op.input("X")[:1])


def _by_column(program: Program, op_type: str) -> list[Operator]:
    ops = [op for op in program.global_block().ops if op.type == op_type]
    return sorted(ops, key=_column)


def _column(op: Operator) -> int:
    column = op.get_attr("col", 0)
    return column if isinstance(column, int) else 0


def strip_feed_fetch(program: Program) -> None:
    """Take feed and fetch operators and their holder variables out, and clear targets."""
    block = program.global_block()
    block.ops = [op for op in block.ops if op.type not in ("feed", "fetch")]
    for op in block.ops:
        op.is_target = False
    for name in (FEED_VAR, FETCH_VAR):
        var = block.vars.get(name)
        if var is not None and var.type in (VarType.FEED_MINIBATCH, VarType.FETCH_LIST):
            block.remove_var(name)
    program.touch()


def add_feed_fetch(program: Program, feeds: Sequence[str], fetches: Sequence[str]) -> None:
    """Put feed operators in front (the last column first, as in Paddle) and fetch operators behind."""
    block = program.global_block()
    block.create_var(name=FEED_VAR, type=VarType.FEED_MINIBATCH, persistable=True)
    block.create_var(name=FETCH_VAR, type=VarType.FETCH_LIST, persistable=True)
    prepend_feeds(program, feeds, FEED_VAR)
    append_fetches(program, fetches, FETCH_VAR)


def prepend_feeds(program: Program, names: Sequence[str], holder: str) -> None:
    """Put a feed operator for each name in front, the last one first; raises ProgramError for an unknown name."""
    block = program.global_block()
    for column, name in enumerate(names):
        if not block.has_var(name):
            raise ProgramError(f"The feeded_var_names[{column}]: '{name}' doesn't exist in pruned inference program.")
        block.prepend_op(type="feed", inputs={"X": [holder]}, outputs={"Out": [name]}, attrs={"col": column})


def append_fetches(program: Program, names: Sequence[str], holder: str) -> None:
    """Put a fetch operator for each name behind."""
    block = program.global_block()
    for column, name in enumerate(names):
        block.append_op(type="fetch", inputs={"X": [name]}, outputs={"Out": [holder]}, attrs={"col": column})


def inference_program(program: Program, feeds: Sequence[str], fetches: Sequence[str]) -> Program:
    """A copy that computes `fetches` from `feeds` and nothing else, ready to be saved for inference."""
    bare = program.clone()
    strip_feed_fetch(bare)
    pruned = inference_optimize(prune(bare, list(feeds), list(fetches)))
    _keep_fed(pruned, program, [*feeds, *fetches])
    add_feed_fetch(pruned, feeds, fetches)
    if not pruned.version:
        pruned.version, pruned.version_field = PADDLE_VERSION, 4
    return pruned


def _keep_fed(pruned: Program, program: Program, names: Sequence[str]) -> None:
    """A variable that is fetched as it was fed has no operator that would keep its declaration."""
    from fluidtool.ir.surgery import copy_variable

    block = pruned.global_block()
    for name in names:
        origin = program.global_block().vars.get(name)
        if origin is not None and name not in block.vars:
            block.add_var(copy_variable(origin, block))
