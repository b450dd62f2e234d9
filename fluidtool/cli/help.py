"""The page of `fluidtool --help`. It is written without any library, so that it is there at once."""

from __future__ import annotations

import os
import sys
from textwrap import wrap

from fluidtool import errors
from fluidtool.cli.commands import COMMANDS
from fluidtool.cli.exit_codes import EXIT_CODES
from fluidtool.cli.topics import LISTS, TOPICS

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
        heading("Topics:"),
        *(f"  {line}" for line in wrap(", ".join([*TOPICS, *LISTS]), 76)),
        "",
        heading("Exit codes:"),
        *(f"  {code:<{width}}  {meaning}" for code, meaning in EXIT_CODES),
        "",
        heading("Examples:"),
        *(f"  {example}" for example in EXAMPLES),
        "",
        "'fluidtool help COMMAND', 'fluidtool help TOPIC' and 'fluidtool help CODE' say more; 'fluidtool help topics'",
        "says what each topic is about. Data goes to stdout, everything else to stderr. FLUIDTOOL_DEBUG=1 shows the",
        "traceback behind an error.",
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
