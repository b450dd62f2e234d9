"""Small documents as they should be; `python -m tests.report.test_snapshots` writes them again."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import DIGITS, call
from tests.support.schemas import check_document

SNAPSHOTS = Path(__file__).with_name("snapshots")
DOCUMENTS: dict[str, tuple[str, ...]] = {
    "check": ("check", "digits"),
    "check of several": ("check", "digits", "nothing", "--security"),
    "convert": ("convert", "digits", "--to", "combined", "-o", "out"),
    "diff": ("diff", "digits", "resized"),
    "error": ("run", "digits", "--feed", "imgae=digits/x.npy"),
    "error of the command line": ("run", "digits", "--fee"),
    "error of a file": ("inspect", "nowhere"),
    "inspect": ("inspect", "digits", "--batch", "2"),
    "inspect operators": ("inspect", "digits", "--ops"),
    "inspect variables": ("inspect", "digits", "--vars"),
    "ops": ("ops", "mul"),
    "ops coverage": ("ops", "--coverage", "digits"),
    "params list": ("params", "list", "digits"),
    "params merge": ("params", "merge", "digits", "-o", "out.npz"),
    "prune": ("prune", "digits", "--targets", "fc_0.tmp_0", "-o", "out"),
    "reshape": ("reshape", "digits", "image:[8,1,8,8]"),
    "run": ("run", "digits", "--feed", "digits/x.npy", "--fetch", "fc_0.tmp_0", "--engine", "numpy"),
    "transpile": ("transpile", "digits", "--release-memory"),
}


def written(words: tuple[str, ...]) -> Any:
    """What a command line writes, in a folder with the sample `digits` and a copy of it for another batch."""
    with tempfile.TemporaryDirectory() as name, chdir(name):
        shutil.copytree(DIGITS, "digits")
        assert call("reshape", "digits", "[8,1,8,8]", "-o", "resized").exit_code == 0
        return json.loads(call(*words, "--json", env={"FLUIDTOOL_NATIVE": "0"}).stdout)


def snapshot(name: str) -> Path:
    return SNAPSHOTS / f"{name.replace(' ', '-')}.json"


def same(found: Any, expected: Any) -> bool:
    """Whether two documents are equal, floating-point numbers within 1e-5 of their size."""
    if isinstance(expected, dict):
        return list(found) == list(expected) and all(same(found[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    return bool(found == (pytest.approx(expected, rel=1e-5, abs=1e-6) if isinstance(expected, float) else expected))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_as_it_was(name: str) -> None:
    found, expected = written(DOCUMENTS[name]), json.loads(snapshot(name).read_text())
    check_document(found)
    assert same(found, expected), json.dumps(found, indent=2)


def test_there_is_no_other_snapshot() -> None:
    assert set(SNAPSHOTS.iterdir()) == set(map(snapshot, DOCUMENTS))


if __name__ == "__main__":
    SNAPSHOTS.mkdir(exist_ok=True)
    for each, command in DOCUMENTS.items():
        snapshot(each).write_text(json.dumps(written(command), indent=2) + os.linesep)
    sys.exit(0)
