"""memory_optimize and release_memory (Paddle 0.12 to 1.5; from 1.6 on they do nothing there)."""

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

    Call it when the program is complete, after `minimize`. No value that is fetched, and no persistable one, changes;
    what is fed or fetched is left alone, named in `skip_opt_set` or not. level: 0 reuses memory for equal shapes, 1
    for any. skip_grads: leave alone the gradients that optimizers read. print_log: write each reuse to stdout.
    Raises UsageError (a ValueError) for another level or a `skip_opt_set` that is no set or list, ArgumentTypeError (a
    TypeError) for items in it that are no variables or names.
    """
    optimize(input_program, skip_opt_set, print_log, level, skip_grads)


def release_memory(input_program: Program, skip_opt_set: Collection[Variable | str] | None = None) -> None:
    """Put `delete_var` operators behind the last use of variables, in place.

    No value that is fetched, and no persistable one, changes. Raises as `memory_optimize` does.
    """
    release(input_program, skip_opt_set)
