"""Whether the native engine has to be there, and why it may be missing."""

from __future__ import annotations

from fluidtool.runtime.engines.native.build import compiler, macros
from fluidtool.runtime.engines.native.library import SWITCH, absence, library, switched_off

SWITCHED_OFF = switched_off()  # before any test has changed the environment


def excuse() -> str:
    """Why the engine may be missing: it was switched off, or this system cannot build it. '' where it must be there."""
    if SWITCHED_OFF:
        return f"{SWITCH} switches the native engine off"
    command = compiler()
    if library() is None and not macros(command):
        return f"there is no native engine, and no C compiler that works ({' '.join(command)}) and could have built it"
    return ""


def fault() -> str:
    """What is wrong with the engine; '' where it is there, or may be missing."""
    return "" if excuse() or library() else f"the native engine is missing: {absence()}"


def description() -> str:
    """The engine in a line."""
    found = library()
    if found is None or SWITCHED_OFF:
        return f"no native engine ({excuse() or absence()})"
    return f"native engine {found.path.name} ({found.instructions}, {found.threads} threads)"
