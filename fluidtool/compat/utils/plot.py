"""`paddle.utils.plot`: curves that grow while a notebook trains (Paddle 1.8.5 utils/plot.py)."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

from fluidtool.errors import AssertedError, DependencyError

__all__ = ["PlotData", "Ploter"]


class PlotData:
    """The points of a curve."""

    def __init__(self) -> None:
        self.step: list[Any] = []
        self.value: list[Any] = []

    def append(self, step: Any, value: Any) -> None:
        """Add a point."""
        self.step.append(step)
        self.value.append(value)

    def reset(self) -> None:
        """Drop all points."""
        self.step, self.value = [], []


class Ploter:
    """Curves by their titles. DISABLE_PLOT=True in the environment draws nothing, and needs no matplotlib."""

    def __init__(self, *args: str) -> None:
        self._curves = {title: PlotData() for title in args}
        self._is_on = os.environ.get("DISABLE_PLOT") != "True"
        if self._is_on and find_spec("matplotlib") is None:
            raise DependencyError(
                "Ploter needs matplotlib: pip install 'fluidtool[plot]', or set DISABLE_PLOT=True to draw nothing"
            )

    def append(self, title: str, step: Any, value: Any) -> None:
        """Add a point to a curve; raises AssertedError for an unknown title."""
        if title not in self._curves:
            raise AssertedError(f"there is no curve {title!r}; expected one of {', '.join(self._curves)}")
        self._curves[title].append(step, value)

    def plot(self, path: str | None = None) -> None:
        """Draw the curves that have points: into the file, or without one into the cell of a notebook."""
        if not self._is_on:
            return
        import matplotlib.pyplot as plt

        drawn = {title: curve for title, curve in self._curves.items() if curve.step}
        for curve in drawn.values():
            plt.plot(curve.step, curve.value)
        plt.legend(list(drawn), loc="upper left")
        if path is not None:
            plt.savefig(path)
        elif find_spec("IPython") is not None:
            from IPython import display

            display.clear_output(wait=True)
            display.display(plt.gcf())
        plt.gcf().clear()

    def reset(self) -> None:
        """Drop the points of all curves."""
        for curve in self._curves.values():
            curve.reset()
