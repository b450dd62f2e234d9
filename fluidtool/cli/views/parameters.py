"""Parameters as rows: what they are, and statistics of their values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from fluidtool.cli.progress import progress
from fluidtool.cli.render import Table, number, size, table
from fluidtool.io.parameters import ParameterInfo, ParameterStore
from fluidtool.ir.variable import data_type_name
from fluidtool.shapes import shape_text
from fluidtool.tensor import SelectedRows
from fluidtool.tensor.statistics import Statistics, statistics

if TYPE_CHECKING:
    from fluidtool.report.common import ParameterStatistics
    from fluidtool.report.params import ListReport, StatisticsReport, WrittenReport

Written = Literal["merge", "split", "rename"]
Row = tuple[str, str, tuple[int, ...], Statistics]


def statistics_rows(store: ParameterStore) -> list[Row]:
    """Name, data type, shape and statistics of every parameter, by name; reads the weights."""
    rows = []
    with progress("reading parameters", len(store)) as advance:
        for name in sorted(store):
            value = store[name]
            tensor = value.get_tensor() if isinstance(value, SelectedRows) else value
            info = store.info(name)
            rows.append((name, data_type_name(info.data_type), info.shape, statistics(tensor.numpy())))
            advance()
    return rows


def statistics_data(rows: Sequence[Row]) -> list[ParameterStatistics]:
    """One entry for each parameter."""
    return [
        {
            "name": name,
            "data_type": data_type,
            "shape": shape,
            "elements": found.elements,
            "min": found.minimum,
            "max": found.maximum,
            "mean": found.mean,
            "std": found.deviation,
            "zeros": found.zeros,
            "nan": found.nans,
            "inf": found.infinities,
        }
        for name, data_type, shape, found in rows
    ]


def statistics_document(rows: Sequence[Row]) -> StatisticsReport:
    """The data of `params stats --json`."""
    return {"schema": "fluidtool.params/1", "action": "stats", "parameters": statistics_data(rows)}


def statistics_table(rows: Sequence[Row]) -> Table:
    """One row for each parameter."""
    out = table("", "parameter", "!type", "!shape", ">min", ">mean", ">max", ">std", ">0zeros", ">0NaN", ">0Inf")
    for name, data_type, shape, found in rows:
        middle = [number(item, 3) for item in (found.minimum, found.mean, found.maximum, found.deviation)]
        out.add(name, data_type, shape_text(shape), *middle, found.zeros, found.nans, found.infinities)
    return out


def list_document(infos: Sequence[ParameterInfo]) -> ListReport:
    """The data of `params list --json`."""
    return {
        "schema": "fluidtool.params/1",
        "action": "list",
        "parameters": [
            {
                "name": each.name,
                "data_type": data_type_name(each.data_type),
                "shape": each.shape,
                "bytes": each.nbytes,
                "source": each.source,
            }
            for each in infos
        ],
    }


def written_document(action: str, files: Sequence[Path]) -> WrittenReport:
    """The data of `params merge --json` and of its relatives."""
    return {"schema": "fluidtool.params/1", "action": cast(Written, action), "files": [str(file) for file in files]}


def list_table(infos: Sequence[ParameterInfo]) -> Table:
    """One row for each parameter."""
    out = table("", "parameter", "!type", "!shape", ">size")
    for each in infos:
        out.add(each.name, data_type_name(each.data_type), shape_text(each.shape), size(each.nbytes))
    return out
