"""The page of `fluidtool --help`. It is written without any library, so that it is there at once."""

from __future__ import annotations

import os
import sys

from fluidtool import errors
from fluidtool.cli.commands import COMMANDS

EXIT_CODES = (
    (errors.EXIT_OK, "success"),
    (errors.EXIT_FINDING, "a finding of check or diff, or outputs that differ (--expect, --verify)"),
    (errors.EXIT_USAGE, "an invalid option, name, shape or size, or a missing file system permission"),
    (errors.EXIT_UNREADABLE, "a file that cannot be read or written"),
    (errors.EXIT_UNSUPPORTED, "an operator that fluidtool does not support"),
    (errors.EXIT_NOT_FINITE, "NaN or infinity, found by --check-nan"),
    (errors.EXIT_INTERNAL, "a bug in fluidtool"),
    (errors.EXIT_INTERRUPTED, "interrupted"),
)
EXAMPLES = (
    "fluidtool inspect samples/digits",
    "fluidtool run samples/digits --feed samples/digits/x.npy",
    "fluidtool COMMAND --help",
    "fluidtool help FT210",
)


def help_page(bold: bool = False) -> str:
    """The page; headings are bold where the reader is a terminal that may have color."""
    width = max(len(name) for name in COMMANDS)

    def heading(text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if bold else text

    lines = [
        f"{heading('usage:')} fluidtool [--version] COMMAND [OPTIONS] ...",
        "",
        "Read, inspect, check, transpile, train and run PaddlePaddle Fluid models without Paddle.",
        "",
        heading("Commands:"),
        *(f"  {name:{width}}  {summary}" for name, summary in COMMANDS.items()),
        "",
        heading("Exit codes:"),
        *(f"  {code:<{width}}  {meaning}" for code, meaning in EXIT_CODES),
        "",
        heading("Examples:"),
        *(f"  {example}" for example in EXAMPLES),
        "",
        "Data goes to stdout, everything else to stderr. FLUIDTOOL_DEBUG=1 shows the traceback behind an error;",
        "'fluidtool help environment' lists all variables, 'fluidtool help errors' all codes.",
    ]
    return "\n".join(lines) + "\n"


def print_help() -> int:
    """Write the page to stdout and return the exit code."""
    wanted = bool(os.environ.get("FORCE_COLOR")) or (sys.stdout.isatty() and os.environ.get("TERM") != "dumb")
    bold = wanted and not os.environ.get("NO_COLOR")
    try:
        sys.stdout.write(help_page(bold))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return errors.EXIT_OK
