"""Pruning of filters, with all that depends on them (Paddle 1.8.5 contrib/slim/prune/prune_strategy.py).

Parameters that meet in a sum must be pruned together, by naming them all in pruned_params: as in Paddle, they are not searched.
"""

from __future__ import annotations

import logging
import os
import pickle
import re
from collections.abc import Iterable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from fluidtool.errors import ProgramError
from fluidtool.fluid.contrib.slim.graph import GraphWrapper, OpWrapper, VarWrapper
from fluidtool.fluid.contrib.slim.strategy import Strategy
from fluidtool.fluid.log_helper import get_logger
from fluidtool.io import pickles
from fluidtool.records import dataclass
from fluidtool.runtime.scope import Scope

__all__ = ["PruneStrategy", "SensitivePruneStrategy", "UniformPruneStrategy"]

_logger = get_logger(__name__, logging.INFO, fmt="%(asctime)s-%(levelname)s: %(message)s")
OF_BATCH_NORM = ("Scale", "Variance", "Bias", "Mean")
NEAR = 1e-2  # of the wanted share of operations
NEAR_SENSITIVE = 0.015
START = 10.0  # of the coefficients of a curve, where there are too few points to fix them all


@dataclass(slots=True)
class Pruning:
    """One pass of pruning over a graph: what is changed where, what was pruned along axis 0 and 1.

    lazy: filters become zeros. only_graph: values stay as they are. shapes and values: what was before, if it is to be kept.
    """

    graph: GraphWrapper
    scope: Scope
    place: Any
    pruner: Any
    lazy: bool = False
    only_graph: bool = False
    shapes: dict[str, tuple[int, ...]] | None = None
    values: dict[str, Any] | None = None
    done: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))

    def prune(self, params: Iterable[str], ratios: Iterable[float]) -> None:
        """Take a share of the filters of each parameter, and what belongs to these filters elsewhere."""
        for name, ratio in zip(params, ratios, strict=True):
            if name not in self.done[0]:
                self._prune_filters(self.graph.var(name), ratio)

    def _prune_filters(self, param: VarWrapper, ratio: float) -> None:
        related = _reached(self.graph, param)
        taken = self.pruner.cal_pruned_idx(param.name(), self._value(param), ratio, axis=0)
        self._take(param, taken, 0)
        shifted: Any = taken
        for number, op in enumerate(related):
            if op.type() == "concat":
                before = _position(op, related[number - 1])
                shifted = taken + sum(var.shape()[1] for var in op.all_inputs()[:before])
            else:
                shifted = self._prune_operator(op, param, taken, shifted)

    def _prune_operator(self, op: OpWrapper, param: VarWrapper, taken: Any, shifted: Any) -> Any:
        """Prune the parameters of an operator that gets the filters' results; where they are in what comes after it.

        taken: the filters' numbers; shifted: their places after concatenations.
        """
        kind, parameters = op.type(), [var for var in op.all_inputs() if self.graph.is_parameter(var)]
        if kind == "conv2d" and param not in op.all_inputs():
            self._take_all(parameters, shifted, 1)
        elif kind == "depthwise_conv2d":
            self._take_all(parameters, shifted, 0)
        elif kind == "elementwise_add":
            self._take_all(parameters, taken, 0)
        elif kind == "batch_norm":
            self._take_all([op.inputs(slot)[0] for slot in OF_BATCH_NORM], shifted, 0)
        elif kind == "mul":
            image = next(var for var in op.all_inputs() if not self.graph.is_parameter(var))
            pixels = np.arange(image.shape()[2] * image.shape()[3])
            shifted = (np.asarray(shifted)[:, None] * len(pixels) + pixels).ravel()
            self._take_all(parameters, shifted, 0)
        return shifted

    def _take_all(self, params: Iterable[VarWrapper], slices: Any, axis: int) -> None:
        for param in params:
            self._take(param, slices, axis)

    def _take(self, param: VarWrapper, slices: Any, axis: int) -> None:
        """Take slices of a parameter and of the accumulators of its optimizer, once along each axis."""
        if param.name() in self.done[axis]:
            return
        for var in [param, *_accumulators(self.graph, param)]:
            name, value = var.name(), self._value(var)
            pruned = self.pruner.prune_tensor(value, slices, axis, lazy=self.lazy)
            if self.values is not None:
                self.values.setdefault(name, value.copy())
            if self.shapes is not None:
                self.shapes.setdefault(name, tuple(var.shape()))
            if not self.only_graph:
                self._tensor(var).set(pruned, self.place)
            shape = list(var.shape())
            shape[axis] = pruned.shape[axis]
            var.set_shape(shape)
            self.done[axis].append(name)

    def _value(self, var: VarWrapper) -> Any:
        return np.array(self._tensor(var))

    def _tensor(self, var: VarWrapper) -> Any:
        held = self.scope.find_var(var.name())
        if held is None:
            raise ProgramError(f"{var.name()} has no value in the scope: run the startup program first")
        return held.get_tensor()


