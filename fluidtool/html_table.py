"""Tables for notebooks: HTML in which every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MOST_ROWS = 200
LONGEST = 200  # characters of a cell


def html_table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A caption, a row of titles, and at most MOST_ROWS rows; longer texts are cut."""
    shown = list(rows)
    body = "".join(_row("td", row) for row in shown[:MOST_ROWS])
    more = len(shown) - MOST_ROWS
    rest = f'<tr><td colspan="{len(head)}">and {more} more</td></tr>' if more > 0 else ""
    caption = f"<caption>{_escaped(title)}</caption>"
    return f"<table>{caption}<thead>{_row('th', head)}</thead><tbody>{body}{rest}</tbody></table>"


def _row(tag: str, cells: Sequence[object]) -> str:
    return f"<tr>{''.join(f'<{tag}>{_escaped(str(cell))}</{tag}>' for cell in cells)}</tr>"


def _escaped(text: str) -> str:
    """The text for HTML: cut, control characters and marks of writing direction written out."""
    from html import escape

    cut = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
    plain = "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode() for char in cut
    )
    return escape(plain.encode("utf-8", "backslashreplace").decode())
