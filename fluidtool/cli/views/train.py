"""What `train` shows: a bar while it trains, a line of JSON for each step, or a table of the epochs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fluidtool.cli.render import amount, number, show, table
from fluidtool.cli.terminal import Terminal
from fluidtool.training import Step
from fluidtool.workflows.train import Epoch
from fluidtool.workflows.training_log import log_line


class TrainingView(Terminal):
    """as_json: lines for every `every`th step of an epoch instead of the table."""

    def __init__(self, as_json: bool, every: int = 1) -> None:
        self.as_json, self.every = as_json, every

    def step(self, step: Step) -> str:
        """A line of JSON, if it is due; loss and speed for the bar."""
        if self.as_json and step.step % self.every == 0:
            sys.stdout.write(log_line(step))
            sys.stdout.flush()
        return f"loss {number(step.loss)}  {amount(round(step.examples / max(step.seconds, 1e-9)))} examples/s"

    def trained(self, epochs: Sequence[Epoch]) -> None:
        """A row for each epoch."""
        if self.as_json:
            return
        out = table("", ">epoch", ">steps", ">mean loss", ">last loss", ">examples/s")
        for epoch in epochs:
            rate = amount(round(epoch.examples_per_second))
            out.add(epoch.number, epoch.steps, number(epoch.mean_loss), number(epoch.last_loss), rate)
        show(out)
