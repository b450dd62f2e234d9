"""`paddle.dataset.common`: finding and reading the files of the data sets; splitting a data set into files.

Nothing is downloaded: `download` finds local files. `cluster_files_reader` reads pickles as data (`fluidtool.io.pickles`).
"""

from __future__ import annotations

import glob
import os
import pickle
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import md5
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from fluidtool.errors import ArgumentTypeError, DataFileNotFoundError, UnreadableError, UsageError
from fluidtool.fluid.reader_decorators import Reader
from fluidtool.io import pickles

__all__ = ["DATA_HOME", "cluster_files_reader", "download", "md5file", "split"]


def md5file(fname: str | Path) -> str:
    """The MD5 sum of a file, in hexadecimal digits."""
    with open(fname, "rb") as file:
        digest = md5(usedforsecurity=False)
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def data_home() -> Path:
    """The folder of the data sets: PADDLE_DATASET_HOME, or Paddle's default."""
    return Path(os.environ.get("PADDLE_DATASET_HOME") or "~/.cache/paddle/dataset").expanduser()


DATA_HOME = str(data_home())


def synthetic() -> bool:
    """Whether to use made-up samples (FLUIDTOOL_DATASET=synthetic); raises UsageError for any other value."""
    kind = os.environ.get("FLUIDTOOL_DATASET", "")
    if kind not in ("", "synthetic"):
        raise UsageError(f"FLUIDTOOL_DATASET can be 'synthetic' or unset, found {kind!r}")
    return bool(kind)


def data_file(dataset: str, *names: str, folder_name: str = "") -> Path:
    """A file of a data set under the first of its names that exists; raises DataFileNotFoundError.

    The default folder has the name of the data set.
    """
    folder = data_home() / (folder_name or dataset)
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise DataFileNotFoundError(
        f"paddle.dataset.{dataset} needs the file {folder / names[0]}, which is missing; put the original file {names[-1]} "
        "there (fluidtool downloads nothing; PADDLE_DATASET_HOME names another folder), or set "
        "FLUIDTOOL_DATASET=synthetic for made-up data of the same shapes, types and dictionaries"
    )


def random(dataset: str, part: str) -> np.random.Generator:
    """The generator of a part of a made-up data set: the same in every process."""
    return np.random.default_rng(list(f"{dataset}/{part}".encode()))


def rare_words(number: int, cutoff: int, frequent: int) -> dict[bytes | str, int]:
    """Words for the dictionaries of made-up data sets, and their counts: `frequent` more often than `cutoff`.

    The n-th word occurs in proportion to 1 / n, as in a language. The dictionary has its full size even without samples.
    """
    return {f"rare{rank}".encode(): cutoff * frequent // rank + 1 for rank in range(1, number + 1)}


def ranked(counts: Mapping[Any, int], cutoff: int) -> dict[bytes | str, int]:
    """Ids of the words that occur more than `cutoff` times, by descending count and then by name; '<unk>' is the last."""
    frequent = [word for word, count in counts.items() if count > cutoff and word != "<unk>"]
    frequent.sort(key=lambda word: (-counts[word], word if isinstance(word, bytes) else word.encode()))
    return {**{word: index for index, word in enumerate(frequent)}, "<unk>": len(frequent)}


def download(url: str, module_name: str, md5sum: str, save_name: str | None = None) -> str:
    """The path of the file that this address would give, if it exists; raises DataFileNotFoundError or UnreadableError."""
    path = data_home() / module_name / (save_name or url.rpartition("/")[2])
    if not path.is_file():
        raise DataFileNotFoundError(
            f"the file {path} does not exist, and fluidtool downloads nothing; get it from {url} and put it there "
            "(PADDLE_DATASET_HOME names another folder)"
        )
    if md5file(path) != md5sum:
        raise UnreadableError(f"{path} must have the MD5 sum {md5sum}, found {md5file(path)}; get the file again")
    return str(path)


def archive_members(archive: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the files in a tar file with these names, in its order; raises UnreadableError."""
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                file = tar.extractfile(member) if wanted(member.name) else None
                if file is not None:
                    yield member.name, file.read()
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise UnreadableError(f"{archive} is not a complete tar file: {error}") from error


def archive_member(archive: Path, ending: str) -> bytes:
    """The content of the file in a tar file whose name ends so; raises UnreadableError unless there is exactly one."""
    found = [data for _, data in archive_members(archive, lambda name: name.endswith(ending))]
    if len(found) != 1:
        raise UnreadableError(f"{archive} must contain one file {ending}, found {len(found)}")
    return found[0]


def text_lines(data: bytes, source: str) -> list[str]:
    """The lines of UTF-8 text, without line ends; raises UnreadableError."""
    try:
        return [line.rstrip("\r") for line in data.decode("utf-8").removesuffix("\n").split("\n")] if data else []
    except UnicodeDecodeError as error:
        raise UnreadableError(f"{source} must be UTF-8 text: {error}") from error


def split(
    reader: Reader, line_count: int, suffix: str = "%05d.pickle", dumper: Callable[[Any, Any], Any] = pickle.dump
) -> None:
    """Write the samples of a reader into files of line_count samples (the first has one more, as in Paddle)."""
    if not callable(dumper):
        raise ArgumentTypeError("dumper should be callable.")
    lines: list[Any] = []
    number = 0
    for index, sample in enumerate(reader()):
        lines.append(sample)
        if index >= line_count and index % line_count == 0:
            _dump(lines, suffix % number, dumper)
            lines, number = [], number + 1
    if lines:
        _dump(lines, suffix % number, dumper)


def _dump(lines: list[Any], path: str, dumper: Callable[[Any, Any], Any]) -> None:
    with open(path, "wb") as file:
        dumper(lines, file)


def cluster_files_reader(
    files_pattern: str, trainer_count: int, trainer_id: int, loader: Callable[[Any], Iterable[Any]] | None = None
) -> Reader:
    """The reader of every trainer_count-th of the files written by `split`, from the trainer_id-th on.

    `loader` reads samples from an open file; by default they are unpickled, plain data only.
    """
    if loader is not None and not callable(loader):
        raise ArgumentTypeError("loader should be callable.")

    def samples(path: str) -> Iterable[Any]:
        with open(path, "rb") as file:
            return loader(file) if loader is not None else pickles.load(file.read(), path)

    def reader() -> Iterator[Any]:
        mine = sorted(glob.glob(files_pattern))[trainer_id::trainer_count]
        return chain.from_iterable(map(samples, mine))

    return reader
