"""The default programs and the guards around them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fluidtool.errors import ArgumentTypeError
from fluidtool.ir import Program, Variable


class _Current:
    main = Program()
    startup = Program()
    name_scopes: tuple[str, ...] = ()


def default_main_program() -> Program:
    """The program that layers append to and runs use when they name none."""
    return _Current.main


def default_startup_program() -> Program:
    """The program that initialises what layers create."""
    return _Current.startup


def switch_main_program(program: Program) -> Program:
    """Make another program the default main program and return the one before."""
    old, _Current.main = _Current.main, program
    return old


def switch_startup_program(program: Program) -> Program:
    """Make another program the default startup program and return the one before."""
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
    """The variable of this name in block 0 (of the default main program); raises ProgramError when there is none."""
    return (default_main_program() if program is None else program).global_block().var(name)
