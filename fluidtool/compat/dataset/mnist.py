"""`paddle.dataset.mnist`: samples are (784 floats in [-1, 1], label 0 to 9)."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fluidtool.compat.dataset.common import data_file, random, synthetic
from fluidtool.errors import UnreadableError
from fluidtool.fluid.reader_decorators import Reader

__all__ = ["reader_creator", "test", "train"]

IMAGES, LABELS = 2051, 2049
PIXELS, CLASSES = 784, 10


def train() -> Reader:
    """The reader of train-images-idx3-ubyte.gz and train-labels-idx1-ubyte.gz."""
    return _reader("train", 2000)


def test() -> Reader:
    """The reader of t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz."""
    return _reader("t10k", 500)


def _reader(part: str, made_up: int) -> Reader:
    if synthetic():
        return lambda: make_up("mnist", part, made_up, PIXELS, CLASSES, -1.0)
    images = data_file("mnist", f"{part}-images-idx3-ubyte.gz")
    labels = data_file("mnist", f"{part}-labels-idx1-ubyte.gz")
    return lambda: samples(images, labels)


def reader_creator(image_filename: str, label_filename: str, buffer_size: int) -> Reader:
    """The reader of a file of images and one of labels; buffer_size is of no effect, as all of a file is read."""
    return lambda: samples(Path(image_filename), Path(label_filename))


def samples(images: Path, labels: Path) -> Iterator[tuple[Any, int]]:
    """The samples of a file of images and one of labels; raises UnreadableError for files that are no such."""
    pixels, digits = read_idx(images, IMAGES, 3), read_idx(labels, LABELS, 1)
    if len(pixels) != len(digits):
        raise UnreadableError(f"{images} has {len(pixels)} images, but {labels} has {len(digits)} labels")
    for image, digit in zip(pixels, digits, strict=True):
        yield image.reshape(-1).astype("float32") / np.float32(255) * np.float32(2) - np.float32(1), int(digit)


def read_idx(path: Path, magic: int, rank: int) -> np.ndarray[Any, Any]:
    """The bytes of an IDX file of this rank: magic number, sizes (big-endian, four bytes each), then the values."""
    try:
        data = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableError(f"{path} is not a complete gzip file: {error}") from error
    header = 4 * (1 + rank)
    found, *sizes = struct.unpack_from(f">{1 + rank}I", data) if len(data) >= header else (None,)
    if found != magic:
        raise UnreadableError(
            f"{path} is not an IDX file of {rank} dimensions: it must begin with {magic}, not {found}"
        )
    if len(data) - header != np.prod(sizes, dtype="int64"):
        raise UnreadableError(f"{path} must have {'×'.join(map(str, sizes))} bytes, found {len(data) - header}")
    return np.frombuffer(data, "uint8", offset=header).reshape(sizes)


def make_up(
    dataset: str, part: str, count: int, size: int, classes: int, low: float
) -> Iterator[tuple[np.ndarray[Any, Any], int]]:
    """Samples of `size` floats in [low, 1]: a pattern for each class, the same in all parts, under noise."""
    patterns = random(dataset, "patterns").uniform(low, 1, (classes, size))
    generator = random(dataset, part)
    for _ in range(count):
        label = int(generator.integers(classes))
        noisy = patterns[label] + generator.normal(0, 0.25, size)
        yield np.clip(noisy, low, 1).astype("float32"), label
