"""`paddle.dataset.uci_housing`: samples are (13 features, scaled; [price])."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fluidtool.compat.dataset.common import data_file, download, random, synthetic
from fluidtool.errors import UnreadableError
from fluidtool.fluid.fetched import fetched_array
from fluidtool.fluid.reader_decorators import Reader

__all__ = [
    "UCI_TEST_DATA",
    "UCI_TRAIN_DATA",
    "feature_names",
    "fluid_model",
    "load_data",
    "predict_reader",
    "test",
    "train",
]

feature_names = ["CRIM", "ZN", "INDUS", "CHAS", "NOX", "RM", "AGE", "DIS", "RAD", "TAX", "PTRATIO", "B", "LSTAT"]
FLUID_URL_MODEL = "https://github.com/PaddlePaddle/book/raw/develop/01.fit_a_line/fluid/fit_a_line.fluid.tar"
FLUID_MD5_MODEL = "6e6dd637ccd5993961f68bfbde46090b"
COLUMNS, TRAIN_SHARE = 14, 0.8
Rows = np.ndarray[Any, Any]

UCI_TRAIN_DATA: Rows | None = None  # what load_data has read: scripts read these names of the module
UCI_TEST_DATA: Rows | None = None


def load_data(filename: str, feature_num: int = COLUMNS, ratio: float = TRAIN_SHARE) -> None:
    """Read a file into UCI_TRAIN_DATA and UCI_TEST_DATA, which `train` and `test` then give.

    Rows of `feature_num` numbers, scaled like `table`; `ratio` of them are for training. A second file is not read, as in Paddle
    1.8.5 (uci_housing.py); no picture of the ranges is drawn.
    """
    global UCI_TRAIN_DATA, UCI_TEST_DATA
    if UCI_TRAIN_DATA is None or UCI_TEST_DATA is None:
        UCI_TRAIN_DATA, UCI_TEST_DATA = _parts(_scaled(_read(Path(filename), feature_num)), ratio)


def train() -> Reader:
    """The reader of the first four fifths of housing.data, or of what `load_data` has read."""
    rows = _parts(table())[0] if UCI_TRAIN_DATA is None else UCI_TRAIN_DATA
    return lambda: _samples(rows)


def test() -> Reader:
    """The reader of the last fifth of housing.data, or of what `load_data` has read."""
    rows = _parts(table())[1] if UCI_TEST_DATA is None else UCI_TEST_DATA
    return lambda: _samples(rows)


def predict_reader() -> tuple[Rows]:
    """The features of the first test sample."""
    rows = _parts(table())[1] if UCI_TEST_DATA is None else UCI_TEST_DATA
    return (rows[0, :-1],)


def fluid_model() -> str:
    """A new folder with the model of uci_housing/fit_a_line.fluid.tar; raises what `download` raises, or UnreadableError."""
    archive = download(FLUID_URL_MODEL, "uci_housing", FLUID_MD5_MODEL)
    folder = tempfile.mkdtemp()
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    except tarfile.TarError as error:
        shutil.rmtree(folder)
        raise UnreadableError(f"{archive} is not a complete tar file: {error}") from error
    return folder


def table() -> Rows:
    """(houses, 14) float64: the features less their mean over their range, and the price in thousands.

    A price alone is a number to scripts, as what they fetch is.
    """
    return _scaled(_made_up() if synthetic() else _read(data_file("uci_housing", "housing.data"), COLUMNS))


def _scaled(rows: Rows) -> Rows:
    features = rows[:, :-1]
    span = features.max(axis=0) - features.min(axis=0)
    return fetched_array(np.hstack([(features - features.sum(axis=0) / len(rows)) / span, rows[:, -1:]]))


def _read(path: Path, columns: int) -> Rows:
    try:
        values = np.array(path.read_text().split(), "float64")
    except ValueError as error:
        raise UnreadableError(f"{path} must contain only numbers: {error}") from error
    if not len(values) or len(values) % columns:
        raise UnreadableError(f"{path} must have {columns} numbers per house, found {len(values)} numbers in all")
    return values.reshape(-1, columns)


def _made_up() -> Rows:
    generator = random("uci_housing", "all")
    features = generator.uniform(0, 10, (506, COLUMNS - 1))
    prices = 22.5 + (features - 5) @ generator.normal(0, 1, COLUMNS - 1) * 0.4 + generator.normal(0, 0.5, 506)
    return np.column_stack([features, prices])


def _parts(rows: Rows, ratio: float = TRAIN_SHARE) -> tuple[Rows, Rows]:
    cut = int(len(rows) * ratio)
    return rows[:cut], rows[cut:]


def _samples(rows: Rows) -> Iterator[tuple[Any, Any]]:
    return ((row[:-1], row[-1:]) for row in rows)
