"""Putting data on stdout: tables for the eye on a terminal, plain aligned columns in a pipe, JSON for programs.

On a terminal a cell that does not fit is folded, between words or after punctuation where it has any. In a pipe nothing is
cut, folded or colored.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any, TextIO

from fluidtool.io.jsonable import jsonable
from fluidtool.records import dataclass

GAP = "  "
WIDEST = 200  # characters that a column of a pipe is filled up to
UNFOLDED = 1 << 20  # a width in which nothing is folded, for colors in a pipe
FOLDED = 12  # the least width of a column that may be folded


@dataclass(frozen=True, slots=True)
class Column:
    """One column. On a terminal `right` and `whole` ones are never folded, a `preview` is cut where there is no room,
    and a `rare` one is left out when it has nothing but 0.
    """

    title: str
    right: bool = False
    whole: bool = False
    preview: bool = False
    rare: bool = False


@dataclass(slots=True)
class Table:
    """Rows of text under titles; without any column title there is no header."""

    columns: Sequence[Column]
    rows: list[Sequence[str]] = field(default_factory=list)
    title: str = ""
    styles: dict[int, str] = field(default_factory=dict)  # the color of a row on a terminal

    def add(self, *cells: Any) -> None:
        """Append a row."""
        self.rows.append([printable(str(cell)) for cell in cells])


def table(title: str, *columns: str) -> Table:
    """A table; marks before a column's title: '>' right, '!' whole, '~' preview, '0' rare."""
    parsed = []
    for text in columns:
        name = text.lstrip(">!~0")
        marks = text[: len(text) - len(name)]
        parsed.append(Column(name, ">" in marks, "!" in marks, "~" in marks, "0" in marks))
    return Table(parsed, [], title)


def fields(title: str, pairs: Iterable[tuple[str, Any]]) -> Table:
    """Names and values, without header."""
    out = Table([Column(""), Column("")], [], title)
    for name, value in pairs:
        out.add(name, value)
    return out


def show(*tables: Table) -> None:
    """Write tables to stdout, a blank line between them; tables without rows are left out."""
    filled = [item for item in tables if item.rows]
    if sys.stdout.isatty() or in_color(sys.stdout):
        _show_rich(filled)
    else:
        sys.stdout.write("\n".join(plain(item) for item in filled))


def show_json(value: Any) -> None:
    """Write one JSON document to stdout; NaN and infinities become strings, which every reader understands."""
    json.dump(jsonable(value), sys.stdout, indent=2, ensure_ascii=False, allow_nan=False)
    sys.stdout.write("\n")


def show_json_line(value: Any) -> None:
    """Write a JSON document to stdout as one line, at once."""
    sys.stdout.write(json.dumps(jsonable(value), ensure_ascii=False, allow_nan=False) + "\n")
    sys.stdout.flush()


def plain(item: Table) -> str:
    """A table as aligned columns. A cell wider than WIDEST moves the rest of its line: it does not widen all others."""
    header = [column.title for column in item.columns]
    rows = [[cell.replace("\n", " ") for cell in row] for row in item.rows]
    lines = [header, *rows] if any(header) else rows
    widths = [min(max(len(line[index]) for line in lines), WIDEST) for index in range(len(header))]
    text = [item.title] if item.title else []
    for line in lines:
        cells = [
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(line, widths, item.columns, strict=True)
        ]
        text.append(GAP.join(cells).rstrip())
    return "\n".join(text) + "\n"


