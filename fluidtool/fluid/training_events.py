"""The events that a Trainer's handler receives, and when it saves checkpoints (Paddle 0.14 trainer.py)."""

from __future__ import annotations

import os
from typing import Any

from fluidtool.errors import UsageError


class BeginEpochEvent:
    """An epoch begins. `epoch`: its number from 0."""

    def __init__(self, epoch_id: int) -> None:
        self.epoch = epoch_id


class EndEpochEvent:
    """An epoch has ended. `epoch`: its number from 0."""

    def __init__(self, epoch_id: int) -> None:
        self.epoch = epoch_id


class BeginStepEvent:
    """A step begins. A handler that sets `fetch_metrics` to False skips the fetches of this step."""

    def __init__(self, epoch_id: int, step_id: int) -> None:
        self.epoch, self.step = epoch_id, step_id
        self.fetch_metrics = True


class EndStepEvent:
    """A step has ended. `metrics`: the values of train_func's results, as arrays; [] if they were not fetched."""

    def __init__(self, epoch_id: int, step_id: int, metrics: list[Any]) -> None:
        self.epoch, self.step, self.metrics = epoch_id, step_id, metrics


class CheckpointConfig:
    """Where checkpoints are saved (default: the current directory), how many are kept, and after which epochs and steps.

    Raises UsageError for numbers below 1.
    """

    def __init__(
        self,
        checkpoint_dir: str | None = None,
        max_num_checkpoints: int = 3,
        epoch_interval: int = 1,
        step_interval: int = 10,
    ) -> None:
        numbers = {
            "max_num_checkpoints": max_num_checkpoints,
            "epoch_interval": epoch_interval,
            "step_interval": step_interval,
        }
        for name, number in numbers.items():
            if number < 1:
                raise UsageError(f"{name} of CheckpointConfig must be at least 1, found {number}")
        self.checkpoint_dir = os.getcwd() if checkpoint_dir is None else checkpoint_dir
        self.max_num_checkpoints = max_num_checkpoints
        self.epoch_interval, self.step_interval = epoch_interval, step_interval
        self.epoch_id, self.step_id = 0, 0
        self.load_serial: int | None = None
        self.pserver_id: int | None = None
        self.lookup_table_name: str | None = None

    def is_due(self, epoch_id: int, step_id: int) -> bool:
        """Whether a checkpoint follows this step."""
        return epoch_id % self.epoch_interval == 0 and step_id % self.step_interval == 0

    def holds(self, epoch_id: int, step_id: int) -> bool:
        """Whether the checkpoint that training resumes from includes this step."""
        return self.load_serial is not None and epoch_id == self.epoch_id and step_id <= self.step_id
