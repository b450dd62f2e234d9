"""Text in drawings: what cannot be seen is written out, what is long is shortened, and how wide it is."""

from __future__ import annotations

from html import escape
from unicodedata import east_asian_width

NARROW = frozenset("iljtfrI.,:;'|!()[]{} ·`")
WIDE = frozenset("mwMW@%—…")


def visible(text: str) -> str:
    r"""Text in which control characters and marks that turn the direction of writing are written out, as `\u202e`."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode() for each in text
    )


def shortened(text: str, most: int) -> str:
    """At most that many visible characters, with … for what is left out in the middle."""
    text = visible(text[: 4 * most]) + visible(text[4 * most :][-most:])
    if len(text) <= most:
        return text
    tail = (most - 1) // 3
    return f"{text[: most - 1 - tail]}…{text[-tail:]}"


def xml(text: str) -> str:
    """Text as it stands in XML and HTML."""
    return escape(visible(text))


def width_of(text: str, size: float, *, bold: bool = False) -> float:
    """About how wide a line of text is in a sans-serif font of this size."""
    return sum(map(_width, text)) * size * (1.08 if bold else 1.0)


def _width(char: str) -> float:
    if char in NARROW:
        return 0.36
    if char in WIDE:
        return 0.95
    if char.isascii():
        return 0.69 if char.isupper() else 0.61
    return 1.05 if east_asian_width(char) in "WF" else 0.7
