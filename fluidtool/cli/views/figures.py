"""Programs in numbers: as a table, and for JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluidtool.cli.render import Table, number, size, table
from fluidtool.workflows.figures import ProgramFigures

if TYPE_CHECKING:
    from fluidtool.report.common import Figures


def figures_data(figures: ProgramFigures) -> Figures:
    """What is known of a program."""
    data: Figures = {
        "operators": figures.operators,
        "variables": figures.variables,
        "parameters": figures.parameters,
        "parameter_bytes": figures.parameter_bytes,
    }
    if figures.activation_bytes_kept is not None:
        data["activation_bytes_kept"] = figures.activation_bytes_kept
    if figures.activation_bytes_live is not None:
        data["activation_bytes_live"] = figures.activation_bytes_live
    if figures.seconds is not None:
        data["seconds"] = figures.seconds
    return data


def figures_table(before: ProgramFigures, after: ProgramFigures) -> Table:
    """The figures of both programs."""
    out = table("", "", ">before", ">after")
    sides = zip(_texts(before), _texts(after), strict=True)
    for (name, one), (_, other) in sides:
        out.add(name, one, other)
    return out


def _texts(figures: ProgramFigures) -> list[tuple[str, str]]:
    seconds = figures.seconds
    measured = (
        ("activations, if kept to the end", figures.activation_bytes_kept),
        ("activations, if freed after use", figures.activation_bytes_live),
    )
    return [
        ("operators", str(figures.operators)),
        ("variables", str(figures.variables)),
        ("parameters", str(figures.parameters)),
        ("size of parameters", size(figures.parameter_bytes)),
        *((name, size(count)) for name, count in measured if count is not None),
        *([] if seconds is None else [("time of a run", f"{number(seconds * 1000, 3)} ms")]),
    ]
