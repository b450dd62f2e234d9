"""memory_optimize and release_memory (Paddle 0.12 to 1.5; they do nothing from 1.6 on)."""

from __future__ import annotations

from collections.abc import Collection

from fluidtool.ir import Program, Variable
from fluidtool.passes.memory_optimize import memory_optimize as optimize
from fluidtool.passes.release_memory import release_memory as release

__all__ = ["memory_optimize", "release_memory"]


def memory_optimize(
    input_program: Program,
    skip_opt_set: Collection[Variable | str] | None = None,
    print_log: bool = False,
    level: int = 0,
    skip_grads: bool = False,
) -> None:
    """Let variables of a program that are needed at different times share memory, in place.

    Call it on the complete program, after `minimize`. Fetched and persistable values do not change;
    fed and fetched variables are left alone, in `skip_opt_set` or not. level: 0 reuses memory for equal shapes, 1
    for any. skip_grads: leave alone the gradients that optimizers read. print_log: write each reuse to stdout.
    Raises UsageError (a ValueError) for another level or a `skip_opt_set` that is not a set or list, ArgumentTypeError (a
    TypeError) for items in it that are neither variables nor names.
    """
    optimize(input_program, skip_opt_set, print_log, level, skip_grads)


def release_memory(input_program: Program, skip_opt_set: Collection[Variable | str] | None = None) -> None:
    """Insert `delete_var` operators after the last use of variables, in place.

    Fetched and persistable values do not change. Raises as `memory_optimize` does.
    """
    release(input_program, skip_opt_set)