def _show_rich(tables: Sequence[Table]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    from fluidtool.cli.folding import fold

    unfolded = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else UNFOLDED
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False, width=unfolded)
    for number, item in enumerate(tables):
        if number:
            console.print()
        if item.title:
            console.print(Text(item.title, style="bold"))
        header = any(column.title for column in item.columns)
        drawn = RichTable(
            box=box.SIMPLE_HEAD if header else None,
            show_header=header,
            show_edge=False,
            pad_edge=False,
            header_style="bold",
            border_style="dim",
            padding=(0, 1 if header else 2, 0, 0),
        )
        shown = [index for index, column in enumerate(item.columns) if not (column.rare and _all_zero(item, index))]
        room = console.width - (len(shown) - 1) * 2
        wide = _widths(item, shown, room)
        for index in shown:
            column = item.columns[index]
            drawn.add_column(
                Text(column.title),
                justify="right" if column.right else "left",
                no_wrap=True,
                overflow="ellipsis" if column.preview else "fold",
                width=wide[index],
            )
        for position, row in enumerate(item.rows):
            cells = [row[index] if item.columns[index].preview else fold(row[index], wide[index]) for index in shown]
            drawn.add_row(*map(Text, cells), style=item.styles.get(position))
        console.print(drawn)


def _whole_columns(item: Table, shown: Sequence[int], room: int) -> set[int]:
    """The columns that are not folded: those marked so, unless the others would have no room."""
    marked = {index for index in shown if item.columns[index].right or item.columns[index].whole}
    if not any(column.title for column in item.columns):
        marked.add(0)
    needed = sum(_width(item, index) if index in marked else FOLDED for index in shown)
    return marked if needed <= room else {index for index in marked if item.columns[index].right}


def _all_zero(item: Table, index: int) -> bool:
    return all(row[index] in ("0", "") for row in item.rows)


def _widths(item: Table, shown: Sequence[int], room: int) -> dict[int, int]:
    """How wide each column is; a preview gets what the others leave."""
    from fluidtool.cli.folding import widths

    whole = _whole_columns(item, shown, room)
    previews = [index for index in shown if item.columns[index].preview]
    others = [index for index in shown if index not in previews]
    natural = {index: _width(item, index) for index in shown}
    least = sum(min(natural[index], FOLDED) for index in previews)
    found = widths([natural[index] for index in others], [index not in whole for index in others], room - least, FOLDED)
    left = room - sum(found)
    return dict(zip(others, found, strict=True)) | {
        index: min(natural[index], max(left // len(previews), FOLDED)) for index in previews
    }


def _width(item: Table, index: int) -> int:
    return max(len(line) for row in item.rows for line in (item.columns[index].title, *row[index].split("\n")))


def in_color(stream: TextIO) -> bool:
    """Whether escape sequences are welcome on a stream (https://no-color.org, https://force-color.org)."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def printable(text: str) -> str:
    """Text in which control characters, which could command a terminal, are written out; line ends stay."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )


# ---------------------------------------------------------------- numbers
def number(value: Any, digits: int = 4) -> str:
    """Some significant digits; whole numbers in full, `-` for None."""
    if value is None:
        return "-"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, complex):
        return f"{value:.{digits}g}"
    return f"{float(value):.{digits}g}"


def counted(count: int, what: str) -> str:
    """(1, 'file') -> '1 file', (2, 'file') -> '2 files'."""
    return f"{count} {what}{'s' if count != 1 else ''}"


def differ(count: int, of: int, what: str) -> str:
    """(1, 2, 'value') -> '1 of 2 values differs', (2, 2, 'value') -> '2 of 2 values differ'."""
    return f"{count} of {counted(of, what)} differ{'s' if count == 1 else ''}"


def size(count: int) -> str:
    """1536 -> '1.5 KiB'."""
    return _scaled(count, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))


def amount(count: int) -> str:
    """25600000 -> '25.6 M'; below ten thousand in full."""
    return str(count) if count < 10_000 else _scaled(count, 1000, ("", "k", "M", "G", "T", "P"))


def _scaled(count: int, step: int, units: Sequence[str]) -> str:
    value, index = float(count), 0
    while value >= step and index < len(units) - 1:
        value, index = value / step, index + 1
    digits = f"{value:.0f}" if index == 0 or value >= 100 else f"{value:.1f}"
    return f"{digits} {units[index]}".rstrip()
