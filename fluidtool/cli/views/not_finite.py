"""What `run --check-nan` shows: the operators that wrote NaN or infinity, and what they read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fluidtool.cli.failures import failure
from fluidtool.cli.render import Table, number, show, show_json, table
from fluidtool.errors import NotFiniteError
from fluidtool.runtime.finite import NotFinite, Operand
from fluidtool.shapes import shape_text

if TYPE_CHECKING:
    from fluidtool.report import run as report


def show_found(error: NotFiniteError, json: bool) -> None:
    """The operator that ended the run, and its inputs."""
    if json:
        data: report.RunReport = {
            "schema": "fluidtool.run/1",
            "outputs": [],
            "not_finite": document([error.found]),
            "error": failure(error),
        }
        show_json(data)
    else:
        show(*tables([error.found]))


def tables(found: Sequence[NotFinite]) -> Iterator[Table]:
    """A row for each variable, and if it is only one, the statistics of what its operator read."""
    blocks = any(item.block for item in found)
    out = table("Not finite", ">#", "operator", "variable", ">NaN", ">Inf", ">elements", "!first at", "cause")
    for item in found:
        place = f"block {item.block}, {item.operator}" if blocks else item.operator
        at = str(list(item.first))
        out.add(place, item.type, item.variable, item.nan, item.inf, item.elements, at, _cause(item))
    yield out
    if len(found) == 1:
        yield _inputs(found[0])


def _cause(item: NotFinite) -> str:
    if item.given:
        return "fed, or a parameter"
    return "its inputs are finite" if item.finite_inputs else "an input is not finite"


def _inputs(item: NotFinite) -> Table:
    where = f" ({item.written_in})" if item.written_in else ""
    out = table(
        f"Inputs of operator {item.operator}, {item.type}{where}",
        "slot",
        "variable",
        "!type",
        "!shape",
        ">min",
        ">mean",
        ">max",
        ">NaN",
        ">Inf",
    )
    for each in item.inputs:
        if each.statistics is None:
            out.add(each.slot, each.name, "", "no value", "", "", "", "", "")
            continue
        numbers = [number(value) for value in (each.statistics.minimum, each.statistics.mean, each.statistics.maximum)]
        out.add(
            each.slot,
            each.name,
            each.dtype,
            shape_text(each.shape),
            *numbers,
            each.statistics.nans,
            each.statistics.infinities,
        )
    return out


def document(found: Sequence[NotFinite]) -> list[report.NotFinite]:
    """The same for JSON."""
    return [
        {
            "block": item.block,
            "operator": item.operator,
            "type": item.type,
            "slot": item.slot,
            "variable": item.variable,
            "given": item.given,
            "finite_inputs": item.finite_inputs,
            "nan": item.nan,
            "inf": item.inf,
            "elements": item.elements,
            "first": item.first,
            "inputs": [_operand(each) for each in item.inputs],
            "written_in": item.written_in,
        }
        for item in found
    ]


def _operand(each: Operand) -> report.Operand:
    found = each.statistics
    return {
        "slot": each.slot,
        "name": each.name,
        "data_type": each.dtype if found is not None else None,
        "shape": each.shape if found is not None else None,
        "min": None if found is None else found.minimum,
        "mean": None if found is None else found.mean,
        "max": None if found is None else found.maximum,
        "nan": 0 if found is None else found.nans,
        "inf": 0 if found is None else found.infinities,
    }
