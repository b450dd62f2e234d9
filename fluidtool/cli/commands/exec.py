"""`fluidtool exec`."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from fluidtool.cli.failures import debugging, say_error
from fluidtool.cli.options.changed import Changed
from fluidtool.cli.options.running import Device
from fluidtool.errors import EXIT_FINDING, FluidError, UsageError


def exec(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="The script, written for Paddle Fluid.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGUMENTS]...", help="What the script finds in sys.argv.")
    ] = None,
    device: Annotated[
        Device, Changed(metavar="cpu", help="Use the CPU in place of every GPU that the script names.")
    ] = "",
    python2: Annotated[
        bool, typer.Option("--python2", help="Translate the script and its modules from Python 2 (with fissix).")
    ] = False,
) -> None:
    """Run a script that imports paddle, unmodified and without Paddle.

    The exit code is the script's: 1 after a traceback; after an error of fluidtool, see 'fluidtool --help'. Data sets
    are read from ~/.cache/paddle/dataset or PADDLE_DATASET_HOME; FLUIDTOOL_DATASET=synthetic generates small ones instead.
    """
    from fluidtool.compat.script import Dialect, run_source

    if device not in ("", "cpu"):
        raise UsageError(f"--device must be cpu, found {device!r}; a script chooses its other devices itself")
    source = script.read_bytes()
    try:
        run_source(source, script, arguments or [], Dialect(device == "cpu", python2, last=True))
    except (BrokenPipeError, typer.Exit):
        raise
    except Exception as error:
        raise typer.Exit(_failed(error)) from error


def _failed(error: Exception) -> int:
    """Say what became of the script and return the exit code."""
    from fluidtool.compat.script import users_traceback, where

    sys.stdout.flush()
    debug = debugging()
    if debug:
        traceback.print_exception(error)
    if isinstance(error, FluidError):
        line = where(error)
        text = f"{error} [{error.code}]"
        say_error(f"{line}: {text}" if line else text)
        return error.exit_code
    if not debug:
        sys.stderr.write(users_traceback(error) + _of_paddles_packages(error))
    return EXIT_FINDING


def _of_paddles_packages(error: Exception) -> str:
    """How to get a package that came with Paddle, if that is what the script lacks; '' otherwise."""
    from fluidtool.compat.sources import INSTALLED_WITH_PADDLE

    package = (
        INSTALLED_WITH_PADDLE.get((error.name or "").partition(".")[0]) if isinstance(error, ImportError) else None
    )
    return (
        f"note: {package} was installed with Paddle, fluidtool does not need it: pip install {package}\n"
        if package
        else ""
    )
