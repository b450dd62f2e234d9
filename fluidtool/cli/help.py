"""The page of `fluidtool --help`. It is written without any library, so that it is there at once."""

from __future__ import annotations

import os
import sys
from textwrap import fill

from fluidtool import errors
from fluidtool.cli.commands import COMMANDS
from fluidtool.cli.exit_codes import EXIT_CODES
from fluidtool.cli.topics import LISTS, TOPICS

WIDTH = 80  # of the narrowest terminal that is usual
EXAMPLES = (
    "fluidtool inspect samples/digits",
    "fluidtool run samples/digits --feed samples/digits/x.npy",
    "fluidtool COMMAND --help",
    "fluidtool help FT210",
)


def help_page(bold: bool = False) -> str:
    """The page; headings are bold where the reader is a terminal that may have color."""
    indent = max(len(name) for name in COMMANDS) + 4

    def entry(name: object, text: str) -> str:
        return fill(text, WIDTH, initial_indent=f"  {name}".ljust(indent), subsequent_indent=" " * indent)

    def heading(text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if bold else text

    lines = [
        f"{heading('Usage:')} fluidtool [--version] COMMAND [OPTIONS] ...",
        "",
        fill("Read, inspect, check, transpile, train and run PaddlePaddle Fluid models without Paddle.", WIDTH),
        "",
        heading("Commands:"),
        *(entry(name, summary) for name, summary in COMMANDS.items()),
        "",
        heading("Topics:"),
        fill(", ".join([*TOPICS, *LISTS]), WIDTH, initial_indent="  ", subsequent_indent="  "),
        "",
        heading("Exit codes:"),
        *(entry(code, meaning) for code, meaning in EXIT_CODES),
        "",
        heading("Examples:"),
        *(f"  {example}" for example in EXAMPLES),
        "",
        "'fluidtool help COMMAND', 'fluidtool help TOPIC' and 'fluidtool help CODE' say",
        "more; 'fluidtool help topics' says what each topic is about. Data goes to",
        "stdout, everything else to stderr. FLUIDTOOL_DEBUG=1 shows the traceback behind",
        "an error.",
    ]
    return "\n".join(lines) + "\n"


def print_help() -> int:
    """Write the page to stdout and return the exit code."""
    wanted = bool(os.environ.get("FORCE_COLOR")) or (sys.stdout.isatty() and os.environ.get("TERM") != "dumb")
    bold = wanted and not os.environ.get("NO_COLOR")
    try:
        sys.stdout.write(help_page(bold))
        sys.stdout.flush()
    except OSError as error:
        from fluidtool.cli.failures import report

        return report(error)
    return errors.EXIT_OK