def _reached(graph: GraphWrapper, param: VarWrapper) -> list[OpWrapper]:
    """The operators that a parameter's filters reach, up to the next convolution or `mul`: depth first, as Paddle finds them."""
    ops = graph.ops()
    forward = [op for op in ops if not op.is_bwd_op()]
    readers: dict[str, list[OpWrapper]] = {}
    for op in forward:
        for name in dict.fromkeys(op._op.input_arg_names):
            readers.setdefault(name, []).append(op)
    places = {id(op._op): place for place, op in enumerate(ops)}
    stack, path, seen = list(readers.get(param.name(), ())), list[OpWrapper](), set[int]()
    while stack:
        top = stack[-1]
        if id(top._op) not in seen:
            seen.add(id(top._op))
            path.append(top)
        ends = top.type() == "mul" or (top.type() == "conv2d" and param.name() not in top._op.input_arg_names)
        following = [] if ends else [op for name in top._op.output_arg_names for op in readers.get(name, ())]
        following = [op for op in following if id(op._op) not in seen]
        if following:
            stack += sorted(following, key=lambda op: places[id(op._op)])
        else:
            stack.pop()
    return path


def _position(concat: OpWrapper, before: OpWrapper) -> int:
    """Which input of a concatenation another operator writes."""
    names = concat._op.input_arg_names
    return [names.index(var.name()) for var in before.all_outputs() if var.name() in names][-1]


def _accumulators(graph: GraphWrapper, param: VarWrapper) -> list[VarWrapper]:
    """What optimizers keep for a parameter."""
    updates = [op for op in param.outputs() if op.is_opt_op()]
    return [var for op in updates for var in op.all_outputs() if graph.is_persistable(var) and var != param]


class PruneStrategy(Strategy):
    """The base of those that prune. pruned_params: a regular expression that names of parameters begin with.

    target_ratio: the share of all operations to get rid of; metric_name: a result of the evaluation.
    """

    def __init__(
        self,
        pruner: Any = None,
        start_epoch: int = 0,
        end_epoch: int = 0,
        target_ratio: float = 0.5,
        metric_name: str | None = None,
        pruned_params: str = "conv.*_weights",
    ) -> None:
        super().__init__(start_epoch, end_epoch)
        self.pruner, self.target_ratio, self.metric_name = pruner, target_ratio, metric_name
        self.pruned_params = pruned_params
        self.pruned_list: Sequence[list[str]] = []

    def _eval_graph(self, context: Any, sampled_rate: float | None = None, cached_id: int = 0) -> float:
        """The metric of the model as it is."""
        results, names = context.run_eval_graph(sampled_rate, cached_id)
        return float(np.mean(results[list(names).index(self.metric_name)]))

    def _named(self, graph: GraphWrapper) -> list[str]:
        return [param.name() for param in graph.all_parameters() if re.match(self.pruned_params, param.name())]

    def _prune_parameters(
        self,
        graph: GraphWrapper,
        scope: Scope,
        params: Iterable[str],
        ratios: Iterable[float],
        place: Any,
        lazy: bool = False,
        only_graph: bool = False,
        param_backup: dict[str, Any] | None = None,
        param_shape_backup: dict[str, tuple[int, ...]] | None = None,
    ) -> None:
        """Take a share of the filters of each parameter, in a graph and, unless only_graph, in a scope.

        The backups get what was before, by name.
        """
        pruning = Pruning(graph, scope, place, self.pruner, lazy, only_graph, param_shape_backup, param_backup)
        self.pruned_list = pruning.done
        pruning.prune(params, ratios)

    def _prune_graph(self, graph: GraphWrapper, target_graph: GraphWrapper) -> None:
        """Declare the parameters of a graph as another one has them."""
        for param in target_graph.all_parameters():
            graph.var(param.name()).set_shape(param.shape())

    def _share_taken(self, context: Any, params: Sequence[str], ratios: Sequence[float], flops: float) -> float:
        """The share of all operations that pruning would take; the graph is as before afterwards."""
        shapes: dict[str, tuple[int, ...]] = {}
        graph = context.eval_graph
        self._prune_parameters(
            graph, context.scope, params, ratios, context.place, only_graph=True, param_shape_backup=shapes
        )
        share = 1 - graph.flops() / flops
        for name, shape in shapes.items():
            graph.var(name).set_shape(shape)
        return float(share)

    def _uniform_ratio(self, context: Any, params: Sequence[str], target: float) -> float:
        """The ratio for all parameters that takes a share of all operations, by halving."""
        low, high, flops = 0.0, 1.0, context.eval_graph.flops()
        ratio = 0.5
        while low < high:
            ratio = (high + low) / 2
            if ratio in (low, high):
                break
            share = self._share_taken(context, params, [ratio] * len(params), flops)
            if abs(share - target) < NEAR:
                break
            low, high = (low, ratio) if share > target else (ratio, high)
        return ratio

    def _follow(self, context: Any) -> None:
        """Let the graph of the evaluation be as that which trains, and depthwise convolutions have the groups that fit."""
        flops, size = context.eval_graph.flops(), context.eval_graph.numel_params()
        self._prune_graph(context.eval_graph, context.optimize_graph)
        context.optimize_graph.update_groups_of_conv()
        context.eval_graph.update_groups_of_conv()
        _logger.info("Pruned size: %.2f", 1 - context.eval_graph.numel_params() / size)
        _logger.info("Pruned flops: %.2f", 1 - context.eval_graph.flops() / flops)


