"""`paddle.dataset.uci_housing`: samples are (13 features, scaled; [price])."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fluidtool.compat.dataset.common import data_file, random, synthetic
from fluidtool.errors import UnreadableError
from fluidtool.fluid.fetched import fetched_array
from fluidtool.fluid.reader_decorators import Reader

__all__ = ["feature_names", "predict_reader", "test", "train"]

feature_names = ["CRIM", "ZN", "INDUS", "CHAS", "NOX", "RM", "AGE", "DIS", "RAD", "TAX", "PTRATIO", "B", "LSTAT"]
COLUMNS, TRAIN_SHARE = 14, 0.8


def train() -> Reader:
    """The reader of the first four fifths of housing.data."""
    rows = table()
    return lambda: _samples(slice(None, _cut(rows)), rows)


def test() -> Reader:
    """The reader of the last fifth of housing.data."""
    rows = table()
    return lambda: _samples(slice(_cut(rows), None), rows)


def predict_reader() -> tuple[np.ndarray[Any, Any]]:
    """The features of the first test sample."""
    rows = table()
    return (rows[_cut(rows), :-1],)


def table() -> np.ndarray[Any, Any]:
    """(houses, 14) float64: the features less their mean over their range, and the price in thousands.

    A price alone is a number to scripts, as what they fetch is.
    """
    rows = _made_up() if synthetic() else _read()
    features = rows[:, :-1]
    span = features.max(axis=0) - features.min(axis=0)
    return fetched_array(np.hstack([(features - features.sum(axis=0) / len(rows)) / span, rows[:, -1:]]))


def _read() -> np.ndarray[Any, Any]:
    path = data_file("uci_housing", "housing.data")
    try:
        values = np.array(path.read_text().split(), "float64")
    except ValueError as error:
        raise UnreadableError(f"{path} must contain only numbers: {error}") from error
    if not len(values) or len(values) % COLUMNS:
        raise UnreadableError(f"{path} must have {COLUMNS} numbers per house, found {len(values)} numbers in all")
    return values.reshape(-1, COLUMNS)


def _made_up() -> np.ndarray[Any, Any]:
    generator = random("uci_housing", "all")
    features = generator.uniform(0, 10, (506, COLUMNS - 1))
    prices = 22.5 + (features - 5) @ generator.normal(0, 1, COLUMNS - 1) * 0.4 + generator.normal(0, 0.5, 506)
    return np.column_stack([features, prices])


def _cut(rows: np.ndarray[Any, Any]) -> int:
    return int(len(rows) * TRAIN_SHARE)


def _samples(part: slice, rows: np.ndarray[Any, Any]) -> Iterator[tuple[Any, Any]]:
    return ((row[:-1], row[-1:]) for row in rows[part])
