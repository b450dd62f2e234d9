"""The default programs and the guards around them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import random
from typing import Any

from fluidtool.errors import ArgumentTypeError, AssertedError, UsageError
from fluidtool.ir import Block as Block  # noqa: PLC0414 (scripts look for it here)
from fluidtool.ir import Operator as Operator  # noqa: PLC0414 (scripts look for it here)
from fluidtool.ir import Parameter as Parameter  # noqa: PLC0414 (scripts look for it here)
from fluidtool.ir import Program, Variable
from fluidtool.ir.operator import EMPTY
from fluidtool.ir.variable import data_type
from fluidtool.ops.building import Building
from fluidtool.ops.gradient import GRAD, grad_name
from fluidtool.proto.enums import VarType

EMPTY_VAR_NAME, TEMP_VAR_NAME = EMPTY, "@TEMP@"
GRAD_VAR_SUFFIX, ZERO_VAR_SUFFIX = GRAD, "@ZERO"
CONTROL_DEP_VAR_PREFIX = "__control_var"


class _Current:
    main = Program()
    startup = Program()
    scopes: tuple[str, ...] = ()
    scope_counts: tuple[Counter[str], ...] = (Counter(),)


def generate_control_dev_var_name() -> str:
    """A name for a variable that only orders operators."""
    return f"{CONTROL_DEP_VAR_PREFIX}@{random()}"


def default_main_program() -> Program:
    """The program that layers append to and that runs use by default."""
    return _Current.main


def default_startup_program() -> Program:
    """The program that initializes what layers create."""
    return _Current.startup


def switch_main_program(program: Program) -> Program:
    """Set the default main program and return the previous one."""
    old, _Current.main = _Current.main, program
    return old


def switch_startup_program(program: Program) -> Program:
    """Set the default startup program and return the previous one."""
    old, _Current.startup = _Current.startup, program
    return old


@contextmanager
def program_guard(main_program: Program, startup_program: Program | None = None) -> Iterator[None]:
    """Within the block these are the default programs; None keeps the startup program."""
    if not isinstance(main_program, Program):
        raise ArgumentTypeError(f"program_guard takes a Program, found {type(main_program).__name__}")
    if startup_program is not None and not isinstance(startup_program, Program):
        raise ArgumentTypeError(f"program_guard takes a Program, found {type(startup_program).__name__}")
    old_main = switch_main_program(main_program)
    old_startup = switch_startup_program(startup_program) if startup_program is not None else None
    try:
        yield
    finally:
        switch_main_program(old_main)
        if old_startup is not None:
            switch_startup_program(old_startup)


def get_var(name: str, program: Program | None = None) -> Variable:
    """The variable of this name in block 0 (of the default main program); raises ProgramError if it does not exist."""
    return (default_main_program() if program is None else program).global_block().var(name)


def grad_var_name(var_name: str) -> str:
    """The name of a variable's gradient."""
    return grad_name(var_name)


def convert_np_dtype_to_dtype_(np_dtype: Any) -> VarType:
    """The data type of the format for one of numpy, or its name."""
    return data_type(np_dtype)


_get_var = get_var


@contextmanager
def name_scope(prefix: str | None = None) -> Iterator[None]:
    """Operators appended within carry `prefix` (numbered if it is used again) in their `op_namescope`."""
    if not prefix:
        raise AssertedError("namescope prefix can not be empty.")
    before = _Current.scopes, _Current.scope_counts
    counts = _Current.scope_counts[-1]
    number = counts[prefix]
    counts[prefix] += 1
    _Current.scopes = (*_Current.scopes, prefix if number == 0 else f"{prefix}_{number}")
    _Current.scope_counts = (*_Current.scope_counts, Counter())
    Building.name_scope = _full_name_scope()
    try:
        yield
    finally:
        _Current.scopes, _Current.scope_counts = before
        Building.name_scope = _full_name_scope()


def _full_name_scope() -> str:
    return "/" + "".join(f"{scope}/" for scope in _Current.scopes)


@contextmanager
def device_guard(device: str | None = None) -> Iterator[None]:
    """Operators appended within carry `device` ('cpu', 'gpu' or 'gpu:0' …) in their `op_device`."""
    if device is not None and device.split(":")[0] not in ("cpu", "gpu", ""):
        raise UsageError(
            f"The Attr(device) should be 'cpu' 'npu' or 'gpu', and it can also be empty string or None, found {device!r}"
        )
    before = Building.device
    Building.device = device or ""
    try:
        yield
    finally:
        Building.device = before
