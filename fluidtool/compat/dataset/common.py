"""`paddle.dataset.common`: where the files of the data sets lie."""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import md5
from pathlib import Path
from typing import Any

import numpy as np

from fluidtool.errors import DataFileNotFoundError, UsageError

__all__ = ["DATA_HOME", "md5file"]


def md5file(fname: str) -> str:
    """The MD5 sum of a file, in hexadecimal digits."""
    return md5(Path(fname).read_bytes()).hexdigest()


def data_home() -> Path:
    """The folder of the data sets: PADDLE_DATASET_HOME, or where Paddle keeps them."""
    return Path(os.environ.get("PADDLE_DATASET_HOME") or "~/.cache/paddle/dataset").expanduser()


DATA_HOME = str(data_home())


def synthetic() -> bool:
    """Whether samples are to be made up (FLUIDTOOL_DATASET=synthetic); raises UsageError for any other value."""
    kind = os.environ.get("FLUIDTOOL_DATASET", "")
    if kind not in ("", "synthetic"):
        raise UsageError(f"FLUIDTOOL_DATASET can be 'synthetic' or unset, found {kind!r}")
    return bool(kind)


def data_file(dataset: str, *names: str) -> Path:
    """A file of a data set under the first of its names that is there; raises DataFileNotFoundError."""
    folder = data_home() / dataset
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise DataFileNotFoundError(
        f"paddle.dataset.{dataset} needs the file {folder / names[0]}, which is not there; put the original file {names[-1]} "
        "there (fluidtool downloads nothing; PADDLE_DATASET_HOME names another folder), or set "
        "FLUIDTOOL_DATASET=synthetic for a small made-up data set of the same shapes and types"
    )


def random(dataset: str, part: str) -> np.random.Generator:
    """The generator of a part of a made-up data set: the same in every process."""
    return np.random.default_rng(list(f"{dataset}/{part}".encode()))


def ranked(counts: Mapping[Any, int], cutoff: int) -> dict[bytes | str, int]:
    """Ids of the words that occur more than `cutoff` times, by falling number and then by name; '<unk>' is the last."""
    frequent = [word for word, count in counts.items() if count > cutoff and word != "<unk>"]
    frequent.sort(key=lambda word: (-counts[word], word if isinstance(word, bytes) else word.encode()))
    return {**{word: index for index, word in enumerate(frequent)}, "<unk>": len(frequent)}
