"""What is wrong with a program is an OperatorError; a fault of fluidtool is raised as it is, and nothing runs again after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool
from fluidtool.errors import OperatorError
from fluidtool.ir import Program
from fluidtool.ops.registry import get_op
from fluidtool.proto.enums import AttrType
from fluidtool.runtime import Executor, Scope
from fluidtool.runtime.engines.native.library import library, switched_off
from fluidtool.runtime.engines.native.region import NativeRegion
from fluidtool.tensor import SelectedRows

DIGITS = Path(__file__).resolve().parents[2] / "samples" / "digits"


def relu() -> Program:
    program = Program()
    block = program.global_block()
    for name in ("x", "y"):
        block.create_var(name=name)
    block.append_op(type="relu", inputs={"X": ["x"]}, outputs={"Out": ["y"]})
    return program


def run(value: Any) -> list[Any]:
    return Executor(engine="numpy").run(relu(), {"x": value}, ["y"], Scope())


@pytest.mark.parametrize("error", [ValueError("shapes"), TypeError("types"), KeyError("name"), ZeroDivisionError()])
def test_what_a_kernel_cannot_compute_is_a_fault_of_the_program(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kernel(*_: Any) -> None:
        raise error

    monkeypatch.setattr(get_op("relu"), "kernel", kernel)
    with pytest.raises(OperatorError, match="operator relu failed"):
        run(np.ones(3, np.float32))


def test_an_attribute_that_is_not_there_is_a_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get_op("relu"), "kernel", lambda ctx, X: X.no_such_thing)
    with pytest.raises(AttributeError, match="no_such_thing"):
        run(np.ones(3, np.float32))


def test_rows_where_a_tensor_is_needed_are_a_fault_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get_op("relu"), "kernel", lambda ctx, X: X.astype("f4"))
    with pytest.raises(OperatorError, match="operator relu: input X holds SelectedRows, expected a tensor"):
        run(SelectedRows([0], 3, np.ones((1, 2), np.float32)))


def test_an_attribute_of_another_type_is_a_fault_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    program = relu()
    program.global_block().ops[0].set_attr("use_mkldnn", [0.5], AttrType.FLOATS)
    monkeypatch.setattr(get_op("relu"), "kernel", lambda ctx, X: ctx.attr("use_mkldnn").kind)
    with pytest.raises(OperatorError, match="has attribute use_mkldnn as FLOATS, expected BOOLEAN"):
        Executor(engine="numpy").run(program, {"x": np.ones(3, np.float32)}, ["y"], Scope())


@pytest.mark.skipif(library() is None or switched_off(), reason="the native engine is not built, or switched off")
def test_the_straight_way_does_not_run_again_after_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fluidtool.load(DIGITS)
    (name,) = model.feeds
    shape = [2 if size < 0 else size for size in model.program.global_block().vars[name].shape]
    feed = {name: np.ones(shape, np.float32)}
    model.run(feed)
    runs: list[int] = []

    def broken(*_: Any) -> None:
        runs.append(1)
        raise AttributeError("no such thing")

    monkeypatch.setattr(NativeRegion, "run", broken)
    with pytest.raises(AttributeError, match="no such thing"):
        model.run(feed)
    assert runs == [1]
