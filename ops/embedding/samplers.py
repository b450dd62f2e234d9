"""Distributions that negative classes are drawn from, with the probability of each class."""

from __future__ import annotations

from typing import Any, Protocol

from fluidtool.records import dataclass

UNIFORM, LOG_UNIFORM, CUSTOM = 0, 1, 2


class Sampler(Protocol):
    """Draws classes on the host, and tells how likely each class is (in float32, as Paddle keeps it)."""

    def draw(self, generator: Any, shape: tuple[int, ...]) -> Any:
        """Classes, int64."""

    def probability(self, xp: Any, classes: Any) -> Any:
        """Their probabilities, float32."""


@dataclass(frozen=True, slots=True)
class UniformSampler:
    """Every class of [0, classes) alike."""

    classes: int

    def draw(self, generator: Any, shape: tuple[int, ...]) -> Any:
        """Classes, int64."""
        return generator.integers(0, self.classes, shape)

    def probability(self, xp: Any, classes: Any) -> Any:
        """1 / classes."""
        return xp.full(classes.shape, 1 / self.classes, xp.float32)


@dataclass(frozen=True, slots=True)
class LogUniformSampler:
    """Class c of [0, range] with probability log((c + 2) / (c + 1)) / log(range + 1): small numbers are frequent."""

    np: Any
    range: int

    def draw(self, generator: Any, shape: tuple[int, ...]) -> Any:
        """Classes, int64."""
        np = self.np
        drawn = np.exp(generator.random(shape) * np.log(self.range + 1)).astype(np.int64) - 1
        return drawn % max(self.range, 1)

    def probability(self, xp: Any, classes: Any) -> Any:
        """log((c + 2) / (c + 1)) / log(range + 1)."""
        logs = xp.log((classes + 2.0) / (classes + 1.0)) / self.np.log(self.range + 1)
        return logs.astype(xp.float32)


@dataclass(frozen=True, slots=True)
class CustomSampler:
    """Given probabilities, drawn by the alias method: class i with probability stay[i], else its alias."""

    probabilities: Any
    alias: Any
    stay: Any

    def draw(self, generator: Any, shape: tuple[int, ...]) -> Any:
        """Classes, int64."""
        index = generator.integers(0, len(self.alias), shape)
        moves = generator.random(shape) > self.stay[index]
        index[moves] = self.alias[index[moves]]
        return index

    def probability(self, xp: Any, classes: Any) -> Any:
        """The given ones."""
        return xp.asarray(self.probabilities)[classes].astype(xp.float32)
