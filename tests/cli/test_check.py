"""`fluidtool check`: how findings are shown; which there are is told in tests/passes/test_verify.py."""

from __future__ import annotations

import json
import re
from pathlib import Path

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
