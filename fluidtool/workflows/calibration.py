"""How large activations become on some data, and where their quantization should end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

import numpy as np

from fluidtool.fluid.contrib.slim.quantization.divergence import BINS, end_of_counts
from fluidtool.model import Model
from fluidtool.records import dataclass
from fluidtool.tensor import LoDTensor

Method = Literal["abs_max", "kl", "percentile"]
METHODS: tuple[Method, ...] = ("abs_max", "kl", "percentile")
Batch = Mapping[str, LoDTensor]


@dataclass(slots=True)
class Sizes:
    """The sizes |x| of the values of an activation: the largest, and how many are in each of BINS bins up to it."""

    largest: float = 0.0
    finite: bool = True
    counts: Any = field(default_factory=lambda: np.zeros(BINS, np.int64))

    def measure(self, values: Any) -> None:
        """Take in the largest of some values."""
        most = float(np.abs(values).max(initial=0))
        self.finite &= bool(np.isfinite(most))
        self.largest = max(self.largest, most)

    def count(self, values: Any) -> None:
        """Count values, once the largest is known."""
        if self.largest > 0 and self.finite:
            self.counts += np.histogram(np.abs(values), bins=BINS, range=(0.0, self.largest))[0]

    def end(self, method: Method, percentile: float) -> float:
        """The size from which on values are cut off; 0 if there is none."""
        if not self.finite or self.largest == 0 or method == "abs_max":
            return self.largest if self.finite else 0.0
        width = self.largest / BINS
        if method == "kl":
            return min(end_of_counts(self.counts) * width, self.largest)
        below = np.cumsum(self.counts) / self.counts.sum()
        return min((int(np.searchsorted(below, percentile / 100)) + 1) * width, self.largest)


def ends(
    model: Model, batches: Sequence[Batch], names: Iterable[str], method: Method, percentile: float, advance: Any
) -> dict[str, float]:
    """By activation, the largest size that is kept. `advance` is called after each run."""
    wanted = list(dict.fromkeys(names))
    sizes = {name: Sizes() for name in wanted}
    for batch in batches:
        for name, value in _values(model, batch, wanted):
            sizes[name].measure(value)
        advance()
    if method != "abs_max":
        for batch in batches:
            for name, value in _values(model, batch, wanted):
                sizes[name].count(value)
            advance()
    return {name: found.end(method, percentile) for name, found in sizes.items()}


def _values(model: Model, batch: Batch, names: Sequence[str]) -> Iterable[tuple[str, Any]]:
    """Activations by name; those that are fed are not run for."""
    computed = [name for name in names if name not in batch]
    yield from ((name, np.asarray(batch[name])) for name in names if name in batch)
    if computed:
        yield from ((name, np.asarray(value)) for name, value in model.run(batch, computed).items())
