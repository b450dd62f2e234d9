"""What the driver makes of the files that scripts save."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fluidtool import fluid
from tests.public import saved
from tests.public.__main__ import Row
from tests.public.runs import Run


def save(
    folder: Path, activation: str = "relu", size: int = 2, value: float = 1.0, filename: str | None = None
) -> None:
    """Save a model of one layer, whose weights are all the same."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        initial = fluid.initializer.Constant(value)
        out = fluid.layers.fc(
            fluid.data("x", [None, 3]), size, param_attr=fluid.ParamAttr("w", initial), act=activation
        )
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        fluid.io.save_inference_model(str(folder), ["x"], [out], exe, params_filename=filename)


def contents(folder: Path, write: Callable[[Path], None]) -> saved.Contents:
    """What was written below a folder."""
    folder.mkdir()
    before = saved.marks(folder)
    write(folder)
    return saved.written(folder, before)


def test_programs_and_parameters_that_were_written_are_found(tmp_path: Path) -> None:
    found = contents(tmp_path / "a", lambda folder: save(folder / "model"))
    assert sorted(found) == ["model/__model__", "model/fc_0.b_0", "model/w"]
    assert np.asarray(found["model/w"]["0"]).tolist() == [[1, 1]] * 3


def test_parameters_in_one_file_are_found(tmp_path: Path) -> None:
    found = contents(tmp_path / "a", lambda folder: save(folder, filename="weights"))
    assert [np.asarray(each).shape for each in found["weights"].values()] == [(2,), (3, 2)]


def test_other_files_and_those_of_before_are_not(tmp_path: Path) -> None:
    save(tmp_path / "old")
    before = saved.marks(tmp_path)
    (tmp_path / "log.txt").write_text("loss 1.0")
    (tmp_path / "empty").touch()
    assert not saved.written(tmp_path, before)


def test_what_is_written_again_is_found(tmp_path: Path) -> None:
    save(tmp_path)
    before = saved.marks(tmp_path)
    save(tmp_path, size=5)
    assert np.asarray(saved.written(tmp_path, before)["w"]["0"]).shape == (3, 5)


def test_the_same_files_are_not_apart(tmp_path: Path) -> None:
    one, other = (contents(tmp_path / name, save) for name in "ab")
    assert saved.apart(one, other) == saved.Apart(files=3)
    assert saved.apart(one, other).within(0)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"activation": "tanh"}, "__model__: only fluidtool has relu (fc_0.tmp_2)"),
        ({"size": 4}, "__model__: variable w is"),
        ({"filename": "weights"}, "only fluidtool saves fc_0.b_0"),
    ],
)
def test_what_differs_is_named(tmp_path: Path, change: dict[str, object], fault: str) -> None:
    ours = contents(tmp_path / "a", save)
    theirs = contents(tmp_path / "b", lambda folder: save(folder, **change))
    apart = saved.apart(ours, theirs)
    assert any(each.startswith(fault) for each in apart.faults)
    assert not apart.within(1)


def test_parameters_are_apart_by_their_largest_number(tmp_path: Path) -> None:
    ours = contents(tmp_path / "a", lambda folder: save(folder, value=1.0))
    theirs = contents(tmp_path / "b", lambda folder: save(folder, value=2.0))
    assert saved.apart(ours, theirs) == saved.Apart(3, (), 0.5)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([1.0, 2.0], [1.0, 4.0], 0.5),
        ([math.nan], [math.nan], 0.0),
        ([math.nan], [1.0], math.inf),
        ([math.inf], [-math.inf], math.inf),
        ([1.0], [1.0, 1.0], math.inf),
        ([], [], 0.0),
    ],
)
def test_how_far_arrays_are_apart(ours: list[float], theirs: list[float], expected: float) -> None:
    named = ({"file": {"w": np.array(values)}} for values in (ours, theirs))
    assert saved.apart(*named).largest == expected


def test_integers_and_floats_are_not_the_same() -> None:
    assert saved.apart({"file": {"w": np.ones(2)}}, {"file": {"w": np.ones(2, int)}}).largest == math.inf


def test_the_order_of_names_that_a_loop_reads_is_no_difference() -> None:
    def loop(names: list[str]) -> fluid.Program:
        program = fluid.Program()
        for name in names:
            program.global_block().create_var(name=name, shape=[1], dtype="float32")
        program.create_block()
        program.rollback()
        inputs, outputs = {"X": names, "Condition": ["a"]}, {"Out": names, "StepScopes": ["scopes"]}
        program.global_block().append_op(
            type="while", inputs=inputs, outputs=outputs, attrs={"sub_block": program.block(1)}
        )
        return program

    assert not list(saved.program_faults(loop(["a", "b"]), loop(["b", "a"])))
    assert list(saved.program_faults(loop(["a", "b"]), loop(["a", "c"])))


def recurring(**order: list[str]) -> fluid.Program:
    """A program with a `recurrent` whose names are in this order."""
    program = fluid.Program()
    for name in "abc":
        program.global_block().create_var(name=name, shape=[1], dtype="float32")
    program.create_block()
    program.rollback()
    inputs = {
        "inputs": order.get("inputs", ["c"]),
        "initial_states": [],
        "parameters": order.get("parameters", ["a", "b"]),
    }
    outputs = {"outputs": [], "step_scopes": ["scopes"]}
    program.global_block().append_op(
        type="recurrent",
        inputs=inputs,
        outputs=outputs,
        attrs={"sub_block": program.block(1), "ex_states": [], "states": []},
    )
    return program


def test_the_order_of_parameters_of_a_recurrent_operator_is_no_difference() -> None:
    assert not list(saved.program_faults(recurring(), recurring(parameters=["b", "a"])))
    assert list(saved.program_faults(recurring(), recurring(parameters=["b", "b"])))


def test_the_order_of_what_a_recurrent_operator_reads_step_by_step_is_a_difference() -> None:
    assert list(saved.program_faults(recurring(inputs=["a", "b"]), recurring(inputs=["b", "a"])))


def test_numbers_of_attributes_are_apart_as_parameters_are() -> None:
    def scaled(by: float) -> fluid.Program:
        program = fluid.Program()
        with fluid.program_guard(program, fluid.Program()), fluid.unique_name.guard():
            fluid.layers.scale(fluid.data("x", [None, 3], "float32"), by)
        return program

    assert saved.apart({"model": scaled(1.0)}, {"model": scaled(2.0)}) == saved.Apart(1, (), 0.5)


def test_a_script_that_only_saves_counts_and_passes(tmp_path: Path) -> None:
    same = contents(tmp_path / "a", save)
    other = contents(tmp_path / "b", lambda folder: save(folder, activation="tanh"))
    row = Row("export.py", Run("completed", [], same), Run("completed", [], same))
    assert row.counts
    assert row.passes
    assert "3 files, 0e+00" in str(row)
    assert not Row("export.py", Run("completed", [], other), Run("completed", [], same)).passes


def test_parameters_may_differ_as_far_as_rounding_moves_them(tmp_path: Path) -> None:
    runs = [Run("completed", [], {"file": {"w": np.array([value])}}) for value in (1.0, 1.001)]
    assert not Row("train.py", *runs).passes
    assert Row("train.py", *runs, saved_sensitivity=2e-4).passes
