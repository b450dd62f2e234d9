"""Trainers of elastic jobs: they join when they start, may be left out and join again, and leave when they are asked to end.

A round's mini-batch is that of all trainers that the job is made for; those who take part in the round share it. So the job
learns what one process learns, no matter which trainers take part.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from fluidtool.distribute.rpc.handler import LeftOut
from fluidtool.errors import Hint, UsageError
from fluidtool.io.checkpoints import set_random_states
from fluidtool.runtime.persistent import values_of
from fluidtool.training.checkpoint import CheckpointPlan, Position, check_run
from fluidtool.training.examples import Examples, Indices
from fluidtool.training.loop import Step
from fluidtool.training.roles import TALKS, RoleTraining


class ElasticTraining(RoleTraining):
    """One trainer of an elastic job. rounds: the members of the last round that it took part in; has_left: it was asked to end."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.rounds: list[int] = []
        self.has_left = False
        self._is_asked_to_end = False
        self._talks = next((op for op in self.programs.main.global_block().ops if op.type in TALKS), None)
        self._waits = not self._is_asynchronous()
        if self._waits:
            self._check_divisible()

    def _check_divisible(self) -> None:
        """Raise UsageError for data that cannot be shared by any number of trainers."""
        if not isinstance(self.data, Examples):
            raise UsageError(
                "the data are ready mini-batches, which cannot be shared by a number of trainers that changes",
                hint="give single examples",
            )
        if self.programs.batch_size is not None:
            raise UsageError(
                f"the program is declared for batches of {self.programs.batch_size}, but the share of a trainer in an elastic "
                "job changes with the number of trainers",
                hint=Hint("declare the batch as -1", "declare the batch as -1, or launch it without --elastic"),
            )

    # ------------------------------------------------------------ where it starts
    def initialize(self, path: Path | None = None) -> list[str]:
        """Join, and begin with the parameters of the round before; what servers do not keep comes from the last checkpoint."""
        if not self._waits:
            return super().initialize(path)
        number, loaded = self._begin(path)
        found = None if self.schedule is None else self.schedule.resume_by(number)
        if found is not None:
            check_run(f"checkpoint {found.step} of {self.role.name}", found.state.get("run", {}), self._settings())
            for name, value in found.values.items():
                self._put(name, value)
            set_random_states(self._generators(), found.state["random"])
        self.position = self._after(number)
        return loaded

    def _begin(self, path: Path | None) -> tuple[int, list[str]]:
        """Join, and fetch what the round before has left: its number, and the names loaded. Again where that takes too long."""
        assert self._talks is not None
        while True:
            try:
                number = self.executor.servers.join(self._talks, self.role.servers)
                return number, self._initialize_here(path)
            except LeftOut:
                continue

    def _rejoin(self) -> None:
        """Take part again, with the parameters that the others have by then."""
        kept = values_of(self.scope, self._local, "a trainer that joins again")
        number, _ = self._begin(None)
        for name, value in kept.items():
            self._put(name, value)
        self.position = self._after(number)

    def _after(self, number: int) -> Position | None:
        """The position after so many rounds."""
        return Position(*divmod(number - 1, self.steps_per_epoch)) if number else None

    # ------------------------------------------------------------ steps
    def run(self, epochs: int, checkpoints: CheckpointPlan | None = None) -> Iterator[Step]:
        """The steps from where the others are up to the end of epoch number `epochs`, or until this process is asked to end."""
        while True:
            try:
                for step in super().run(epochs, checkpoints):
                    yield step
                    if self.has_left or (self._is_asked_to_end and self._leaves_now()):
                        self.executor.servers.drop()
                        return
                if self._waits and not self.rounds:
                    self.rounds = self.executor.servers.roll()  # it came after the last step
            except LeftOut:
                if self._is_asked_to_end:
                    self.has_left = True
                    self.executor.servers.drop()
                    return
                self._rejoin()
            else:
                return

    def _leaves_now(self) -> bool:
        """Say that this trainer leaves; whether it need not make another step, as the others count on it."""
        self.has_left = True
        return not self.executor.servers.leave()

    def _share(self, batch: Indices) -> Indices:
        """This trainer's part, of those who take part in this round."""
        if not self._waits:
            return batch
        self.rounds = self.executor.servers.roll()
        size = len(batch) // len(self.rounds)
        place = self.rounds.index(self.role.member.index)
        return batch[place * size : (place + 1) * size]

    @property
    def writes_results(self) -> bool:
        """The first of those who took part in the last round; of an asynchronous job the first of all."""
        if self.has_left:
            return False
        return (self.rounds[0] if self.rounds else 0) == self.role.member.index

    @contextmanager
    def until_asked(self) -> Iterator[None]:
        """Within the block, SIGTERM lets the step end that is under way; then this trainer leaves."""

        def ask(number: int, frame: FrameType | None) -> None:
            self._is_asked_to_end = True

        is_main = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGTERM, ask) if is_main else None
        try:
            yield
        finally:
            if is_main:
                signal.signal(signal.SIGTERM, before)
