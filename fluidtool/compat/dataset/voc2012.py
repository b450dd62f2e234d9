"""`paddle.dataset.voc2012`: samples are (image uint8 [height, width, 3] in RGB, class of each pixel uint8 [height, width]).

voc2012/VOCtrainval_11-May-2012.tar holds lists of names (ImageSets/Segmentation/trainval.txt, …), JPEGImages/<name>.jpg and
SegmentationClass/<name>.png, whose palette numbers are the classes: 0 is background, 255 is border. Decoding needs Pillow,
as in Paddle. As there, `train` is the list trainval, and `test` is the list train.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from fluidtool.compat.dataset.common import data_file, random, synthetic
from fluidtool.errors import NotOfferedImportError, UnreadableError
from fluidtool.fluid.reader_decorators import Reader

__all__ = ["test", "train", "val"]

FOLDER = "VOCdevkit/VOC2012"
CLASSES, BORDER = 21, 255
MADE_UP = {"trainval": 60, "train": 30, "val": 30}

Pixels = np.ndarray[Any, Any]


def train() -> Reader:
    """The reader of the list trainval."""
    return _reader("trainval")


def test() -> Reader:
    """The reader of the list train."""
    return _reader("train")


def val() -> Reader:
    """The reader of the list val."""
    return _reader("val")


def _reader(part: str) -> Reader:
    if synthetic():
        return partial(_made_up, part)
    archive = data_file("voc2012", "VOCtrainval_11-May-2012.tar")
    return lambda: _samples(str(archive), part)


def _samples(archive: str, part: str) -> Iterator[tuple[Pixels, Pixels]]:
    try:
        with tarfile.open(archive) as tar:
            for name in _member(tar, f"{FOLDER}/ImageSets/Segmentation/{part}.txt").decode().split():
                image = _member(tar, f"{FOLDER}/JPEGImages/{name}.jpg")
                label = _member(tar, f"{FOLDER}/SegmentationClass/{name}.png")
                yield _pixels(image, f"{archive}, {name}.jpg"), _pixels(label, f"{archive}, {name}.png")
    except KeyError as error:
        raise UnreadableError(f"{archive} is not the expected archive: {error.args[0]}") from error
    except (tarfile.TarError, EOFError) as error:
        raise UnreadableError(f"{archive} is not a complete tar file: {error}") from error


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    if file is None:
        raise KeyError(f"{name} is not a file")
    return file.read()


def _pixels(data: bytes, source: str) -> Pixels:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise NotOfferedImportError(
            "paddle.dataset.voc2012 decodes images with Pillow, which is not installed: pip install pillow"
        ) from error
    try:
        return np.array(Image.open(io.BytesIO(data)))
    except (UnidentifiedImageError, OSError) as error:
        raise UnreadableError(f"{source} is not a complete image: {error}") from error


def _made_up(part: str) -> Iterator[tuple[Pixels, Pixels]]:
    """48 × 64 pixels with a rectangle in the color of its class, and a border of one pixel around it."""
    colors = random("voc2012", "colours").integers(0, 256, (CLASSES, 3))  # codespell:ignore colours
    generator = random("voc2012", part)
    for _ in range(MADE_UP[part]):
        kind = int(generator.integers(1, CLASSES))
        top, left = (int(generator.integers(1, size)) for size in (24, 32))
        classes = np.zeros((48, 64), "uint8")
        classes[top - 1 : top + 17, left - 1 : left + 21] = BORDER
        classes[top : top + 16, left : left + 20] = kind
        color = colors[np.where(classes == BORDER, 0, classes)] + generator.normal(0, 10, (48, 64, 3))
        yield np.clip(color, 0, 255).astype("uint8"), classes
