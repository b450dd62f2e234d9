"""What went wrong, as one paragraph on stderr and an exit code."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
import traceback
from typing import TYPE_CHECKING, NamedTuple

import typer

from fluidtool.cli.verbosity import LEVEL, QUIET, VERBOSE
from fluidtool.errors import (
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_UNREADABLE,
    EXIT_USAGE,
    NEEDS_LESS,
    FluidError,
    Location,
    OutOfMemoryError,
    OutputError,
    UnreadableError,
    UsageError,
    with_short_names,
)

if TYPE_CHECKING:
    from fluidtool.report.common import Failure
    from fluidtool.report.error import ErrorReport

_COMMAND_LINE_FAULT: type[Exception] = typer.BadParameter.__mro__[1]  # typer has no public name for its UsageError


class Shown(Exception):
    """An error whose JSON document has been written; only the sentence on stderr is left."""

    def __init__(self, error: FluidError) -> None:
        super().__init__(error)
        self.error = error


class Explanation(NamedTuple):
    """What an exception means to the user. code: '' if it is no error but an interruption."""

    code: str
    message: str
    hint: str
    exit_code: int
    location: Location | None = None

    @property
    def text(self) -> str:
        """The sentence on stderr."""
        return f"{self.message}; {self.hint}" if self.hint else self.message


def report(error: BaseException, json: bool = False) -> int:
    """Say on stderr what the error means to the user and return the exit code; json: and write it to stdout."""
    if isinstance(error, typer.Exit):
        return error.exit_code
    if isinstance(error, BrokenPipeError):  # the reader of stdout has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    if isinstance(error, Shown):
        return report(error.error)
    if debugging():
        traceback.print_exception(error)
    found = explain(error)
    if json:
        _write_document(error)
    say_error(f"{found.text} [{found.code}]" if found.code else found.text)
    return found.exit_code


def debugging() -> bool:
    """Whether FLUIDTOOL_DEBUG asks for tracebacks; empty and 0 do not."""
    return os.environ.get("FLUIDTOOL_DEBUG", "") not in ("", "0")


def failure(error: BaseException) -> Failure:
    """An error for JSON."""
    found = explain(error)
    place = found.location
    return {
        "code": found.code or None,
        "message": found.message,
        "hint": found.hint or None,
        "exit_code": found.exit_code,
        "location": None
        if place is None
        else {
            "file": place.file,
            "block": place.block,
            "operator": place.operator,
            "type": place.type,
            "variable": place.variable,
        },
    }


def _write_document(error: BaseException) -> None:
    """One line, which also fits behind lines of JSON that have been written."""
    from fluidtool.cli.render import show_json_line

    document: ErrorReport = {"schema": "fluidtool.error/1", "error": failure(error)}
    try:
        show_json_line(document)
    except OSError:  # a reader that has seen enough, or a full disk, which is said on stderr
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def explain(error: BaseException) -> Explanation:
    """What any exception means to the user."""
    if isinstance(error, FluidError):
        return Explanation(error.code, error.message, error.hint.command, error.exit_code, error.location)
    if isinstance(error, (KeyboardInterrupt, typer.Abort)):
        return Explanation("", "interrupted", "", EXIT_INTERRUPTED)
    if isinstance(error, _COMMAND_LINE_FAULT):
        return _usage(error)
    if isinstance(error, MemoryError):
        about = f" ({error})" if str(error) else ""
        text = f"not enough memory for this model and these inputs{about}"
        return Explanation(OutOfMemoryError.code, text, NEEDS_LESS.command, OutOfMemoryError.exit_code)
    if isinstance(error, OSError):
        return _system_fault(error)
    return Explanation(
        FluidError.code,
        f"internal error: {type(error).__name__}: {error}",
        "this is a bug in fluidtool, please report it with the output of FLUIDTOOL_DEBUG=1",
        EXIT_INTERNAL,
    )


def text_of(error: BaseException) -> str:
    """An exception as a sentence of the command line."""
    return explain(error).text


def _usage(error: Exception) -> Explanation:
    """A command-line fault, with near names or where to find help."""
    message = str(error.format_message()) if hasattr(error, "format_message") else str(error)
    near = sorted(getattr(error, "possibilities", None) or ())
    message = re.sub(r"\s*\((Possible options: |Did you mean ).*$", "", message, flags=re.DOTALL).rstrip(".")
    message = re.sub(r"[.,;]?\s*Did you mean .*$", "", message, flags=re.DOTALL)
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "fluidtool"
    help = f"see '{path} --help'"
    hint = f"did you mean {' or '.join(near)}? ({help})" if near else help
    return Explanation(UsageError.code, f"{message[:1].lower()}{message[1:]}", hint, EXIT_USAGE)


def _system_fault(error: OSError) -> Explanation:
    reason = error.strerror or str(error)
    if error.filename is None:
        return Explanation(OutputError.code, f"reading or writing failed: {reason}", "", EXIT_UNREADABLE)
    text = f"cannot use {error.filename}: {reason}"
    return Explanation(UnreadableError.code, text, "", EXIT_UNREADABLE, Location(str(error.filename)))


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
    from fluidtool.cli.render import in_color, printable

    paragraph = label + printable(re.sub(r"\s*\n\s*", " ", with_short_names(text)))
    if sys.stderr.isatty():
        paragraph = textwrap.fill(
            paragraph, max(shutil.get_terminal_size().columns, 40), break_on_hyphens=False, break_long_words=False
        )
        if label and in_color(sys.stderr):
            paragraph = f"\x1b[1;31m{label.rstrip()}\x1b[0m{paragraph[len(label) - 1 :]}"
    sys.stderr.write(paragraph + "\n")
