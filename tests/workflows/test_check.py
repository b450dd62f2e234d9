"""Checking several models, and the baseline of accepted findings, without the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import fluidtool
from fluidtool.errors import ModelNotFoundError, UnreadableError
from fluidtool.io.search import find_models
from fluidtool.passes.findings import Finding
from fluidtool.workflows.baseline import read_baseline, write_baseline
from fluidtool.workflows.check import CheckOptions, check_models

FOUND = Finding("FC103", "computes y, which is never read or fetched", 0, 7, "relu", "y")


def test_a_path_is_opened(digits: Path, tmp_path: Path) -> None:
    broken = Path(shutil.copytree(digits, tmp_path / "broken"))
    (broken / "conv2d_0.w_0").unlink()
    assert fluidtool.check(digits) == []
    assert [finding.code for finding in fluidtool.check(broken)] == ["FC301"]
    assert fluidtool.check(broken, program_only=True) == []


def test_a_program_that_cannot_be_read_is_a_result(digits: Path, tmp_path: Path) -> None:
    (tmp_path / "__model__").write_bytes(b"\x0a\xff\xff")
    first, second = check_models([str(tmp_path), str(digits)], CheckOptions(program_only=True))
    assert isinstance(first.error, UnreadableError) and first.size is None
    assert second.error is None and second.size is not None and second.size.operators == 13


# ---------------------------------------------------------------- finding models
@pytest.fixture
def folder(digits: Path, tmp_path: Path) -> Path:
    """Programs `one/__model__`, `two/net.pb` and a damaged `two/x.pdmodel`, a hidden one, and files of other kinds."""
    for name in ("one/__model__", "two/net.pb", ".hidden/__model__"):
        (tmp_path / name).parent.mkdir()
        shutil.copy(digits / "__model__", tmp_path / name)
    (tmp_path / "two" / "x.pdmodel").write_bytes(b"damaged")
    (tmp_path / "two" / "notes").write_bytes(b"\x0anotes")
    shutil.copy(digits / "x.npy", tmp_path / "two" / "x.npy")
    return tmp_path


def test_programs_below_a_folder_are_found_damaged_ones_too(folder: Path) -> None:
    found = find_models([str(folder)], recursive=True)
    assert [Path(path).relative_to(folder).as_posix() for path in found] == [
        "one/__model__", "two/net.pb", "two/x.pdmodel"
    ]  # fmt: skip


def test_without_searching_a_folder_is_a_model(folder: Path) -> None:
    assert find_models([str(folder)]) == [str(folder)]


def test_patterns_are_expanded_and_nothing_is_named_twice(folder: Path) -> None:
    one = str(folder / "one" / "__model__")
    assert find_models([one, str(folder / "*" / "__model__"), str(folder / "**" / "__model__")]) == [one]


def test_a_path_that_looks_like_a_pattern_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "a[b]").mkdir()
    assert find_models([str(tmp_path / "a[b]")]) == [str(tmp_path / "a[b]")]


@pytest.mark.parametrize("recursive", [False, True])
def test_finding_nothing_is_an_error(tmp_path: Path, recursive: bool) -> None:
    with pytest.raises(ModelNotFoundError, match="no"):
        find_models([str(tmp_path if recursive else tmp_path / "*.pb")], recursive=recursive)


# ---------------------------------------------------------------- baseline
def test_a_finding_is_recognized_at_another_place_with_other_words(tmp_path: Path) -> None:
    write_baseline(tmp_path / "b.json", [(str(tmp_path / "m"), [FOUND])])
    moved = Finding("FC103", "in other words", 0, 9, "relu", "y")
    assert read_baseline(tmp_path / "b.json").new(str(tmp_path / "m"), [moved]) == []


@pytest.mark.parametrize("change", [{"code": "FC101"}, {"variable": "z"}, {"type": "tanh"}, {"block": 1}])
def test_another_finding_is_new(tmp_path: Path, change: dict[str, object]) -> None:
    from dataclasses import replace

    write_baseline(tmp_path / "b.json", [(str(tmp_path / "m"), [FOUND])])
    other = replace(FOUND, **change)  # type: ignore[arg-type]
    assert read_baseline(tmp_path / "b.json").new(str(tmp_path / "m"), [other]) == [other]


def test_a_finding_is_accepted_as_often_as_it_was_found(tmp_path: Path) -> None:
    write_baseline(tmp_path / "b.json", [(str(tmp_path / "m"), [FOUND])])
    baseline = read_baseline(tmp_path / "b.json")
    assert baseline.new(str(tmp_path / "m"), [FOUND, FOUND]) == [FOUND]
    assert baseline.unmatched == 0


def test_the_same_finding_in_another_model_is_new(tmp_path: Path) -> None:
    write_baseline(tmp_path / "b.json", [(str(tmp_path / "m"), [FOUND])])
    baseline = read_baseline(tmp_path / "b.json")
    assert baseline.new(str(tmp_path / "other"), [FOUND]) == [FOUND]
    assert baseline.unmatched == 1


def test_a_baseline_moves_with_its_models(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    write_baseline(tmp_path / "here" / "b.json", [(str(tmp_path / "here" / "m"), [FOUND])])
    (tmp_path / "here").rename(tmp_path / "there")
    assert read_baseline(tmp_path / "there" / "b.json").new(str(tmp_path / "there" / "m"), [FOUND]) == []


@pytest.mark.parametrize(
    "content",
    ["[]", "{}", '{"schema": "fluidtool.check.baseline/1"}', '{"schema": "fluidtool.check.baseline/2", "findings": []}']
    + [json.dumps({"schema": "fluidtool.check.baseline/1", "findings": [row]}) for row in (1, {"code": "FC103"})],
)
def test_another_file_is_not_a_baseline(tmp_path: Path, content: str) -> None:
    (tmp_path / "b.json").write_text(content)
    with pytest.raises(UnreadableError, match="is not a baseline of findings"):
        read_baseline(tmp_path / "b.json")
