"""save, load, save_combine, load_combine, print and delete_var."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluidtool.errors import (
    OperatorError,
    OutputError,
    OutputExistsError,
    PolicyError,
    UninitializedError,
    UnreadableError,
)
from fluidtool.ir import Program
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor, Policy, Scope
from fluidtool.tensor import LoDTensor, SelectedRows
from tests.support.operators import OneOp, lod_tensor, run_op

X = np.arange(12, dtype=np.float32).reshape(3, 4)
# The stream of a float32 of shape [1], value 0.0, as Paddle 1.8.5 saved it.
FC_BIAS = bytes.fromhex("00000000 0000000000000000 00000000 04000000 0805 1001 00000000")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def save(value: Any, **attrs: Any) -> None:
    OneOp("save", {"X": value}, attrs).run()


def load(**attrs: Any) -> LoDTensor:
    out: LoDTensor = run_op("load", {}, attrs)["Out"]
    return out


def test_the_file_is_what_paddle_writes() -> None:
    save(np.float32([0]), file_path="fc.b")
    assert Path("fc.b").read_bytes() == FC_BIAS


def test_a_variable_comes_back_with_its_lod() -> None:
    save(lod_tensor(X, [[2, 1]]), file_path="deep/er/x")
    back = load(file_path="deep/er/x")
    np.testing.assert_array_equal(back.numpy(), X)
    assert back.lod() == [[0, 2, 3]]


def test_half_precision_on_the_way_out_or_in() -> None:
    save(X, file_path="half", save_as_fp16=True)
    assert load(file_path="half").numpy().dtype == np.float16
    save(X, file_path="full")
    half = load(file_path="full", load_as_fp16=True).numpy()
    assert half.dtype == np.float16
    np.testing.assert_array_equal(half, X)


def test_a_piece_of_a_variable_starts_at_an_element() -> None:
    save(X, file_path="x")
    assert load(file_path="x", seek=4, shape=[1, 4]).numpy().tolist() == [[4.0, 5.0, 6.0, 7.0]]
    with pytest.raises(OperatorError, match=r"12 elements from element 4 on are requested, but .* has 12"):
        load(file_path="x", seek=4, shape=[3, 4])


def test_selected_rows_come_back() -> None:
    save(SelectedRows([0, 4], 9, X[:2]), file_path="rows")
    one = OneOp("load", {}, {"file_path": "rows"})
    one.program.global_block().vars["Out0@out"].type = VarType.SELECTED_ROWS
    (back,) = Executor().run(one.program, {}, ["Out0@out"], Scope())
    assert (back.rows(), back.height()) == ([0, 4], 9)
    np.testing.assert_array_equal(back.value, X[:2])


def test_the_path_of_a_lookup_table_comes_from_the_scope() -> None:
    one = OneOp("save", {"X": SelectedRows([0], 9, X[:1])}, {"file_path": "unused"}, {"kLookupTablePath": 0})
    scope = Scope()
    scope.var("kLookupTablePath").value = "table/part_0"
    Executor().run(one.program, one.feed, [], scope)
    assert Path("table/part_0").exists()
    assert not Path("unused").exists()


def test_loading_leaves_the_file_alone() -> None:
    save(X, file_path="x")
    value = load(file_path="x").numpy()
    value[0, 0] = 99.0
    assert load(file_path="x").numpy()[0, 0] == 0.0


def test_overwriting_can_be_forbidden() -> None:
    save(X, file_path="x")
    with pytest.raises(OutputExistsError, match=r"save: the file .*x exists and the attribute overwrite is false"):
        save(X + 1, file_path="x", overwrite=False)
    np.testing.assert_array_equal(load(file_path="x").numpy(), X)


def test_nothing_half_written_stays_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    save(X, file_path="x")
    monkeypatch.setattr(Path, "replace", _no_space)
    with pytest.raises(OutputError, match=r"save cannot write .*x: No space left on device"):
        save(X + 1, file_path="x")
    assert os.listdir() == ["x"]
    monkeypatch.undo()


def _no_space(self: Path, target: Path) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("path", ["/etc/fluid", "../outside", "a/../../outside"])
@pytest.mark.parametrize("op_type", ["save", "load", "save_combine", "load_combine"])
def test_files_elsewhere_are_refused(op_type: str, path: str) -> None:
    inputs = {"save": {"X": X}, "save_combine": {"X": [X]}}.get(op_type, {})
    with pytest.raises(PolicyError, match=f"operator {op_type} asks for the file"):
        OneOp(op_type, inputs, {"file_path": path}).run()


def test_a_folder_can_be_allowed(tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    one = OneOp("save", {"X": X}, {"file_path": str(other / "x")})
    Executor(policy=Policy(file_roots=(other,))).run(one.program, one.feed, [], Scope())
    assert (other / "x").exists()


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(UnreadableError, match=r"load: cannot read .*nowhere: No such file or directory"):
        load(file_path="nowhere")


def test_a_truncated_file_is_refused() -> None:
    Path("x").write_bytes(FC_BIAS[:-1])
    with pytest.raises(UnreadableError, match="x is not readable at byte 24"):
        load(file_path="x")
    Path("empty").touch()
    with pytest.raises(UnreadableError, match="empty is not readable at byte 0"):
        load(file_path="empty")


def test_an_empty_path_is_refused() -> None:
    with pytest.raises(OperatorError, match="load: the attribute file_path is empty"):
        load(file_path="")


def test_what_holds_no_value_cannot_be_saved() -> None:
    with pytest.raises(UninitializedError, match="variable X0 holds no value"):
        save(LoDTensor(), file_path="x")


def combined(**attrs: Any) -> None:
    OneOp("save_combine", {"X": [lod_tensor(X, [[2, 1]]), np.array([1, 2])]}, attrs, {"Y": 0}).run()


def uncombined(count: int, **attrs: Any) -> list[LoDTensor]:
    out: list[LoDTensor] = run_op("load_combine", {}, attrs, {"Out": count})["Out"]
    return out


def test_several_variables_share_a_file() -> None:
    combined(file_path="all")
    first, second = uncombined(2, file_path="all")
    assert first.lod() == [[0, 2, 3]]
    assert (second.numpy().dtype, second.numpy().tolist()) == (np.int64, [1, 2])


def test_half_precision_is_for_every_variable_of_the_file() -> None:
    combined(file_path="all", save_as_fp16=True)
    assert {value.numpy().dtype for value in uncombined(2, file_path="all")} == {np.dtype(np.float16)}


def test_more_or_fewer_variables_than_the_file_holds_are_refused() -> None:
    combined(file_path="all")
    with pytest.raises(UnreadableError, match="bytes more than the 1 variables that Out names"):
        run_op("load_combine", {}, {"file_path": "all"}, {"Out": 1})
    with pytest.raises(UnreadableError, match=r"all, variable 2 of 3 \(Out2@out\), is not readable"):
        uncombined(3, file_path="all")


def test_variables_go_to_memory_and_come_back() -> None:
    one = OneOp("save_combine", {"X": [np.float32([0])]}, {"file_path": "", "save_to_memory": True})
    scope = Scope()
    one.program.global_block().vars["Y0@out"].persistable = True
    Executor().run(one.program, one.feed, [], scope)
    kept = scope.var("Y0@out").value
    assert kept == FC_BIAS
    out = run_op("load_combine", {}, {"file_path": kept.decode(), "model_from_memory": True})["Out"]
    assert out.numpy().tolist() == [0.0]


PRINT = {
    "first_n": -1,
    "message": "loss",
    "summarize": 3,
    "print_tensor_name": True,
    "print_tensor_type": True,
    "print_tensor_shape": True,
    "print_tensor_lod": True,
}


def test_print_shows_the_tensor_on_stderr_and_passes_it_on(capsys: pytest.CaptureFixture[str]) -> None:
    out = run_op("print", {"In": lod_tensor(X, [[2, 1]])}, PRINT)["Out"]
    np.testing.assert_array_equal(out.numpy(), X)
    assert out.lod() == [[0, 2, 3]]
    captured = capsys.readouterr()
    assert captured.out == ""
    head, *lines = captured.err.splitlines()
    assert head.endswith("\tloss\tThe place is:CPUPlace")
    assert lines == ["Tensor[In0]", "\tshape: [3,4,]", "\tdtype: float32", "\tLoD: [[ 0,2,3, ]]", "\tdata: 0,1,2,"]


def test_print_stops_after_the_first_n(capsys: pytest.CaptureFixture[str]) -> None:
    one, scope, executor = OneOp("print", {"In": X}, {**PRINT, "first_n": 2}), Scope(), Executor()
    for _ in range(4):
        executor.run(one.program, one.feed, [], scope)
    assert capsys.readouterr().err.count("Tensor[In0]") == 2


@pytest.mark.parametrize(
    ("phase", "is_forward", "shown"), [("FORWARD", True, True), ("FORWARD", False, False), ("BACKWARD", True, False)]
)
def test_print_has_phases(capsys: pytest.CaptureFixture[str], phase: str, is_forward: bool, shown: bool) -> None:
    run_op("print", {"In": X}, {**PRINT, "print_phase": phase, "is_forward": is_forward})
    assert bool(capsys.readouterr().err) is shown


def test_an_unknown_phase_is_refused() -> None:
    with pytest.raises(OperatorError, match="print_phase must be one of FORWARD, BACKWARD, BOTH, found 'sideways'"):
        run_op("print", {"In": X}, {**PRINT, "print_phase": "sideways"})


def test_delete_var_forgets_values() -> None:
    program, scope = Program(), Scope()
    block = program.global_block()
    block.create_var(name="x", persistable=True)
    block.append_op(type="delete_var", inputs={"X": ["x"]}, outputs={})
    scope.var("x").value = LoDTensor(X)
    Executor().run(program, {}, [], scope)
    assert scope.var("x").value is None
