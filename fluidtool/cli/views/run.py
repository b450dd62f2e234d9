"""What `run` shows: outputs, times, differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fluidtool.cli.failures import say, say_error
from fluidtool.cli.render import Table, counted, differ, fields, number, show, show_json, table
from fluidtool.cli.views.comparison import compared
from fluidtool.cli.views.engines import used_text
from fluidtool.cli.views.times import shown
from fluidtool.cli.views.times import statistics as times_of
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text
from fluidtool.tensor import LoDTensor, LoDTensorArray, SelectedRows
from fluidtool.tensor.statistics import statistics
from fluidtool.workflows.run import RunResult

if TYPE_CHECKING:
    from fluidtool.report import run as report
    from fluidtool.tensor.compare import Comparison
    from fluidtool.workflows.expectation import Tolerance

PREVIEW = 8
VALUES_IN_JSON = 1000


def show_result(
    result: RunResult, *, saved: bool, quiet: bool, compared: Tolerance | None, timed: bool, json: bool
) -> None:
    """Outputs unless they were saved, times, and what differs; quiet: no tables, since stdout has the outputs."""
    if timed:
        say(f"{counted(len(result.seconds), 'run')} by {used_text(result.engine)}")
    if json:
        show_json(document(result, timed=timed, tolerance=compared))
        return
    tables = [] if saved else [outputs_table(result.outputs)]
    if timed:
        tables.append(fields("", shown(times_of(result.seconds))))
    if result.differing:
        tables.append(differences_table(result.comparisons))
    if result.not_finite:
        from fluidtool.cli.views.not_finite import tables as tables_of

        tables += tables_of(result.not_finite)
    if not quiet:
        show(*tables)


def say_saved(result: RunResult, path: Path) -> None:
    """Where the outputs are."""
    say(f"{counted(len(result.outputs), 'output')} saved to {path}")


def say_verdict(result: RunResult, expected: Path, tolerance: Tolerance) -> None:
    """Whether the outputs are as expected."""
    total, wrong = len(result.comparisons), result.differing
    allowed = f"rtol {tolerance.rtol:g}, atol {tolerance.atol:g}"
    if wrong:
        names = ", ".join(item.name for item in wrong)
        say_error(f"{differ(len(wrong), total, 'output')} from {expected} ({allowed}): {names}")
        return
    largest = max((item.largest_error for item in result.comparisons), default=0.0)
    say(f"{counted(total, 'output')} as in {expected} ({allowed}; largest difference {number(largest, 3)})")


def document(result: RunResult, *, timed: bool, tolerance: Tolerance | None) -> report.RunReport:
    """The data of `--json`; tolerance: of the comparison, if there was one."""
    data: report.RunReport = {"schema": "fluidtool.run/1", "outputs": outputs_data(result.outputs)}
    if result.not_finite:
        from fluidtool.cli.views.not_finite import document as not_finite

        data["not_finite"] = not_finite(result.not_finite)
    if timed:
        data["seconds"] = times_of(result.seconds)
        data["engine"] = result.engine
    if tolerance is not None:
        data["comparison"] = {
            "agrees": not result.differing,
            "rtol": tolerance.rtol,
            "atol": tolerance.atol,
            "outputs": [compared(item) for item in result.comparisons],
        }
    return data


# ---------------------------------------------------------------- outputs
def outputs_table(outputs: Mapping[str, Any]) -> Table:
    """Name, shape, type, statistics and the first values of every output."""
    rows = list(_rows(outputs))
    has_lod = any(row.lod for row in rows)
    lod_column = ["LoD"] if has_lod else []
    out = table("", "output", "!type", "!shape", *lod_column, ">min", ">mean", ">max", ">0NaN", ">0Inf", "~values")
    for row in rows:
        lod_cell = [", ".join(shorten(level) for level in row.lod)] if has_lod else []
        if row.array is None:
            out.add(row.text, "", "no value", *lod_cell, "", "", "", "", "", "")
            continue
        found = statistics(row.array)
        numbers = [number(item) for item in (found.minimum, found.mean, found.maximum)]
        preview = " ".join(number(item, 3) for item in row.array.reshape(-1)[:PREVIEW].tolist())
        preview += " …" if row.array.size > PREVIEW else ""
        head = (row.text, str(row.array.dtype), shape_text(row.array.shape))
        out.add(*head, *lod_cell, *numbers, found.nans, found.infinities, preview)
    return out


def outputs_data(outputs: Mapping[str, Any]) -> list[report.RunOutput]:
    """The same for JSON, with the values of what is small."""
    return [_output(row) for row in _rows(outputs)]


def _output(row: _Row) -> report.RunOutput:
    array = row.array
    found = statistics(np.empty(0) if array is None else array)
    return {
        "name": row.name,
        "data_type": None if array is None else str(array.dtype),
        "shape": None if array is None else array.shape,
        "lod": row.lod,
        "rows": row.rows,
        "height": row.height,
        "min": found.minimum,
        "mean": found.mean,
        "max": found.maximum,
        "nan": found.nans,
        "inf": found.infinities,
        "values": None if array is None or array.size > VALUES_IN_JSON else array.tolist(),
    }


@dataclass(frozen=True, slots=True)
class _Row:
    """A tensor within the outputs: its sequence lengths; of a SelectedRows its row numbers and height."""

    name: str
    array: np.ndarray[Any, Any] | None
    lod: list[list[int]]
    rows: list[int] | None = None
    height: int | None = None

    @property
    def text(self) -> str:
        """The name, with the rows."""
        return self.name if self.rows is None else f"{self.name} (rows {shorten(self.rows)} of {self.height})"


def _rows(outputs: Mapping[str, Any]) -> Iterator[_Row]:
    """Every tensor within the outputs."""
    for name, value in outputs.items():
        if isinstance(value, LoDTensorArray):
            yield from _rows({f"{name}[{index}]": item for index, item in enumerate(value)})
        elif isinstance(value, SelectedRows):
            yield _Row(name, value.tensor.numpy(), [], list(value.rows()), value.height())
        elif isinstance(value, LoDTensor):
            yield _Row(name, value.numpy() if value.is_initialized() else None, value.recursive_sequence_lengths())
        else:
            yield _Row(name, None, [])


def shorten(items: Sequence[int]) -> str:
    """'[0, 4, 7, …]'."""
    shown = ", ".join(str(item) for item in items[:6])
    return f"[{shown}{', …' if len(items) > 6 else ''}]"


# ---------------------------------------------------------------- comparing
def differences_table(comparisons: Sequence[Comparison]) -> Table:
    """The worst elements of each output that differs."""
    out = table("Differences", "output", "differing", "!at", ">found", ">expected", ">error")
    for item in comparisons:
        if item.fault:
            out.add(item.name, item.fault, "", "", "", "")
        for rank, row in enumerate(item.worst):
            many = f"{item.differing} of {item.elements}" if rank == 0 else ""
            at = str(list(row.index))
            out.add(
                item.name if rank == 0 else "",
                many,
                at,
                number(row.found, 7),
                number(row.expected, 7),
                number(row.error, 3),
            )
    return out
