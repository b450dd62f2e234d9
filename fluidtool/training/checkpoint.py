"""Checkpoints of a training: all that persists, where it stands, its random state, and what decides its data order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fluidtool.errors import ModelNotFoundError, ParameterFileError, UnreadableError, UsageError
from fluidtool.io import checkpoints
from fluidtool.io.layout import open_model, open_parameters
from fluidtool.io.parameter_path import parameter_path
from fluidtool.io.parameters import Value, check_declared, open_separate
from fluidtool.ir import Variable
from fluidtool.records import dataclass

POSITION = ["epoch_id", "step_id"]
LONGEST_NUMBER = 18  # digits of a step
TRAINER = 0


@dataclass(frozen=True, slots=True)
class Position:
    """The last step that is done: its epoch, and its number in the epoch, both from 0."""

    epoch: int
    step: int


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """Where checkpoints go, how often, and how many are kept. Raises UsageError for numbers below 1."""

    folder: Path
    every: int = 1
    unit: Literal["steps", "epochs"] = "epochs"
    keep: int = 3

    def __post_init__(self) -> None:
        if min(self.every, self.keep) < 1:
            raise UsageError(f"checkpoints every {self.every} {self.unit}, {self.keep} kept: both must be at least 1")

    def is_due(self, position: Position, steps_per_epoch: int) -> bool:
        """Whether a checkpoint follows this step."""
        if self.unit == "steps":
            return (position.epoch * steps_per_epoch + position.step + 1) % self.every == 0
        return position.step == steps_per_epoch - 1 and (position.epoch + 1) % self.every == 0


def save_checkpoint(
    plan: CheckpointPlan,
    position: Position,
    values: Mapping[str, Value],
    generators: Sequence[np.random.Generator],
    run: Mapping[str, Any],
) -> int:
    """Write a checkpoint, remove those that are too many, and return its serial.

    The mark of completeness comes last, so what a kill leaves behind does not count.
    """
    serial = checkpoints.latest_serial(plan.folder) + 1
    state = {"random": checkpoints.random_states(generators), "variables": sorted(values), "run": dict(run)}
    where = dict(zip(POSITION, (position.epoch, position.step), strict=True))
    checkpoints.save_trainer_args(plan.folder, serial, TRAINER, where, state)
    checkpoints.save(plan.folder, values, serial)
    checkpoints.rotate(plan.folder, plan.keep)
    return serial


def load_checkpoint(
    folder: Path, variables: Sequence[Variable], generators: Sequence[np.random.Generator], run: Mapping[str, Any]
) -> tuple[Position, Mapping[str, Value]] | None:
    """The latest checkpoint of a folder, None when there is none; the generators go on from where they stood then.

    Raises UsageError when it is from a run with other settings, ParameterFileError, UnreadableError.
    """
    serial = checkpoints.latest_serial(folder)
    if serial < 0:
        return None
    checkpoints.tidy_checkpoint(folder, serial)  # a run that goes on saves into others
    state = checkpoints.load_trainer_state(folder, serial, TRAINER)
    _check_state(state, f"checkpoint {serial} in {folder}")
    check_run(f"checkpoint {serial} in {folder}", state.get("run", {}), run)
    epoch, step = (_whole(text, folder) for text in checkpoints.load_trainer_args(folder, serial, TRAINER, POSITION))
    model = checkpoints.checkpoint_dir(folder, serial) / checkpoints.MODEL_DIR
    names = set(state.get("variables", [var.name for var in variables]))
    values = open_separate(model, [var for var in variables if var.name in names])
    if "random" in state:
        checkpoints.set_random_states(generators, state["random"])
    return Position(epoch, step), values


def _check_state(state: Mapping[str, Any], what: str) -> None:
    names = state.get("variables", [])
    if not isinstance(state.get("run", {}), dict) or not isinstance(names, list):
        raise UnreadableError(f"{what} has a state that no training run saves; resume from another checkpoint")
    if not all(isinstance(name, str) for name in names):
        raise UnreadableError(f"{what} has names of variables that are not text; resume from another checkpoint")


def check_run(what: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise UsageError where a checkpoint, `what`, is from a run with other settings than now."""
    for key, value in now.items():
        if key in before and before[key] != value:
            raise UsageError(
                f"{what} is from a training run with another {key.replace('_', ' ')} ({before[key]}, now {value}), "
                f"so this run cannot resume from it; give the same settings and data, or start over in another folder"
            )


def _whole(text: str, folder: Path) -> int:
    if not text.isdecimal() or len(text) > LONGEST_NUMBER:
        raise UnreadableError(f"a checkpoint in {folder} gives its position as {text[:40]!r}, which is not a number")
    return int(text)


# ---------------------------------------------------------------- values
def initial_values(path: Path, variables: Sequence[Variable]) -> Mapping[str, Value]:
    """What a path has for the persistable variables of a program, which may be less than all.

    path: a folder with a file for each variable, a model's folder, a combined file or a pickled state. Raises
    ParameterFileError (also when there is nothing for the program at all).
    """
    if not path.is_dir():
        return open_parameters(path, variables, None)[0]
    present = [var for var in variables if parameter_path(path, var.name).is_file()]
    if present:
        return open_separate(path, present)
    by_name = {var.name: var for var in variables}
    try:
        store = open_model(path).parameters
    except ModelNotFoundError as error:
        raise ParameterFileError(f"{path} has no parameters of the program, and no model: {error}") from error
    values = {name: store[name] for name in store if name in by_name}
    if not values:
        raise ParameterFileError(
            f"{path} has no value for any variable of the program; does it belong to another program?"
        )
    for name in values:
        info = store.info(name)
        check_declared(by_name[name], info.shape, info.data_type, info.source)
    return values
