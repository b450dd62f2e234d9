"""Losses between a student's and a teacher's values (Paddle 1.8.5 contrib/slim/distillation/distiller.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidtool.fluid import layers
from fluidtool.fluid.contrib.slim.graph import GraphWrapper
from fluidtool.fluid.framework import program_guard

__all__ = ["FSPDistiller", "L2Distiller", "SoftLabelDistiller"]


class _Distiller:
    """Appends a loss to a graph that has both networks, and adds it to the graph's result 'loss'."""

    distillation_loss_weight: float

    def distiller_loss(self, graph: GraphWrapper) -> GraphWrapper:
        """The graph, changed."""
        with program_guard(graph.program):
            weighted = self._loss(graph) * self.distillation_loss_weight
            loss = weighted + (graph.var(graph.out_nodes["loss"])._var if "loss" in graph.out_nodes else 0)
        graph.out_nodes["loss"] = loss.name
        graph.out_nodes[self._result()] = weighted.name
        return graph

    def _loss(self, graph: GraphWrapper) -> Any:
        raise NotImplementedError

    def _result(self) -> str:
        """What the loss is called among the graph's results."""
        raise NotImplementedError


class L2Distiller(_Distiller):
    """The mean square of the difference of two values of the same shape; they are named."""

    def __init__(self, student_feature_map: str, teacher_feature_map: str, distillation_loss_weight: float = 1) -> None:
        self.student_feature_map, self.teacher_feature_map = student_feature_map, teacher_feature_map
        self.distillation_loss_weight = distillation_loss_weight

    def _loss(self, graph: GraphWrapper) -> Any:
        student: Any = graph.var(self.student_feature_map)._var
        teacher: Any = graph.var(self.teacher_feature_map)._var
        return layers.reduce_mean(layers.square(student - teacher))

    def _result(self) -> str:
        return f"l2loss_{self.student_feature_map}_{self.teacher_feature_map}"


class FSPDistiller(_Distiller):
    """The mean square of the difference of FSP matrices, of pairs of values in both networks; they are named."""

    def __init__(
        self,
        student_pairs: Sequence[Sequence[str]],
        teacher_pairs: Sequence[Sequence[str]],
        distillation_loss_weight: float = 1,
    ) -> None:
        self.student_pairs, self.teacher_pairs = student_pairs, teacher_pairs
        self.distillation_loss_weight = distillation_loss_weight

    def _loss(self, graph: GraphWrapper) -> Any:
        def matrix(pair: Sequence[str]) -> Any:
            return layers.fsp_matrix(graph.var(pair[0])._var, graph.var(pair[1])._var)

        losses = [
            layers.reduce_mean(layers.square(matrix(student) - matrix(teacher)))
            for student, teacher in zip(self.student_pairs, self.teacher_pairs, strict=False)
        ]
        return layers.sum(losses)

    def _result(self) -> str:
        return "fsp_distillation_loss"


class SoftLabelDistiller(_Distiller):
    """The cross entropy of the softmax of two values, divided by a temperature each; they are named."""

    def __init__(
        self,
        student_feature_map: str | None = None,
        teacher_feature_map: str | None = None,
        student_temperature: float = 1.0,
        teacher_temperature: float = 1.0,
        distillation_loss_weight: float = 1,
    ) -> None:
        self.student_feature_map, self.teacher_feature_map = student_feature_map, teacher_feature_map
        self.student_temperature, self.teacher_temperature = student_temperature, teacher_temperature
        self.distillation_loss_weight = distillation_loss_weight

    def _loss(self, graph: GraphWrapper) -> Any:
        student: Any = graph.var(str(self.student_feature_map))._var
        teacher: Any = graph.var(str(self.teacher_feature_map))._var
        predicted = layers.softmax(student / self.student_temperature)
        wanted = layers.softmax(teacher / self.teacher_temperature)
        wanted.stop_gradient = True
        return layers.reduce_mean(layers.cross_entropy(predicted, wanted, soft_label=True))

    def _result(self) -> str:
        return f"soft_label_loss_{self.student_feature_map}_{self.teacher_feature_map}"
