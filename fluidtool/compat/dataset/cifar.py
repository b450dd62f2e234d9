"""`paddle.dataset.cifar`: samples are (3072 floats in [0, 1], label)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fluidtool.compat.dataset.common import archive_members, data_file, synthetic
from fluidtool.compat.dataset.mnist import make_up
from fluidtool.errors import UnreadableError
from fluidtool.fluid.reader_decorators import Reader
from fluidtool.io import pickles

__all__ = ["reader_creator", "test10", "test100", "train10", "train100"]

PIXELS = 3072


def train10(cycle: bool = False) -> Reader:
    """The reader of the training batches of cifar-10-python.tar.gz; endless with cycle=True."""
    return _reader(10, "data_batch", 2000, cycle)


def test10(cycle: bool = False) -> Reader:
    """The reader of the test batch of cifar-10-python.tar.gz; endless with cycle=True."""
    return _reader(10, "test_batch", 500, cycle)


def train100() -> Reader:
    """The reader of the training images of cifar-100-python.tar.gz, with their fine labels."""
    return _reader(100, "train", 2000)


def test100() -> Reader:
    """The reader of the test images of cifar-100-python.tar.gz, with their fine labels."""
    return _reader(100, "test", 500)


def reader_creator(filename: str, sub_name: str, cycle: bool = False) -> Reader:
    """The reader of the members of an archive whose names contain sub_name; endless with cycle=True."""
    return _repeated(lambda: samples(Path(filename), sub_name), cycle)


def _reader(classes: int, part: str, made_up: int, cycle: bool = False) -> Reader:
    if synthetic():
        once: Reader = lambda: make_up(f"cifar{classes}", part, made_up, PIXELS, classes, 0.0)  # noqa: E731
    else:
        archive = data_file("cifar", f"cifar-{classes}-python.tar.gz")
        once = lambda: samples(archive, part)  # noqa: E731
    return _repeated(once, cycle)


def _repeated(once: Reader, cycle: bool) -> Reader:
    if not cycle:
        return once
    return lambda: itertools.chain.from_iterable(once() for _ in itertools.count())


def samples(archive: Path, part: str) -> Iterator[tuple[np.ndarray[Any, Any], int]]:
    """The samples of the members whose names contain `part`; raises UnreadableError for any other file."""
    for name, data in archive_members(archive, lambda name: part in name):
        images, labels = _batch(data, f"{archive}, {name}")
        for image, label in zip(images, labels, strict=True):
            yield (image / 255.0).astype("float32"), int(label)


def _batch(data: bytes, source: str) -> tuple[Any, Any]:
    """Images and labels of a pickled batch, whose keys are text or bytes."""
    loaded = pickles.load(data, source)
    batch = {key.decode() if isinstance(key, bytes) else key: value for key, value in loaded.items()}
    labels = batch.get("labels", batch.get("fine_labels"))
    if labels is None or "data" not in batch or len(batch["data"]) != len(labels):
        raise UnreadableError(f"{source} must have 'data' and an equal number of 'labels' or 'fine_labels'")
    return batch["data"], labels
