"""`paddle.dataset.flowers` (Oxford 102): samples are (3·224·224 floats: BGR less the mean color, class 0 to 101).

Files, in the folder flowers: 102flowers.tgz with jpg/image_00001.jpg and so on; imagelabels.mat with `labels`, the classes
1 to 102 of the images; setid.mat with the image numbers of the parts. As in Paddle, `train` is the larger part `tstid`, and
`test` is `trnid`. Images come in the order of the archive; nothing is written beside it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from fluidtool.compat.dataset.common import archive_members, data_file, random, synthetic
from fluidtool.compat.dataset.image import load_image_bytes, simple_transform
from fluidtool.compat.dataset.matlab import load_arrays
from fluidtool.errors import UnreadableError
from fluidtool.fluid.reader_decorators import Reader, map_readers, xmap_readers

__all__ = ["test", "train", "valid"]

Mapper = Callable[[tuple[bytes, int]], Any]
MEAN_COLOR = [103.94, 116.78, 123.68]
RESIZED, CROPPED, CLASSES = 256, 224, 102
MADE_UP = {"tstid": 204, "trnid": 102, "valid": 102}


def default_mapper(is_train: bool, sample: tuple[bytes, int]) -> tuple[np.ndarray[Any, Any], int]:
    """Scaled to 256, cut to 224 × 224, less the mean color, flat."""
    image, label = sample
    values = simple_transform(load_image_bytes(image), RESIZED, CROPPED, is_train, mean=MEAN_COLOR)
    return values.reshape(-1), label


train_mapper = partial(default_mapper, True)
test_mapper = partial(default_mapper, False)


def train(
    mapper: Mapper = train_mapper, buffered_size: int = 1024, use_xmap: bool = True, cycle: bool = False
) -> Reader:
    """The reader of the part `tstid`: the mapper's results of (content of an image file, class); endless with cycle."""
    return _reader("tstid", mapper, buffered_size, use_xmap, cycle)


def test(mapper: Mapper = test_mapper, buffered_size: int = 1024, use_xmap: bool = True, cycle: bool = False) -> Reader:
    """The reader of the part `trnid`: the mapper's results of (content of an image file, class); endless with cycle."""
    return _reader("trnid", mapper, buffered_size, use_xmap, cycle)


def valid(mapper: Mapper = test_mapper, buffered_size: int = 1024, use_xmap: bool = True) -> Reader:
    """The reader of the part `valid`: the mapper's results of (content of an image file, class)."""
    return _reader("valid", mapper, buffered_size, use_xmap, False)


def _reader(part: str, mapper: Mapper, buffered_size: int, use_xmap: bool, cycle: bool) -> Reader:
    once = partial(_made_up, part) if synthetic() else _files(part)
    files: Reader = once
    if cycle:
        files = lambda: itertools.chain.from_iterable(once() for _ in itertools.count())  # noqa: E731
    if use_xmap:
        return xmap_readers(mapper, files, min(4, os.cpu_count() or 1), buffered_size)
    return map_readers(mapper, files)


def _files(part: str) -> Callable[[], Iterator[tuple[bytes, int]]]:
    archive, labels_file, parts_file = (
        data_file("flowers", name) for name in ("102flowers.tgz", "imagelabels.mat", "setid.mat")
    )
    labels, parts = load_arrays(labels_file), load_arrays(parts_file)
    for name, arrays, file in (("labels", labels, labels_file), (part, parts, parts_file)):
        if name not in arrays:
            raise UnreadableError(f"{file} must contain the array {name}, found {', '.join(arrays) or 'none'}")
    classes, numbers = labels["labels"].ravel(), parts[part].ravel()
    if numbers.size and (numbers.min() < 1 or numbers.max() > classes.size):
        raise UnreadableError(f"{parts_file} names image {numbers.max()}, but {labels_file} has {classes.size} labels")
    by_name = {f"jpg/image_{number:05d}.jpg": int(classes[number - 1]) - 1 for number in map(int, numbers)}

    def images() -> Iterator[tuple[bytes, int]]:
        for name, data in archive_members(archive, by_name.__contains__):
            yield data, by_name[name]

    return images


def _made_up(part: str) -> Iterator[tuple[bytes, int]]:
    """PPM images of 256 × 256 pixels: the color goes with the class, under noise."""
    colors = random("flowers", "colours").uniform(40, 215, (CLASSES, 3))  # codespell:ignore colours
    generator = random("flowers", part)
    for _ in range(MADE_UP[part]):
        label = int(generator.integers(CLASSES))
        noise = generator.normal(0, 20, (RESIZED, RESIZED, 1))
        pixels = np.clip(colors[label] + noise, 0, 255).astype("uint8")
        yield b"P6 %d %d 255\n" % (RESIZED, RESIZED) + pixels.tobytes(), label
