"""The command line: `commands/` has a file for each, `options/` what they are asked with, `views/` what they show."""

from __future__ import annotations

import gc
import os
import sys

COLLECT_AFTER = 10_000  # new objects; Python collects after 700, and looks through a large program again and again


def main() -> int:
    """Run the command line on `sys.argv` and return the exit code.

    The page that a bare `fluidtool` or `fluidtool --help` shows needs no command and no library: it comes at once.
    """
    _open_closed_streams()
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


def _open_closed_streams() -> None:
    """Let streams that the caller has closed (`>&-`) lead nowhere.

    Otherwise the next file that is opened would get the number of one, and with it what a library prints.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode)  # noqa: SIM115
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
