"""Pruning with shares that a controller searches (Paddle 1.8.5 contrib/slim/prune/auto_prune_strategy.py).

In Paddle the last epoch fails, since it calls a method that is not there; here the best shares are pruned then.
"""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import Any

from fluidtool.fluid.contrib.slim.prune.prune_strategy import PruneStrategy, _restore

__all__ = ["AutoPruneStrategy"]

STEP = 0.01  # of a share, for each token


class AutoPruneStrategy(PruneStrategy):
    """Searches shares, one token of 0.01 each, that take between min_ratio and max_ratio of all operations.

    retrain_epoch: the epochs of training for each try, 0 for none. uniform_range: the range of tokens; None: that of the first
    ones, which are the same for all parameters unless init_tokens gives them.
    """

    def __init__(
        self,
        pruner: Any = None,
        controller: Any = None,
        start_epoch: int = 0,
        end_epoch: int = 10,
        min_ratio: float = 0.5,
        max_ratio: float = 0.7,
        metric_name: str = "top1_acc",
        pruned_params: str = "conv.*_weights",
        retrain_epoch: int = 0,
        uniform_range: float | None = None,
        init_tokens: list[int] | None = None,
    ) -> None:
        super().__init__(pruner, start_epoch, end_epoch, 0.0, metric_name, pruned_params)
        self._max_ratio, self._min_ratio, self._controller = max_ratio, min_ratio, controller
        self._metric_name, self._retrain_epoch = metric_name, retrain_epoch
        self._uniform_range, self._init_tokens = uniform_range, init_tokens
        self._pruned_param_names: list[str] = []
        self._current_tokens: list[int] = []
        self._range_table: list[int] = []
        self._param_backup: dict[str, Any] = {}
        self._param_shape_backup: dict[str, tuple[int, ...]] = {}

    def on_compression_begin(self, context: Any) -> None:
        """Find the parameters and the first tokens, and set the controller up."""
        self._pruned_param_names = self._named(context.eval_graph)
        self._current_tokens = self._init_tokens or self._get_init_tokens(context)
        if self._uniform_range is not None:
            self._range_table = [int(round(self._uniform_range, 2) / STEP)] * len(self._pruned_param_names)
        else:
            self._range_table = deepcopy(self._current_tokens)
        constraint = partial(self._constrain_func, context=context)
        self._controller.reset(self._range_table, self._current_tokens, constraint)

    def _constrain_func(self, tokens: list[int], context: Any = None) -> bool:
        """Whether tokens take an allowed share of all operations."""
        flops = context.eval_graph.flops()
        share = self._share_taken(context, self._pruned_param_names, self._tokens_to_ratios(tokens), flops)
        return self._min_ratio <= share <= self._max_ratio

    def _get_init_tokens(self, context: Any) -> list[int]:
        target = (self._min_ratio + self._max_ratio) / 2
        ratio = self._uniform_ratio(context, self._pruned_param_names, target)
        return [int(ratio / STEP)] * len(self._pruned_param_names)

    def _tokens_to_ratios(self, tokens: list[int]) -> list[float]:
        return [token * STEP for token in tokens]

    def _is_try(self, epoch: int) -> bool:
        return self._retrain_epoch == 0 or (epoch - self.start_epoch) % self._retrain_epoch == 0

    def on_epoch_begin(self, context: Any) -> None:
        """Prune by the tokens of this try."""
        if self.start_epoch <= context.epoch_id <= self.end_epoch and self._is_try(context.epoch_id):
            self._try(context, self._current_tokens)
            context.skip_training = self._retrain_epoch == 0

    def _try(self, context: Any, tokens: list[int]) -> None:
        self._param_shape_backup, self._param_backup = {}, {}
        self._prune_parameters(
            context.optimize_graph,
            context.scope,
            self._pruned_param_names,
            self._tokens_to_ratios(tokens),
            context.place,
            param_backup=self._param_backup,
            param_shape_backup=self._param_shape_backup,
        )
        self._recompile(context)

    def on_epoch_end(self, context: Any) -> None:
        """Tell the controller how good the tokens were, and undo the pruning; after the last epoch prune by the best ones."""
        if self.start_epoch <= context.epoch_id < self.end_epoch and self._is_try(context.epoch_id + 1):
            self._controller.update(self._current_tokens, context.eval_results[self._metric_name][-1])
            self._current_tokens = self._controller.next_tokens()
            self._undo(context)
        elif context.epoch_id == self.end_epoch:
            self._undo(context)
            self._try(context, self._controller._best_tokens or self._current_tokens)
            context.skip_training = False

    def _undo(self, context: Any) -> None:
        _restore(context, self._param_backup)
        for name, shape in self._param_shape_backup.items():
            context.optimize_graph.var(name).set_shape(shape)
        self._param_backup, self._param_shape_backup = {}, {}
        self._recompile(context)

    def _recompile(self, context: Any) -> None:
        self._prune_graph(context.eval_graph, context.optimize_graph)
        context.optimize_graph.update_groups_of_conv()
        context.eval_graph.update_groups_of_conv()
        context.optimize_graph.compile()
