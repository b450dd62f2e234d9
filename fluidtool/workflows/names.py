"""Hints for names that do not exist, and numbers of things."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


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
