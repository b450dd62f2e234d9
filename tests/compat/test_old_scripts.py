"""Old scripts with sequences, as they stand: readers of made-up data sets, word vectors from a file, decoders with beams."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.support import process

SCRIPTS = Path(__file__).parent / "scripts"


def lines(tmp_path: Path, script: str, *args: str) -> list[str]:
    """What a script writes; it must succeed without a word on stderr."""
    env = {"FLUIDTOOL_DATASET": "synthetic", "OPENBLAS_NUM_THREADS": "1"}
    done = process("exec", SCRIPTS / script, *args, env=env, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    found: list[str] = done.stdout.decode().splitlines()
    return found


def test_semantic_roles_of_old_are_learnt_and_saved(tmp_path: Path) -> None:
    cost, shape = lines(tmp_path, "label_semantic_roles.py")
    first, last = (float(cost.split()[index]) for index in (2, 4))
    assert last < 0.85 * first
    assert shape == "[[3, 4, 2]] (9, 1)"
    assert (tmp_path / "roles.model/__model__").is_file()


@pytest.mark.parametrize("args", [[], ["sparse"]])
def test_translation_of_old_is_learnt(tmp_path: Path, args: list[str]) -> None:
    (cost,) = lines(tmp_path, "machine_translation.py", "train", *args)
    first, last = (float(cost.split()[index]) for index in (2, 4))
    assert last < first


def test_translation_of_old_keeps_its_beams(tmp_path: Path) -> None:
    assert lines(tmp_path, "machine_translation.py", "decode") == ["[2, 2, 2, 2, 2, 2, 2, 2, 2, 2] True"]
