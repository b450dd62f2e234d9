"""What draws the next tokens of a search (Paddle 1.8.5 contrib/slim/searcher/controller.py)."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fluidtool.fluid.log_helper import get_logger

__all__ = ["EvolutionaryController", "SAController"]

_logger = get_logger(__name__, logging.INFO, fmt="%(asctime)s-%(levelname)s: %(message)s")
Constraint = Callable[[list[int]], bool]


class EvolutionaryController:
    """A search in which new tokens are made of old ones."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to set."""

    def update(self, tokens: list[int], reward: float) -> None:
        """Hear how good tokens were."""
        raise NotImplementedError("Abstract method.")

    def reset(
        self, range_table: Sequence[int], init_tokens: list[int], constrain_func: Constraint | None = None
    ) -> None:
        """Begin: token i is in [0, range_table[i])."""
        raise NotImplementedError("Abstract method.")

    def next_tokens(self) -> list[int]:
        """New tokens."""
        raise NotImplementedError("Abstract method.")


class SAController(EvolutionaryController):
    """Simulated annealing: one token is changed; worse ones are kept, ever more rarely. Numbers are numpy's global ones."""

    def __init__(
        self,
        range_table: Sequence[int] | None = None,
        reduce_rate: float = 0.85,
        init_temperature: float = 1024,
        max_iter_number: int = 300,
    ) -> None:
        self._range_table = range_table
        self._reduce_rate, self._init_temperature = reduce_rate, init_temperature
        self._max_iter_number = max_iter_number
        self._reward: float = -1
        self._tokens: list[int] | None = None
        self._max_reward: float = -1
        self._best_tokens: list[int] | None = None
        self._iter = 0
        self._constrain_func: Constraint | None = None

    def __getstate__(self) -> dict[str, Any]:
        """All attributes but the constraint, which may be any function."""
        return {name: value for name, value in vars(self).items() if name != "_constrain_func"}

    def reset(
        self, range_table: Sequence[int], init_tokens: list[int], constrain_func: Constraint | None = None
    ) -> None:
        """Begin; constrain_func: whether tokens are allowed."""
        self._range_table, self._tokens, self._constrain_func = range_table, init_tokens, constrain_func
        self._iter = 0

    def update(self, tokens: list[int], reward: float) -> None:
        """Keep tokens that are better, or by chance; the temperature falls."""
        self._iter += 1
        temperature = self._init_temperature * self._reduce_rate**self._iter
        if reward > self._reward or np.random.random() <= math.exp((reward - self._reward) / temperature):
            self._reward, self._tokens = reward, tokens
        if reward > self._max_reward:
            self._max_reward, self._best_tokens = reward, tokens
        _logger.info("iter: %s; max_reward: %s; best_tokens: %s", self._iter, self._max_reward, self._best_tokens)
        _logger.info("current_reward: %s; current tokens: %s", self._reward, self._tokens)

    def next_tokens(self, control_token: list[int] | None = None) -> list[int]:
        """The tokens, or those given, with one changed; where that is not allowed, another one, up to max_iter_number times."""
        tokens, ranges = list(control_token or self._tokens or ()), self._range_table or ()
        new = tokens[:]
        index = int(len(ranges) * np.random.random())
        new[index] = int((new[index] + np.random.randint(ranges[index] - 1) + 1) % ranges[index])
        _logger.info("change index[%s] from %s to %s", index, tokens[index], new[index])
        if self._constrain_func is None:
            return new
        for _ in range(self._max_iter_number):
            if self._constrain_func(new):
                break
            index = int(len(ranges) * np.random.random())
            new = tokens[:]
            new[index] = int(np.random.randint(ranges[index]))
        return new
