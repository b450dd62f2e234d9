"""`fluidtool params`: output, `--json`, exit codes, misuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.support import DIGITS, PAIR, call, call_json, error_of, everything_below


def test_the_list() -> None:
    result = call("params", "list", PAIR)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0].split() == ["parameter", "type", "shape", "size"]
    assert len(result.stdout.splitlines()) == 7


def test_the_document_of_the_list() -> None:
    found = call_json("params", "list", PAIR, "--json")
    assert (found["schema"], found["action"]) == ("fluidtool.params/1", "list")
    assert [set(each) for each in found["parameters"]] == [{"name", "data_type", "shape", "bytes", "source"}] * 6


def test_the_document_of_statistics() -> None:
    found = call_json("params", "stats", DIGITS, "--json")["parameters"]
    assert len(found) == 12 and {"name", "min", "max", "mean", "zeros"} <= set(found[0])


def test_a_difference_has_exit_code_1(tmp_path: Path) -> None:
    assert call("params", "rename", DIGITS, "fc_0.w_0=weight", "-o", tmp_path / "m").exit_code == 0
    result = call("params", "diff", DIGITS, tmp_path / "m")
    assert result.exit_code == 1 and "2 parameters differ" in result.stderr
    assert "- fc_0.w_0" in " ".join(result.stdout.split()) and "+ weight" in " ".join(result.stdout.split())
    assert call("params", "diff", DIGITS, DIGITS).exit_code == 0


def test_merging_and_splitting(tmp_path: Path) -> None:
    found = call_json("params", "merge", DIGITS, "-o", tmp_path / "w.npz", "--json")
    assert found == {"schema": "fluidtool.params/1", "action": "merge", "files": [str(tmp_path / "w.npz")]}
    result = call("params", "split", tmp_path / "w.npz", "-o", tmp_path / "w")
    assert result.exit_code == 0 and f"12 files saved to {tmp_path / 'w'}" in result.stderr
    assert call("params", "diff", DIGITS, tmp_path / "w").exit_code == 0


def test_a_result_is_replaced_only_by_force(tmp_path: Path) -> None:
    (tmp_path / "w.npz").write_text("mine")
    command = ("params", "merge", DIGITS, "-o", tmp_path / "w.npz")
    assert call(*command).exit_code == 2 and (tmp_path / "w.npz").read_text() == "mine"
    assert call(*command, "--force").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lost", DIGITS], "there is no action 'lost'; did you mean list?"),
        (["diff", DIGITS], "diff takes 2 sources, found 1"),
        (["list", DIGITS, PAIR], "list takes 1 source, found 2"),
        (["merge", DIGITS], "merge needs --output OUT"),
        (["list", DIGITS, "-o", "w"], "list writes nothing; omit --output"),
        (["rename", DIGITS, "-o", "w"], "rename takes OLD=NEW"),
        (["rename", DIGITS, "a=", "-o", "w"], "rename takes OLD=NEW"),
        (["rename", DIGITS, "a=b", "a=c", "-o", "w"], "each name once"),
    ],
)
def test_misuse(arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = call("params", *arguments)
    assert result.exit_code == 2 and message in error_of(result)
    assert everything_below(tmp_path) == set()
