"""Operators read other names, many at a time."""

from __future__ import annotations

from typing import Any

import pytest

from fluidtool.ir import Operator, Program
from fluidtool.proto.enums import AttrType
from tests.fuzz._growth import commands_on, models_of


def test_names_are_replaced_all_at_once() -> None:
    op = Operator(Program().global_block(), type="sum", inputs={"X": ["a", "b", "c", "a"]}, outputs={"Out": ["a"]})
    op.rename_inputs({"a": "b", "b": "a"})
    assert op.input("X") == ["b", "a", "c", "b"]
    assert op.output("Out") == ["a"]


def test_variables_that_attributes_name_are_renamed_too() -> None:
    op = Operator(Program().global_block(), type="slice", inputs={"Input": ["x"]}, outputs={"Out": ["y"]})
    op.set_attr("starts", ["a", "b"], AttrType.VARS)
    op.rename_inputs({"a": "b", "b": "a"})
    assert op.attr("starts") == ["b", "a"]


def test_an_operator_that_reads_many_merged_results_is_renamed_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    calls: list[str] = []
    rename_inputs = Operator.rename_inputs

    def counted(op: Operator, renamed: Any) -> None:
        calls.append(op.type)
        rename_inputs(op, renamed)

    monkeypatch.setattr(Operator, "rename_inputs", counted)
    models_of(tmp_path, "fan")(64)()
    commands_on(tmp_path, "fan", "transpile --all-inference")(64)()
    assert calls.count("sum") <= 2
