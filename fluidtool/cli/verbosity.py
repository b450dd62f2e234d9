"""`-q` and `-v`, which every command takes: how much it says on stderr besides errors."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Annotated, Any

import typer

PANEL = "Messages"
QUIET, NORMAL, VERBOSE = -1, 0, 1
LEVEL: ContextVar[int] = ContextVar("LEVEL", default=NORMAL)
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", rich_help_panel=PANEL, help="Write nothing but errors to stderr.")
]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", rich_help_panel=PANEL, help="Also show how long each part of the work took.")
]


def with_verbosity(command: Callable[..., None]) -> Callable[..., None]:
    """The command with these two options, unless it has one of its own of that name."""
    signature = inspect.signature(command)
    missing = {
        name: inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation)
        for name, annotation in (("quiet", QuietOption), ("verbose", VerboseOption))
        if name not in signature.parameters
    }

    @wraps(command)
    def called(**given: Any) -> None:
        quiet, verbose = (bool(given.pop(name)) if name in missing else False for name in ("quiet", "verbose"))
        token = LEVEL.set(QUIET if quiet else VERBOSE if verbose else NORMAL)
        try:
            command(**given)
        finally:
            LEVEL.reset(token)

    called.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), *missing.values()]
    )
    return called
