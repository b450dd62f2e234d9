"""Feeds of scripts written for numpy 1, whose arrays numpy 2 has made wider."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any

import numpy as np

from fluidtool.compat.removed.notes import Notes
from fluidtool.fluid.compiler import CompiledProgram
from fluidtool.fluid.executor import Executor
from fluidtool.fluid.framework import default_main_program
from fluidtool.ir import Program, Variable
from fluidtool.proto.enums import VarType
from fluidtool.tensor import LoDTensor

NARROWED = {
    (VarType.FP32, np.dtype("float64")): np.dtype("float32"),
    (VarType.INT32, np.dtype("int64")): np.dtype("int32"),
}


@contextmanager
def narrow_feeds(notes: Notes) -> Iterator[None]:
    """Within the block, executors take arrays of float64 and int64 for float32 and int32 where Paddle would refuse them.

    numpy 1 computed in float32 what a script makes of an array of float32 and an `np.float64`; since numpy 2 it is float64.
    Where Paddle computes with float64 as it is fed, it stays.
    """
    run = Executor.run
    Executor.run = _narrowing(run, notes)  # type: ignore[method-assign]
    try:
        yield
    finally:
        Executor.run = run  # type: ignore[method-assign]


def _narrowing(run: Callable[..., Any], notes: Notes) -> Callable[..., Any]:
    @wraps(run)
    def narrowing(self: Executor, program: Any = None, feed: Any = None, *args: Any, **named: Any) -> Any:
        return run(self, program, narrowed(program, feed, notes), *args, **named)

    return narrowing


def narrowed(program: Any, feed: Any, notes: Notes) -> Any:
    """The feed of a program, or the feeds of its devices, where arrays that Paddle would refuse are narrower."""
    if isinstance(program, CompiledProgram):
        program = program.program
    if program is None:
        program = default_main_program()
    if not isinstance(program, Program):
        return feed
    if isinstance(feed, (list, tuple)):
        return [narrowed(program, each, notes) for each in feed]
    if not isinstance(feed, Mapping):
        return feed
    return {name: _narrowed(program, name, value, notes) for name, value in feed.items()}


def _narrowed(program: Program, name: str, value: Any, notes: Notes) -> Any:
    var = program.global_block().vars.get(name)
    if var is None or not isinstance(value, (np.ndarray, LoDTensor)):
        return value
    array = np.asarray(value)
    narrow = NARROWED.get((VarType(var.dtype), array.dtype)) if var.dtype is not None else None
    if narrow is None or not (var.need_check_feed or meets_narrow(program, var)):
        return value
    notes.say(f"{name} was fed as {array.dtype}, as numpy 2 makes it; fluidtool feeds {narrow}, as it is declared")
    narrow_array = array.astype(narrow)
    return LoDTensor(narrow_array, value.lod()) if isinstance(value, LoDTensor) else narrow_array


def meets_narrow(program: Program, var: Variable) -> bool:
    """Whether an operator reads the variable, or what is computed from it, with another of the type that it is declared as.

    In Paddle that operator fails when the variable is fed a wider array.
    """
    block = program.global_block()
    wider = {var.name}
    for op in block.ops:
        declared = {name for name in op.input_arg_names if block.has_var(name) and block.var(name).dtype == var.dtype}
        if declared & wider:
            if declared - wider:
                return True
            wider.update(op.output_arg_names)
    return False
