"""Packs what real Paddle computed into the archives beside this file: `python -m tests.golden.pack CORPUS`.

CORPUS is a folder with `optest/`, `models/`, `formats/` …; tests read only the archives. The same corpus always gives the
same bytes. Chosen for size: every operator keeps its small cases, small models come whole, in one of their two layouts.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

HERE = Path(__file__).parent
LARGEST_OPERATOR_CASE = 25_000
LARGEST_MODEL = 1_000_000
LARGEST_TRAINING = 300_000
LARGEST_TRANSPILED = 32_000


def size_of(folder: Path) -> int:
    """Bytes of every file below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def operator_cases(corpus: Path) -> Iterator[Path]:
    """The small cases of `optest`; an operator without a small one gives its smallest if that is under ten times as large."""
    by_op: dict[str, list[tuple[int, Path]]] = {}
    for entry in json.loads((corpus / "optest/index.json").read_text()):
        by_op.setdefault(entry["op"], []).append((entry["bytes"], corpus / "optest" / entry["path"]))
    for cases in by_op.values():
        small = [folder for size, folder in cases if size <= LARGEST_OPERATOR_CASE]
        yield from sorted(small) or [folder for size, folder in [min(cases)] if size <= 10 * LARGEST_OPERATOR_CASE]


def model_files(corpus: Path) -> Iterator[Path]:
    """Small whole models: `case.json`, `golden.npz`, and the separate or the combined layout in turn."""
    folders = [folder for folder in sorted((corpus / "models").iterdir()) if size_of(folder) <= LARGEST_MODEL]
    for position, folder in enumerate(folders):
        layout = ("separate", "combined")[position % 2]
        yield from (folder / "case.json", folder / "golden.npz", folder / layout)


def training_cases(corpus: Path) -> Iterator[Path]:
    """The small training cases, whole, and the one with attention and beam search's decoder."""
    for folder in sorted((corpus / "train").iterdir()):
        if size_of(folder) <= LARGEST_TRAINING or folder.name == "seq2seq_att_adam":
            yield folder


def transpiled_cases(corpus: Path) -> Iterator[Path]:
    """The small programs with batch_norm of `legacy`: before, parameters, feeds and results."""
    for folder in sorted((corpus / "legacy").glob("fuse_bn-*")):
        if size_of(folder) <= LARGEST_TRANSPILED:
            yield from (folder / name for name in ("case.json", "before.pb", "arrays.npz"))


def memory_cases(corpus: Path) -> Iterator[Path]:
    """What real memory_optimize and release_memory made of training programs."""
    for kind in ("memory_optimize", "memory_optimize_level1", "release_memory"):
        yield from sorted((corpus / "transpiled" / kind).iterdir())


def pack(archive: Path, root: Path, entries: Iterable[Path]) -> None:
    """Write files and folders of `root` into a tar.xz that depends on nothing but their names and bytes."""
    files = {file for entry in entries for file in ([entry] if entry.is_file() else entry.rglob("*")) if file.is_file()}
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for file in sorted(files):
            data = file.read_bytes()
            info = tarfile.TarInfo(file.relative_to(root).as_posix())
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, io.BytesIO(data))
    print(f"{archive.name}: {len(files)} files, {archive.stat().st_size / 1e6:.2f} MB")


def main() -> None:
    """Pack every corpus."""
    corpus = Path(sys.argv[1])
    pack(HERE / "optest.tar.xz", corpus, operator_cases(corpus))
    pack(HERE / "models.tar.xz", corpus, model_files(corpus))
    pack(HERE / "train.tar.xz", corpus, training_cases(corpus))
    pack(HERE / "formats.tar.xz", corpus, [corpus / "formats"])
    pack(HERE / "legacy.tar.xz", corpus, transpiled_cases(corpus))
    pack(HERE / "transpiled.tar.xz", corpus, memory_cases(corpus))
    pack(HERE / "dist.tar.xz", corpus, [corpus / "dist"])


if __name__ == "__main__":
    main()
