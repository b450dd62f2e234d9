"""Which operators are implemented."""

from __future__ import annotations

from pathlib import Path

import pytest

import fluidtool
from fluidtool.errors import UnsupportedOperatorError
from fluidtool.ops.index import EXCLUDED
from fluidtool.workflows.operators import coverage, matching


def test_the_operators_of_a_model_are_counted(digits: Path) -> None:
    found = {each.type: each for each in coverage(fluidtool.load(digits).program)}
    assert found["conv2d"].count == 2 and not any(each.reason for each in found.values())
    assert not {"feed", "fetch"} & found.keys()


def test_what_does_not_run_has_a_reason(digits: Path) -> None:
    program = fluidtool.load(digits).program.clone()
    excluded = next(iter(EXCLUDED))
    program.global_block().ops[-2].type = excluded
    program.global_block().ops[-3].type = "made_up"
    reasons = {each.type: each.reason for each in coverage(program)}
    assert reasons[excluded] == EXCLUDED[excluded] and reasons["made_up"] == "unknown"


def test_a_pattern_finds_operators_by_name() -> None:
    infos, excluded = matching("softmax*")
    assert "softmax" in [info.type for info in infos] and "relu" not in [info.type for info in infos]
    assert all(name.startswith("softmax") for name in excluded)


def test_a_pattern_without_a_match_is_an_error() -> None:
    with pytest.raises(UnsupportedOperatorError, match="no operator matches 'zz"):
        matching("zz*")
