"""What went wrong, as one paragraph on stderr and an exit code."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
import traceback

import typer

from fluidtool.cli.verbosity import LEVEL, QUIET, VERBOSE
from fluidtool.errors import (
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_UNREADABLE,
    EXIT_USAGE,
    FluidError,
    OutOfMemoryError,
    OutputError,
    UnreadableError,
    UsageError,
)

_COMMAND_LINE_FAULT: type[Exception] = typer.BadParameter.__mro__[1]  # typer has no public name for its UsageError


def report(error: BaseException) -> int:
    """Say on stderr what the error means to the user and return the exit code."""
    if isinstance(error, typer.Exit):
        return error.exit_code
    if isinstance(error, BrokenPipeError):  # the reader of stdout has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    if debugging():
        traceback.print_exception(error)
    code, text, exit_code = explain(error)
    say_error(f"{text} [{code}]" if code else text)
    return exit_code


def debugging() -> bool:
    """Whether FLUIDTOOL_DEBUG asks for tracebacks; empty and 0 do not."""
    return os.environ.get("FLUIDTOOL_DEBUG", "") not in ("", "0")


def explain(error: BaseException) -> tuple[str, str, int]:
    """(stable code, message, exit code) of any exception."""
    if isinstance(error, FluidError):
        return error.code, str(error), error.exit_code
    if isinstance(error, (KeyboardInterrupt, typer.Abort)):
        return "", "interrupted", EXIT_INTERRUPTED
    if isinstance(error, _COMMAND_LINE_FAULT):
        return UsageError.code, _usage_text(error), EXIT_USAGE
    if isinstance(error, MemoryError):
        text = "not enough memory for this model and these inputs; use smaller inputs, fetch less or free memory"
        return OutOfMemoryError.code, f"{text} ({error})" if str(error) else text, OutOfMemoryError.exit_code
    if isinstance(error, OSError):
        return _system_fault(error)
    return (
        FluidError.code,
        f"internal error: {type(error).__name__}: {error}; this is a bug in fluidtool, please report it with the "
        f"output of FLUIDTOOL_DEBUG=1",
        EXIT_INTERNAL,
    )


def _usage_text(error: Exception) -> str:
    """The sentence of a command-line fault, with near names and where to find help."""
    message = str(error.format_message()) if hasattr(error, "format_message") else str(error)
    near = sorted(getattr(error, "possibilities", None) or ())
    message = re.sub(r"\s*\((Possible options: |Did you mean ).*$", "", message, flags=re.DOTALL).rstrip(".")
    message = re.sub(r"[.,;]?\s*Did you mean .*$", "", message, flags=re.DOTALL)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "fluidtool"
    return f"{message[:1].lower()}{message[1:]}{hint} (see '{path} --help')"


def _system_fault(error: OSError) -> tuple[str, str, int]:
    reason = error.strerror or str(error)
    if error.filename is None:
        return OutputError.code, f"reading or writing failed: {reason}", EXIT_UNREADABLE
    return UnreadableError.code, f"cannot use {error.filename}: {reason}", EXIT_UNREADABLE


def say(text: str) -> None:
    """Talk: one paragraph on stderr, unless --quiet."""
    if LEVEL.get() > QUIET:
        _write(text)


def say_detail(text: str) -> None:
    """What only --verbose says."""
    if LEVEL.get() >= VERBOSE:
        _write(text)


def say_error(text: str) -> None:
    """An error: one paragraph on stderr, its first word in bold on a terminal."""
    _write(text, "error: ")


def _write(text: str, label: str = "") -> None:
    from fluidtool.cli.render import in_colour, printable

    paragraph = label + printable(re.sub(r"\s*\n\s*", " ", text))
    if sys.stderr.isatty():
        paragraph = textwrap.fill(
            paragraph, max(shutil.get_terminal_size().columns, 40), break_on_hyphens=False, break_long_words=False
        )
        if label and in_colour(sys.stderr):
            paragraph = f"\x1b[1;31m{label.rstrip()}\x1b[0m{paragraph[len(label) - 1 :]}"
    sys.stderr.write(paragraph + "\n")
