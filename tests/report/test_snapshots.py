"""Small documents as they should be; `python -m tests.report.test_snapshots [NAME...]` writes them again."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from contextlib import chdir
from typing import Any

import pytest

from tests.cli.support import SAMPLES, call, process
from tests.report.documents import EXACT, SNAPSHOTS, VARYING, in_snapshot, snapshot
from tests.support.schemas import check_document, documents


def written(words: tuple[str, ...]) -> list[Any]:
    """What a command line writes; `launch` starts processes, and so does it in one of its own."""
    words = tuple(sys.executable if word == "python" else word for word in words)
    with tempfile.TemporaryDirectory() as name, chdir(name):
        for sample in ("digits", "digits_training"):
            shutil.copytree(SAMPLES / sample, sample)
        shutil.copy(SAMPLES / "launch" / "role.py", "role.py")
        assert call("reshape", "digits", "[8,1,8,8]", "-o", "resized").exit_code == 0
        if words[0] == "launch":
            return documents(process(*words, text=True).stdout)
        return documents(call(*words, env={"FLUIDTOOL_NATIVE": "0"}).stdout)


def same(found: Any, expected: Any) -> bool:
    """Whether two documents are equal, floating-point numbers within 1e-5 of their size."""
    if isinstance(expected, dict):
        return list(found) == list(expected) and all(same(found[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    return bool(found == (pytest.approx(expected, rel=1e-5, abs=1e-6) if isinstance(expected, float) else expected))


def keys(value: Any) -> Any:
    """The keys of a document and of the records in it; of a list, those of its first item."""
    if isinstance(value, dict):
        return {key: keys(each) for key, each in value.items()}
    return [keys(each) for each in value[:1]] if isinstance(value, list) else None


def kinds(lines: list[Any]) -> dict[str, Any]:
    """The keys of each kind of line."""
    return {line.get("event", "step"): keys(line) for line in lines}


@pytest.mark.parametrize("name", EXACT)
def test_a_document_is_as_it_was(name: str) -> None:
    found = written(EXACT[name])
    for document in found:
        check_document(document)
    assert same(found, in_snapshot(name)), json.dumps(found, indent=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", VARYING)
def test_a_document_has_the_keys_that_it_had(name: str) -> None:
    found = written(VARYING[name])
    for document in (*found, *in_snapshot(name)):
        check_document(document)
    assert kinds(found) == kinds(in_snapshot(name))


def test_there_is_no_other_snapshot() -> None:
    assert set(SNAPSHOTS.iterdir()) == set(map(snapshot, (*EXACT, *VARYING)))


if __name__ == "__main__":
    for each in sys.argv[1:] or (*EXACT, *VARYING):
        lines = written((EXACT | VARYING)[each])
        indent = 2 if len(lines) == 1 else None
        snapshot(each).write_text("".join(json.dumps(line, indent=indent) + "\n" for line in lines))
