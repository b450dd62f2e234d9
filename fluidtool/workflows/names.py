"""Hints for names that do not exist, numbers of things, and what arrays without names stand for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

UNNAMED = "arr_"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """'did you mean a or b?', or ''."""
    near = get_close_matches(name, list(dict.fromkeys(names)), n=3)
    return f"did you mean {' or '.join(near)}?" if near else ""


def counted(count: int, what: str) -> str:
    """(1, 'file') -> '1 file', (2, 'file') -> '2 files'."""
    return f"{count} {what}{'s' * (count != 1)}"


def listed(inputs: Sequence[str]) -> str:
    """'the inputs are a, b'."""
    return f"the inputs are {', '.join(inputs)}" if inputs else "the model has no inputs"


def are_unnamed(names: Iterable[str]) -> bool:
    """Whether these are what `numpy.savez` calls arrays without names: arr_0, arr_1 …"""
    return all(name.startswith(UNNAMED) and name.removeprefix(UNNAMED).isdecimal() for name in names)


def in_order(names: Sequence[str]) -> dict[str, str]:
    """What arrays without names stand for: {'arr_0': names[0], …}."""
    return {f"{UNNAMED}{position}": name for position, name in enumerate(names)}
