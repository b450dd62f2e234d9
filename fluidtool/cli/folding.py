"""Fitting text into the columns of a terminal: how wide each column is, and where a cell is broken."""

from __future__ import annotations

import re
from collections.abc import Sequence

PART = re.compile(r"\S*?[^\s._/,:=\[\]-][._/,:=\]-]+(?=\S)|\S+|\s+")  # of a name, up to where it may be broken


def widths(natural: Sequence[int], foldable: Sequence[bool], room: int, least: int) -> list[int]:
    """The widths of columns: as wide as they are if there is room, otherwise the widest foldable ones are narrowed.

    natural: what each column needs to be shown in full. No column is narrowed below `least`; if that does not suffice, the
    result is wider than `room`.
    """
    left = room - sum(width for width, may in zip(natural, foldable, strict=True) if not may)
    needs = sorted(width for width, may in zip(natural, foldable, strict=True) if may)
    limit = room
    for position, width in enumerate(needs):  # narrow ones get what they need, the others share what is left
        share = left // (len(needs) - position)
        if width > share:
            limit = max(share, least)
            break
        left -= width
    return [min(width, limit) if may else width for width, may in zip(natural, foldable, strict=True)]


def fold(text: str, width: int) -> str:
    """The text in lines of at most `width` characters: broken at spaces, else after punctuation within names, else anywhere."""
    return "\n".join(line for paragraph in text.split("\n") for line in _lines(paragraph, width))


def _lines(text: str, width: int) -> list[str]:
    if len(text) <= width:
        return [text]
    lines = [""]
    for word in re.findall(r"\s*\S+", text):
        if len(lines[-1]) + len(word) <= width:
            lines[-1] += word
            continue
        word = word.lstrip()
        if len(word) <= width:
            lines.append(word)
        else:
            lines += _pieces(word, width)
    return [line.rstrip() for line in lines if line]


def _pieces(word: str, width: int) -> list[str]:
    """A word that is too long, broken after punctuation where it has any."""
    lines = [""]
    for part in PART.findall(word):
        if len(lines[-1]) + len(part) <= width:
            lines[-1] += part
            continue
        rest = part
        while len(rest) > width:
            lines.append(rest[:width])
            rest = rest[width:]
        lines.append(rest)
    return [line for line in lines if line]
