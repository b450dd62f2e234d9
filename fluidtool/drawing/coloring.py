"""Colors that say something of each operator: how long it takes, or how much it differs."""

from __future__ import annotations

from collections.abc import Mapping
from math import log10, sqrt

from fluidtool.drawing.graph import Node, Place
from fluidtool.records import dataclass

LEVELS = 8  # of 'heat0' to 'heat7'
SMALLEST_ERROR = 1e-8  # what errors below count as


@dataclass(frozen=True, slots=True)
class Mark:
    """What one operator got: the class that colors it, a line of text, and the figure behind it."""

    css: str
    text: str
    figure: float = 0.0


@dataclass(frozen=True, slots=True)
class Coloring:
    """Marks by operator. by: 'time' or 'difference'. legend: classes and what they mean.

    whole: the sum of all figures if those of a group are summed up; None if the largest counts. most: the largest figure.
    """

    by: str
    marks: Mapping[Place, Mark]
    legend: tuple[tuple[str, str], ...]
    whole: float | None = None
    most: float = 0.0

    def of(self, node: Node) -> Mark | None:
        """The mark of a node; of a group that of what is in it."""
        found = [self.marks[place] for place in node.places() if place in self.marks]
        if not found or node.inner is None:
            return found[0] if found else None
        worst = max(found, key=lambda mark: mark.figure)
        if self.whole is None:
            return Mark(
                worst.css, worst.text if len(found) == 1 else f"{worst.text} ({len(found)} operators)", worst.figure
            )
        total = sum(mark.figure for mark in found)
        return Mark(_heat(sqrt(total / self.most) if self.most else 0.0), time_text(total, self.whole), total)


def by_time(seconds: Mapping[Place, float], joined: Mapping[Place, Place]) -> Coloring:
    """Colors by time. joined: operators that ran as a part of another."""
    whole, most = sum(seconds.values()), max(seconds.values(), default=0.0)
    marks = {
        place: Mark(_heat(sqrt(each / most) if most else 0.0), time_text(each, whole), each)
        for place, each in seconds.items()
    }
    for place, other in joined.items():
        marks[place] = Mark(marks[other].css, f"within operator {other.operator}")
    texts = {
        0: "0",
        LEVELS // 2: duration(most * (LEVELS // 2 / (LEVELS - 1)) ** 2),
        LEVELS - 1: time_text(most, whole),
    }
    return Coloring("time", marks, _scale(texts), whole, most)


def by_error(errors: Mapping[Place, float]) -> Coloring:
    """Colors by the size of errors, on a logarithmic scale from 1e-8 to 1; 0 is no color."""
    marks = {
        place: Mark(_heat(_size(error)), f"{error:.2g}", error) if error else Mark("equal", "equal")
        for place, error in errors.items()
    }
    texts = {0: f"{SMALLEST_ERROR:.0e}", LEVELS - 1: "1"}
    return Coloring("difference", marks, (("equal", "equal"), *_scale(texts)))


def by_change(changes: Mapping[Place, tuple[str, str]]) -> Coloring:
    """Colors by kind of difference: 'only' for an operator that the other model lacks, 'changed' with what differs."""
    marks = {place: Mark(css, text, 2.0 if css == "only" else 1.0) for place, (css, text) in changes.items()}
    return Coloring("difference", marks, (("only", "only here"), ("changed", "changed")))


def _scale(texts: Mapping[int, str]) -> tuple[tuple[str, str], ...]:
    """All levels, some of them with a text."""
    return tuple((f"heat{level}", texts.get(level, "")) for level in range(LEVELS))


def _size(error: float) -> float:
    """0 for the smallest errors, 1 from 1 on, also for NaN."""
    return 1.0 if not error <= 1 else log10(max(error, SMALLEST_ERROR) / SMALLEST_ERROR) / -log10(SMALLEST_ERROR)


def _heat(part: float) -> str:
    """The class for 0 (least) to 1 (most)."""
    return f"heat{min(LEVELS - 1, max(0, round(part * (LEVELS - 1))))}"


def time_text(seconds: float, whole: float) -> str:
    """'1.25 ms · 12 %'."""
    share = 100 * seconds / whole if whole else 0.0
    return f"{duration(seconds)} · {share:.0f} %" if share >= 9.5 else f"{duration(seconds)} · {share:.1f} %"


def duration(seconds: float) -> str:
    """'1.25 ms', '12.3 µs'."""
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds * 1e9:.3g} ns" if seconds else "0"
