"""The command line: `commands/` has a file for each, `options/` what they are asked with, `views/` what they show."""

from __future__ import annotations

import gc
import sys

COLLECT_AFTER = 10_000  # new objects; Python collects after 700, and looks through a large program again and again


def main() -> int:
    """Run the command line on `sys.argv` and return the exit code.

    The page that a bare `fluidtool` or `fluidtool --help` shows needs no command and no library: it comes at once.
    """
    arguments = sys.argv[1:]
    if arguments in ([], ["--help"], ["-h"], ["help"]):
        from fluidtool.cli.help import print_help

        return print_help()
    gc.set_threshold(COLLECT_AFTER)
    from fluidtool.cli.app import run_command

    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # what an old terminal cannot show is written out, not an error
            stream.reconfigure(errors="backslashreplace")
    code = run_command(arguments)
    if arguments[0] != "exec":  # what a script has left may have an end of its own, such as an open file
        gc.freeze()  # the process ends: what is left needs no more collections
    return code