class UniformPruneStrategy(PruneStrategy):
    """Takes the same share of the filters of all parameters."""

    params: list[str]
    ratios: list[float]

    def _get_best_ratios(self, context: Any) -> tuple[list[str], list[float]]:
        params = self._named(context.eval_graph)
        ratios = [self._uniform_ratio(context, params, self.target_ratio)] * len(params)
        _logger.info("Get ratios: %s", [round(ratio, 2) for ratio in ratios])
        return params, ratios

    def restore_from_checkpoint(self, context: Any) -> None:
        """Prune as it was pruned before the checkpoint."""
        self._prune(context, self.params, self.ratios)

    def _prune(self, context: Any, params: Sequence[str], ratios: Sequence[float]) -> None:
        self._prune_parameters(context.optimize_graph, context.scope, params, ratios, context.place)
        self._follow(context)

    def on_epoch_begin(self, context: Any) -> None:
        """Prune in the first epoch."""
        if context.epoch_id == self.start_epoch:
            self.params, self.ratios = self._get_best_ratios(context)
            self._prune(context, self.params, self.ratios)


class SensitivePruneStrategy(PruneStrategy):
    """Takes more of those parameters that the metric depends on least.

    How the metric falls is measured for each parameter, delta_rate further each time, and kept in sensitivities_file: {name:
    {'pruned_percent': [], 'loss': [], 'size': filters}}. A curve of third degree through it says how much to take.
    num_steps: in how many steps the target is reached. eval_rate: the share of the evaluation's data that is used.
    """

    def __init__(
        self,
        pruner: Any = None,
        start_epoch: int = 0,
        end_epoch: int = 0,
        delta_rate: float = 0.20,
        target_ratio: float = 0.5,
        metric_name: str = "top1_acc",
        pruned_params: str = "conv.*_weights",
        sensitivities_file: str = "./sensitivities.data",
        sensitivities: dict[str, Any] | None = None,
        num_steps: int = 1,
        eval_rate: float | None = None,
    ) -> None:
        super().__init__(pruner, start_epoch, end_epoch, target_ratio, metric_name, pruned_params)
        self.delta_rate, self.sensitivities = delta_rate, sensitivities or {}
        self.sensitivities_file, self.num_steps, self.eval_rate = sensitivities_file, num_steps, eval_rate
        self.pruning_step = 1 - pow(1 - target_ratio, 1.0 / num_steps)

    def _save_sensitivities(self, sensitivities: dict[str, Any], sensitivities_file: str) -> None:
        Path(sensitivities_file).write_bytes(pickle.dumps(sensitivities, 2))

    def _load_sensitivities(self, sensitivities_file: str) -> dict[str, Any]:
        if not (sensitivities_file and os.path.exists(sensitivities_file)):
            return {}
        found: dict[str, Any] = pickles.load(Path(sensitivities_file).read_bytes(), sensitivities_file)
        for each in found.values():
            each["pruned_percent"] = [round(percent, 2) for percent in each["pruned_percent"]]
        return found

    def _compute_sensitivities(self, context: Any) -> dict[str, Any]:
        """Measure what is not in the file yet; it is written after each measurement."""
        cached_id = int(np.random.randint(1000))
        ending = "" if self.start_epoch == context.epoch_id else f".epoch{context.epoch_id}"
        file = f"{self.sensitivities_file}{ending}"
        sensitivities = self._load_sensitivities(file)
        for name in self._named(context.eval_graph):
            size = context.eval_graph.var(name).shape()[0]
            sensitivities.setdefault(name, {"pruned_percent": [], "loss": [], "size": size})
        metric: float | None = None
        for name in list(sensitivities):
            ratio = self.delta_rate
            while ratio < 1:
                ratio = round(ratio, 2)
                if ratio not in sensitivities[name]["pruned_percent"]:
                    if metric is None:
                        metric = self._eval_graph(context, self.eval_rate, cached_id)
                    loss = metric - self._metric_without(context, name, ratio, cached_id)
                    _logger.info("pruned param: %s; %s; loss=%s", name, ratio, loss)
                    self._note(sensitivities, ratio, loss)
                    self._save_sensitivities(sensitivities, file)
                ratio += self.delta_rate
        return sensitivities

    def _metric_without(self, context: Any, name: str, ratio: float, cached_id: int) -> float:
        """The metric with a share of a parameter's filters set to zero; they are as before afterwards."""
        backup: dict[str, Any] = {}
        self._prune_parameters(
            context.eval_graph, context.scope, [name], [ratio], context.place, lazy=True, param_backup=backup
        )
        metric = self._eval_graph(context, self.eval_rate, cached_id)
        _restore(context, backup)
        return metric

    def _note(self, sensitivities: dict[str, Any], ratio: float, loss: float) -> None:
        for name in self.pruned_list[0]:
            if re.match(self.pruned_params, name):
                row = sensitivities.setdefault(name, {"pruned_percent": [], "loss": []})
                row["pruned_percent"].append(ratio)
                row["loss"].append(loss)

    def _get_best_ratios(
        self, context: Any, sensitivities: dict[str, Any], target_ratio: float
    ) -> tuple[list[str], list[float]]:
        """What to take of each parameter so that all lose as much of the metric, and the target is met, by halving."""
        curves = {name: _curve(each["pruned_percent"], each["loss"]) for name, each in sensitivities.items()}
        low, high = 0.0, max([0.0, *(loss for each in sensitivities.values() for loss in each["loss"])])
        names, ratios = list(sensitivities), list[float]()
        flops = context.eval_graph.flops()
        while low < high:
            loss = (high + low) / 2
            if loss in (low, high):
                break
            ratios = _ratios(curves, loss)
            share = self._share_taken(context, names, ratios, flops)
            _logger.info("acc loss=%.4f: pruned ratios=%s, pruned flops: %.4f", loss, np.round(ratios, 3), share)
            if abs(share - target_ratio) < NEAR_SENSITIVE:
                break
            low, high = (low, loss) if share > target_ratio else (loss, high)
        return names, ratios

    def _current_pruning_target(self, context: Any) -> float | None:
        """The share to take now: in the first epoch, and once training has converged again, num_steps times in all."""
        if self.num_steps <= 0:
            return None
        if self.start_epoch == context.epoch_id or context.eval_converged(self.metric_name, 0.005):
            self.num_steps -= 1
            return float(self.pruning_step)
        return None

    def on_epoch_begin(self, context: Any) -> None:
        """Measure and prune, where it is time."""
        ratio = self._current_pruning_target(context)
        if ratio is None:
            return
        params, ratios = self._get_best_ratios(context, self._compute_sensitivities(context), ratio)
        self._prune_parameters(context.optimize_graph, context.scope, params, ratios, context.place)
        self._follow(context)
        context.optimize_graph.compile()
        context.eval_graph.compile(for_parallel=False, for_test=True)
        _logger.info("Metric after pruning: %.2f", self._eval_graph(context))


