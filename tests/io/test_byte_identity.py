"""Every program that real Paddle wrote is saved again byte for byte.

With FLUIDTOOL_GOLDEN=DIR the same runs on the programs below that folder.
"""

from __future__ import annotations

import os
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from fluidtool.io.layout import open_model
from fluidtool.io.saving import Layout, save_model
from fluidtool.ir import Program
from tests.support.golden import ARCHIVES

SAMPLES = ARCHIVES.parent.parent / "samples"
FOLDERS = [SAMPLES] + [Path(folder) for folder in (os.environ.get("FLUIDTOOL_GOLDEN"),) if folder]
SUFFIXES = {".pb", ".pdmodel", ".main_program"}
# archive -> programs in it, so that none is passed over
PACKED = {
    "dist.tar.xz": 624,
    "distributed.tar.xz": 260,
    "formats.tar.xz": 23,
    "legacy.tar.xz": 14,
    "models.tar.xz": 22,
    "optest.tar.xz": 1963,
    "samples.zip": 36,
    "train.tar.xz": 54,
    "transpiled.tar.xz": 156,
}


def is_program(name: str) -> bool:
    path = PurePosixPath(name)
    return path.suffix in SUFFIXES or path.name in ("__model__", "model", "net")


def programs_in(archive: Path) -> Iterator[tuple[str, bytes]]:
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as packed:
            yield from ((name, packed.read(name)) for name in packed.namelist() if is_program(name))
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            file = tar.extractfile(member)
            if file is not None and is_program(member.name):
                yield member.name, file.read()


def programs_below(folder: Path) -> dict[str, bytes]:
    found = (file for file in sorted(folder.rglob("*")) if file.is_file() and is_program(file.name))
    return {str(file.relative_to(folder)): file.read_bytes() for file in found}


def changed_by_saving(programs: dict[str, bytes]) -> list[str]:
    """The programs that do not come out as they went in, by themselves or as copies."""
    changed = []
    for name, data in programs.items():
        program = Program.parse_from_string(data)
        if program.serialize_to_string() != data or program.clone().desc.serialize_to_string() != data:
            changed.append(name)
    return changed


@pytest.mark.parametrize("archive", sorted(PACKED))
def test_packed_programs(archive: str) -> None:
    programs = dict(programs_in(ARCHIVES / archive))
    assert len(programs) == PACKED[archive]
    assert changed_by_saving(programs) == []


@pytest.mark.parametrize("archive", sorted(file.name for file in (ARCHIVES / "networks").glob("*.zip")))
def test_packed_networks(archive: str) -> None:
    programs = dict(programs_in(ARCHIVES / "networks" / archive))
    assert programs
    assert changed_by_saving(programs) == []


def test_what_counts_as_a_program() -> None:
    assert {"digits/__model__", "topics/model", "digits_v2/model.pdmodel"} <= set(programs_below(SAMPLES))


@pytest.mark.parametrize("folder", FOLDERS)
def test_unpacked_programs(folder: Path) -> None:
    programs = programs_below(folder)
    assert programs
    assert changed_by_saving(programs) == []


@pytest.mark.parametrize(("model", "program"), [("digits", "__model__"), ("topics", "model")])
def test_a_model_that_is_opened_and_saved(model: str, program: str, tmp_path: Path) -> None:
    files = open_model(SAMPLES / model, need_parameters=False)
    save_model(files.program, {}, Layout(tmp_path / "copy", program, None))
    assert (tmp_path / "copy" / program).read_bytes() == (SAMPLES / model / program).read_bytes()
