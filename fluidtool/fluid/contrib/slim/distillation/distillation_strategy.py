"""Training of a student beside its teacher (Paddle 1.8.5 contrib/slim/distillation/distillation_strategy.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidtool.fluid.contrib.slim.graph.graph_wrapper import minimize
from fluidtool.fluid.contrib.slim.strategy import Strategy
from fluidtool.fluid.executor import Executor
from fluidtool.ir import Program

__all__ = ["DistillationStrategy"]

KEPT = "distillation_backup_optimize_graph"


class DistillationStrategy(Strategy):
    """From start_epoch on trains the student with the losses of distillers, up to the epoch before end_epoch."""

    def __init__(self, distillers: Sequence[Any] | None = None, start_epoch: int = 0, end_epoch: int = 0) -> None:
        super().__init__(start_epoch, end_epoch)
        self.distillers = distillers

    def restore_from_checkpoint(self, context: Any) -> None:
        """Continue with the teacher if the checkpoint was made in between."""
        if self.start_epoch < context.epoch_id < self.end_epoch:
            self._create_distillation_graph(context)

    def on_epoch_begin(self, context: Any) -> None:
        """Bring the teacher in."""
        if self.start_epoch == context.epoch_id:
            self._create_distillation_graph(context)

    def _create_distillation_graph(self, context: Any) -> None:
        """Train a graph of both networks with the losses between them; the one before is kept for later."""
        teacher = context.teacher_graphs[0]
        for var in teacher.program.list_vars():
            var.stop_gradient = True
        graph = context.train_graph.clone()
        graph.merge(teacher)
        if "loss" in graph.out_nodes:
            graph.out_nodes["student_loss"] = graph.out_nodes["loss"]
        for distiller in self.distillers or ():
            graph = distiller.distiller_loss(graph)
        startup = Program()
        context.distiller_optimizer._name = "distillation_optimizer"
        minimize(context.distiller_optimizer, graph, graph.out_nodes["loss"], startup)
        Executor(context.place).run(startup, scope=context.scope)
        context.put(KEPT, context.optimize_graph)
        context.optimize_graph = graph

    def on_epoch_end(self, context: Any) -> None:
        """Go on without the teacher."""
        if context.epoch_id == self.end_epoch - 1:
            context.optimize_graph = context.get(KEPT)