def _restore(context: Any, backup: dict[str, Any]) -> None:
    """Put values back into the scope."""
    for name, value in backup.items():
        context.scope.find_var(name).get_tensor().set(value, context.place)


def _curve(percents: Sequence[float], losses: Sequence[float]) -> Any:
    """The coefficients of the polynomial of third degree nearest to the points and, five times, to the origin."""
    x, y = np.array([0.0] * 5 + list(percents)), np.array([0.0] * 5 + list(losses))
    powers = np.vander(x, 4)
    start = np.full(4, START)
    return start + np.linalg.lstsq(powers, y - powers @ start, rcond=None)[0]


def _ratios(curves: dict[str, Any], loss: float) -> list[float]:
    """Where each curve reaches the loss, between 0 and 1; where it does not, the ratio of the one before."""
    ratios: list[float] = []
    for name, curve in curves.items():
        roots = np.roots(curve - np.array([0, 0, 0, loss]))
        found = [float(root.real) for root in roots if np.isreal(root) and 0 < root.real < 1]
        if not found and not ratios:
            raise ProgramError(
                f"the metric does not fall by {loss:.4f} with any share of {name}: its sensitivities say nothing of it; "
                "measure it with a smaller delta_rate, or more data"
            )
        ratios.append(found[-1] if found else ratios[-1])
    return ratios
