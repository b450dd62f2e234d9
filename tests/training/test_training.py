"""`fluidtool.training` from Python: finding the loss, what checkpoints hold, going on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import ProgramError, UninitializedError, UsageError
from fluidtool.ir import Program
from fluidtool.runtime import Scope
from fluidtool.runtime.persistent import values_of
from fluidtool.tensor import LoDTensor, LoDTensorArray, SelectedRows
from fluidtool.training import CheckpointPlan, Examples, Order, Position, Training, TrainingPrograms, find_loss
from fluidtool.training.checkpoint import load_checkpoint, save_checkpoint

X = np.random.default_rng(1).standard_normal((6, 2)).astype("float32")


def programs(losses: int = 1) -> TrainingPrograms:
    main, startup = Program(), Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.layers.data("x", [2])
        for _ in range(losses):
            loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(fluid.layers.dropout(x, 0.5), 1)))
            fluid.optimizer.Adam(0.01).minimize(loss)
    return TrainingPrograms(main, startup, ("x",))


def training(**options: Any) -> Training:
    found = programs()
    made = Training(found, Examples({"x": LoDTensor(X)}), Order(2), find_loss(found.main), **options)
    made.initialize()
    return made


def parameters(made: Training) -> dict[str, bytes]:
    return {
        var.name: np.asarray(made.scope.find_var(var.name).value).tobytes()  # type: ignore[union-attr]
        for var in made.programs.main.list_vars()
        if var.persistable
    }


# ---------------------------------------------------------------- the loss
def test_the_loss_is_where_the_backward_pass_starts() -> None:
    assert find_loss(programs().main) == "mean_0.tmp_0"


def test_programs_of_old_versions_have_no_roles() -> None:
    main = programs().main
    for op in main.global_block().ops:
        op.remove_attr("op_role")
    assert find_loss(main) == "mean_0.tmp_0"


def test_two_losses_must_be_told_apart() -> None:
    with pytest.raises(ProgramError, match=r"has 2 losses \(mean_0.tmp_0, mean_1.tmp_0\)"):
        find_loss(programs(2).main)


def test_a_program_without_backward_pass_has_no_loss() -> None:
    with pytest.raises(ProgramError, match="does not say what its loss is"):
        find_loss(Program())


# ---------------------------------------------------------------- steps and checkpoints
def test_steps_are_numbered_and_timed() -> None:
    steps = list(training().run(2))
    assert [(step.epoch, step.step, step.examples) for step in steps] == [(e, s, 2) for e in range(2) for s in range(3)]
    assert all(step.seconds > 0 for step in steps)


def test_training_goes_on_where_it_was_left() -> None:
    unbroken, broken = training(), training()
    list(unbroken.run(2))
    for step in broken.run(2):
        if (step.epoch, step.step) == (0, 1):
            break  # before the step counts as done
    assert broken.position == Position(0, 0)


def test_a_checkpoint_gives_the_bits_of_an_unbroken_run(tmp_path: Path) -> None:
    unbroken, first, second = training(), training(), training()
    list(unbroken.run(2))
    for step in first.run(2, CheckpointPlan(tmp_path, 1, "steps")):
        if (step.epoch, step.step) == (1, 1):
            break
    assert second.resume(tmp_path) == Position(1, 0)
    list(second.run(2))
    assert parameters(second) == parameters(unbroken)


def test_there_is_nothing_to_go_on_from(tmp_path: Path) -> None:
    assert training().resume(tmp_path) is None


def test_checkpoints_need_sensible_numbers(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must be at least 1"):
        CheckpointPlan(tmp_path, 0)


@pytest.mark.parametrize(
    ("plan", "due"),
    [((2, "steps"), [(0, 1), (1, 0), (1, 2)]), ((1, "epochs"), [(0, 2), (1, 2)]), ((2, "epochs"), [(1, 2)])],
)
def test_when_checkpoints_are_due(tmp_path: Path, plan: Any, due: list[tuple[int, int]]) -> None:
    made = CheckpointPlan(tmp_path, *plan)
    assert [(e, s) for e in range(2) for s in range(3) if made.is_due(Position(e, s), 3)] == due


def test_sparse_values_are_kept(tmp_path: Path) -> None:
    program, scope = Program(), Scope()
    kind = fluid.core.VarDesc.VarType.SELECTED_ROWS
    program.global_block().create_var(name="s", persistable=True, type=kind)
    scope.var("s").value = SelectedRows([4, 1], 7, np.ones((2, 3), "float32"))
    variables = list(program.list_vars())
    save_checkpoint(CheckpointPlan(tmp_path), Position(0, 0), values_of(scope, variables, "it"), [], {})
    found = load_checkpoint(tmp_path, variables, [], {})
    assert found is not None
    value = found[1]["s"]
    assert isinstance(value, SelectedRows) and (value.rows(), value.height()) == ([4, 1], 7)


def test_who_goes_on_from_a_checkpoint_removes_what_its_save_could_not(tmp_path: Path) -> None:
    """A disk may refuse to remove the folder that the files were written in; the run that goes on saves elsewhere."""
    save_checkpoint(CheckpointPlan(tmp_path), Position(0, 0), {}, [], {})
    left = [
        tmp_path / "checkpoint_0" / name / ".files.0123456789abcdef.fluidtool.tmp"
        for name in ("trainer_0", "trainer_0/device_1", "__model__")
    ]
    for folder in left:
        folder.mkdir(parents=True)
    assert load_checkpoint(tmp_path, [], [], {}) is not None
    assert not any(folder.exists() for folder in left)


def test_values_that_no_file_holds_are_refused() -> None:
    program, scope = Program(), Scope()
    program.global_block().create_var(name="a", persistable=True)
    scope.var("a").value = LoDTensorArray()
    with pytest.raises(UninitializedError, match="a checkpoint cannot hold a: it is a LoDTensorArray"):
        values_of(scope, list(program.list_vars()), "a checkpoint")


def test_variables_without_a_value_are_left_out() -> None:
    program = Program()
    program.global_block().create_var(name="a", persistable=True)
    assert values_of(Scope(), list(program.list_vars()), "a checkpoint") == {}
