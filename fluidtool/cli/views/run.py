"""What `run` shows and compares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fluidtool.cli.opening import did_you_mean
from fluidtool.cli.render import Table, number, shape_text, table
from fluidtool.errors import FetchError, UsageError
from fluidtool.io.arrays import read_values
from fluidtool.tensor import LoDTensor, LoDTensorArray, SelectedRows
from fluidtool.tensor.compare import Comparison, compare
from fluidtool.tensor.statistics import statistics

PREVIEW = 8
VALUES_IN_JSON = 1000


# ---------------------------------------------------------------- showing
def outputs_table(outputs: Mapping[str, Any]) -> Table:
    """Name, shape, type, statistics and the first values of every output."""
    rows = list(_rows(outputs))
    has_lod = any(lod for _, _, lod in rows)
    lod_column = ["LoD"] if has_lod else []
    out = table("", "output", "!type", "!shape", *lod_column, ">min", ">mean", ">max", ">0NaN", ">0Inf", "~values")
    for name, array, lod in rows:
        lod_cell = [", ".join(shorten(level) for level in lod)] if has_lod else []
        if array is None:
            out.add(name, "", "no value", *lod_cell, "", "", "", "", "", "")
            continue
        found = statistics(array)
        numbers = [number(item) for item in (found.minimum, found.mean, found.maximum)]
        preview = " ".join(number(item, 3) for item in array.reshape(-1)[:PREVIEW].tolist())
        preview += " …" if array.size > PREVIEW else ""
        name_of_type = str(array.dtype)
        out.add(name, name_of_type, shape_text(array.shape), *lod_cell, *numbers, found.nans, found.infinities, preview)
    return out


def outputs_data(outputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The same for JSON, with the values of what is small."""
    data: list[dict[str, Any]] = []
    for name, array, lod in _rows(outputs):
        if array is None:
            data.append({"name": name, "shape": None})
            continue
        found = statistics(array)
        data.append(
            {
                "name": name,
                "data_type": str(array.dtype),
                "shape": array.shape,
                "lod": lod,
                "min": found.minimum,
                "mean": found.mean,
                "max": found.maximum,
                "nan": found.nans,
                "inf": found.infinities,
                "values": array.tolist() if array.size <= VALUES_IN_JSON else None,
            }
        )
    return data


def _rows(outputs: Mapping[str, Any]) -> Iterator[tuple[str, np.ndarray[Any, Any] | None, list[list[int]]]]:
    """(name, array or None, sequence lengths) of every tensor within the outputs."""
    for name, value in outputs.items():
        if isinstance(value, LoDTensorArray):
            yield from _rows({f"{name}[{index}]": item for index, item in enumerate(value)})
        elif isinstance(value, SelectedRows):
            yield f"{name} (rows {shorten(value.rows())} of {value.height()})", value.tensor.numpy(), []
        elif isinstance(value, LoDTensor):
            yield name, value.numpy() if value.is_initialized() else None, value.recursive_sequence_lengths()
        else:
            yield name, None, []


def shorten(items: Sequence[int]) -> str:
    """'[0, 4, 7, …]'."""
    shown = ", ".join(str(item) for item in items[:6])
    return f"[{shown}{', …' if len(items) > 6 else ''}]"


# ---------------------------------------------------------------- comparing
def read_expected(path: Path, outputs: Sequence[str], known: Sequence[str]) -> dict[str, LoDTensor]:
    """The expected values by variable name; raises UsageError for a name that the program does not have.

    Arrays without names (numpy's arr_0, arr_1 …, or one .npy) stand for the outputs in order.
    """
    values = read_values(path)
    if "" in values:
        values = {"arr_0": values[""]}
    if all(name.startswith("arr_") and name[4:].isdecimal() and name not in known for name in values):
        if len(values) > len(outputs):
            raise UsageError(f"{path} has {len(values)} arrays, but {len(outputs)} outputs are fetched")
        return {outputs[int(name[4:])]: value for name, value in values.items()}
    unknown = [name for name in values if name not in known]
    if unknown:
        hint = did_you_mean(unknown[0], known) or f"it computes {', '.join(outputs)}"
        raise FetchError(f"{path} expects {unknown[0]!r}, which the program does not have; {hint}")
    return values


def compare_all(
    outputs: Mapping[str, Any], expected: Mapping[str, LoDTensor], rtol: float, atol: float
) -> list[Comparison]:
    """One comparison for each expected value."""
    return [_compare(name, outputs.get(name), value, rtol, atol) for name, value in expected.items()]


def _compare(name: str, found: Any, expected: LoDTensor, rtol: float, atol: float) -> Comparison:
    if isinstance(found, SelectedRows):
        found = found.tensor
    if not isinstance(found, LoDTensor) or not found.is_initialized():
        kind = "has no value" if found is None or isinstance(found, LoDTensor) else f"is a {type(found).__name__}"
        return Comparison(name, f"{kind}, expected a tensor")
    return compare(name, found, expected, rtol, atol)


def differences_table(comparisons: Sequence[Comparison]) -> Table:
    """The worst elements of each output that differs."""
    out = table("Differences", "output", "differing", "!at", ">found", ">expected", ">error")
    for item in comparisons:
        if item.fault:
            out.add(item.name, item.fault, "", "", "", "")
        for rank, row in enumerate(item.worst):
            many = f"{item.differing} of {item.elements}" if rank == 0 else ""
            at = shape_text(row.index)
            out.add(
                item.name if rank == 0 else "",
                many,
                at,
                number(row.found, 7),
                number(row.expected, 7),
                number(row.error, 3),
            )
    return out
