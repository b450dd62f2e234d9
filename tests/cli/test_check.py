"""`fluidtool check`: how findings are shown; which there are is told in tests/passes/test_verify.py."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.support import (
    BIAS,
    DIGITS,
    PAIR,
    ROOT,
    TOPICS,
    WEIGHT,
    call,
    call_json,
    combined_model,
    error_of,
    linear_model,
    linear_program,
    write_model,
)


@pytest.mark.parametrize("sample", [DIGITS, TOPICS, PAIR], ids=["digits", "topics", "digits_v2"])
def test_the_samples_have_no_findings(sample: Path) -> None:
    result = call("check", sample)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no findings" in result.stderr


def test_a_finding_has_a_code_a_place_and_a_sentence(tmp_path: Path) -> None:
    program = linear_program()
    program.global_block().ops[3].type = "strange"
    result = call("check", write_model(tmp_path / "m", program, w=WEIGHT, b=BIAS))
    assert result.exit_code == 1
    header, row = result.stdout.splitlines()
    assert header.split() == ["code", "where", "finding"]
    assert re.match(r"FC401 +3 strange +operator strange is unknown", row)
    assert result.stderr.endswith("6 operators, 2 parameters, 1 finding\n")


def test_findings_in_json(tmp_path: Path) -> None:
    folder = linear_model(tmp_path / "m")
    (folder / "w").unlink()
    result = call("check", folder, "--json")
    assert result.exit_code == 1
    (finding,) = json.loads(result.stdout)["findings"]
    assert (finding["code"], finding["variable"]) == ("FC301", "w")
    assert call_json("check", DIGITS)["findings"] == []


def test_parameters_from_elsewhere(tmp_path: Path) -> None:
    folder = combined_model(tmp_path / "m")
    program = tmp_path / "net.pb"
    program.write_bytes((folder / "__model__").read_bytes())
    assert call("check", program).exit_code == 1
    assert call("check", program, "--params", folder / "__params__").exit_code == 0


def test_a_program_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "__model__").write_bytes(b"\x0a\xff\xff")
    result = call("check", tmp_path)
    assert result.exit_code == 3 and "cannot be read as a Fluid program" in error_of(result)


def test_every_code_is_documented() -> None:
    passes = ROOT / "fluidtool" / "passes"
    source = "".join(
        (passes / name).read_text() for name in ("verify.py", "verify_shapes.py", "verify_weights.py", "security.py")
    )
    documented = (ROOT / "docs" / "check.md").read_text()
    codes = set(re.findall(r"\"(FC\d{3})\"", source))
    assert codes == set(re.findall(r"^\| `(FC\d{3})`", documented, re.MULTILINE))


# ---------------------------------------------------------------- several models
def broken_model(folder: Path) -> Path:
    """A model without its weight: FC301."""
    linear_model(folder)
    (folder / "w").unlink()
    return folder


def unreadable_model(folder: Path) -> Path:
    folder.mkdir()
    (folder / "__model__").write_bytes(b"\x0a\xff\xff")
    return folder


def test_several_models_are_one_table_and_a_line_each(tmp_path: Path) -> None:
    good, bad = linear_model(tmp_path / "good"), broken_model(tmp_path / "bad")
    result = call("check", good, bad)
    header, row = result.stdout.splitlines()
    assert (result.exit_code, header.split()) == (1, ["model", "code", "where", "finding"])
    assert row.split()[:3] == [str(bad / "__model__"), "FC301", "w"]
    assert [line.split(": ")[-1].split(", ")[-1] for line in result.stderr.splitlines()] == ["no findings", "1 finding"]


def test_folders_are_searched(tmp_path: Path) -> None:
    linear_model(tmp_path / "models" / "a")
    broken_model(tmp_path / "models" / "b" / "c")
    document = json.loads(call("check", "-r", tmp_path, "--json").stdout)
    found = [(each["program"], [finding["code"] for finding in each["findings"]]) for each in document["models"]]
    first, second = tmp_path / "models" / "a" / "__model__", tmp_path / "models" / "b" / "c" / "__model__"
    assert found == [(str(first), []), (str(second), ["FC301"])]


def test_one_program_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    bad, unreadable = broken_model(tmp_path / "bad"), unreadable_model(tmp_path / "unreadable")
    result = call("check", unreadable, bad, "--json")
    first, second = json.loads(result.stdout)["models"]
    assert result.exit_code == 3
    assert first["error"]["code"] == "FT300" and first["findings"] == []
    assert second["error"] is None and [each["code"] for each in second["findings"]] == ["FC301"]


def test_parameters_of_several_models_are_not_one_file(tmp_path: Path) -> None:
    assert "--params applies to one model" in error_of(call("check", DIGITS, PAIR, "--params", tmp_path))


def test_the_program_only(tmp_path: Path) -> None:
    assert call("check", broken_model(tmp_path / "m"), "--program-only").exit_code == 0


# ---------------------------------------------------------------- formats
def test_json_has_a_schema(tmp_path: Path) -> None:
    document = json.loads(call("check", broken_model(tmp_path / "m"), "--format", "json").stdout)
    assert list(document) == ["schema", "program", "findings"] and document["schema"] == "fluidtool.check/1"
    assert list(document["findings"][0]) == ["code", "message", "block", "operator", "type", "variable"]
    assert call_json("check", "--security", DIGITS)["memory"]["parameter_bytes"] > 0


def test_json_and_another_format_contradict_each_other() -> None:
    assert "give only one format" in error_of(call("check", DIGITS, "--json", "--format", "junit"))


def test_junit_has_a_test_case_for_each_model(tmp_path: Path) -> None:
    folders = linear_model(tmp_path / "a"), broken_model(tmp_path / "b"), unreadable_model(tmp_path / "c")
    result = call("check", *folders, "--format", "junit")
    (suite,) = ElementTree.fromstring(result.stdout)
    good, bad, unreadable = suite
    assert {name: suite.get(name) for name in ("tests", "failures", "errors")} == {
        "tests": "3", "failures": "1", "errors": "1"
    }  # fmt: skip
    assert len(good) == 0 and good.get("name") == str(folders[0] / "__model__")
    failure, error = bad[0], unreadable[0]
    assert (failure.tag, failure.get("type"), failure.get("message")) == ("failure", "FC301", "1 finding")
    assert failure.text is not None and failure.text.startswith("FC301 w: ")
    assert (error.tag, error.get("type")) == ("error", "FT300")


def test_sarif_has_what_its_schema_requires(tmp_path: Path) -> None:
    result = call("check", broken_model(tmp_path / "a,b c"), unreadable_model(tmp_path / "c"), "--format", "sarif")
    log = json.loads(result.stdout)
    (run,) = log["runs"]
    (found,) = run["results"]
    (invocation,) = run["invocations"]
    (notification,) = invocation["toolExecutionNotifications"]
    assert log["version"] == "2.1.0" and run["tool"]["driver"]["name"] == "fluidtool"
    assert run["tool"]["driver"]["rules"][found["ruleIndex"]]["id"] == found["ruleId"] == "FC301"
    assert found["message"]["text"] and found["level"] == "error"
    assert found["locations"][0]["logicalLocations"] == [{"fullyQualifiedName": "w"}]
    uri = found["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == f"{tmp_path.as_uri()}/a%2Cb%20c/__model__"
    assert invocation["executionSuccessful"] is False and notification["descriptor"]["id"] == "FT300"


def test_files_below_the_working_folder_are_relative_in_sarif(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken_model(tmp_path / "models")
    monkeypatch.chdir(tmp_path)
    (found,) = json.loads(call("check", tmp_path / "models", "--format", "sarif").stdout)["runs"][0]["results"]
    assert found["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "models/__model__"


def test_annotations_of_github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken_model(tmp_path / "100%,m")
    monkeypatch.chdir(tmp_path)
    result = call("check", "100%,m", "--format", "github")
    assert result.exit_code == 1
    assert result.stdout.startswith("::error file=100%25%2Cm/__model__,title=FC301::w: ")
    assert result.stdout.count("\n") == 1


@pytest.mark.parametrize("format", ["table", "json", "junit", "sarif", "github"])
@pytest.mark.parametrize(
    "name", ["\x1b[2J", "<script>&\"'", "a\n::error::b", "a\r::error::b", "\u202eltr", "n" * 10_000]
)
def test_a_hostile_name_is_data(tmp_path: Path, format: str, name: str) -> None:
    program = linear_program()
    block = program.global_block()
    block.create_var(name=name, shape=[-1, 3], dtype="float32")
    block.append_op(type="relu", inputs={"X": ["sum"]}, outputs={"Out": [name]})
    block.ops = [*block.ops[:-2], block.ops[-1], block.ops[-2]]
    result = call("check", write_model(tmp_path / "m", program, w=WEIGHT, b=BIAS), "--format", format)
    assert result.exit_code == 1
    written = result.stdout + result.stderr
    assert not {"\x1b", "\r", "\u202e"} & set(written if format != "json" else result.stderr)
    if format == "json":
        assert json.loads(result.stdout)["findings"][0]["variable"] == name
        assert "\x1b" not in result.stdout and "\r" not in result.stdout
    elif format == "sarif":
        assert json.loads(result.stdout)["runs"][0]["results"][0]["ruleId"] == "FC103"
    elif format == "junit":
        suite = ElementTree.fromstring(result.stdout)[0]
        assert [child.tag for child in suite[0]] == ["failure"] and "<script>" not in result.stdout
    else:
        assert len(result.stdout.splitlines()) == {"table": 2, "github": 1}[format]


# ---------------------------------------------------------------- baseline
def test_accepted_findings_are_not_reported_again(tmp_path: Path) -> None:
    folder, baseline = broken_model(tmp_path / "m"), tmp_path / "accepted.json"
    written = call("check", folder, "--baseline", baseline, "--write-baseline")
    assert (written.exit_code, written.stdout) == (0, "")
    again = call("check", folder, "--baseline", baseline)
    assert (again.exit_code, again.stdout) == (0, "")
    assert "1 finding accepted" in again.stderr


def test_a_baseline_is_replaced_only_by_force(tmp_path: Path) -> None:
    folder, baseline = broken_model(tmp_path / "m"), tmp_path / "accepted.json"
    baseline.write_text("mine")
    refused = call("check", folder, "--baseline", baseline, "--write-baseline")
    assert refused.exit_code == 2 and baseline.read_text() == "mine" and "--force" in error_of(refused)
    assert call("check", folder, "--baseline", baseline, "--write-baseline", "--force").exit_code == 0
    assert json.loads(baseline.read_text())["schema"] == "fluidtool.check.baseline/1"


def test_a_program_that_cannot_be_read_is_not_accepted(tmp_path: Path) -> None:
    folders = linear_model(tmp_path / "a"), unreadable_model(tmp_path / "b")
    result = call("check", *folders, "--baseline", tmp_path / "accepted.json", "--write-baseline")
    assert result.exit_code == 3 and not (tmp_path / "accepted.json").exists()


def test_writing_a_baseline_needs_its_name() -> None:
    assert "--baseline FILE" in error_of(call("check", DIGITS, "--write-baseline"))
