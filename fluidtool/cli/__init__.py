"""The command line: `commands/` has a file for each, `options/` what they are asked with, `views/` what they show."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line on `sys.argv` and return the exit code.

    The page that a bare `fluidtool` or `fluidtool --help` shows needs no command and no library: it comes at once.
    """
    arguments = sys.argv[1:]
    if arguments in ([], ["--help"], ["-h"], ["help"]):
        from fluidtool.cli.help import print_help

        return print_help()
    from fluidtool.cli.app import run_command

    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # what an old terminal cannot show is written out, not an error
            stream.reconfigure(errors="backslashreplace")
    return run_command(arguments)
