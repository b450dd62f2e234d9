"""Metrics as data, and the text that Prometheus reads (exposition format 0.0.4)."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import field
from itertools import accumulate
from typing import Literal

from fluidtool.records import dataclass

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BOUNDS = tuple(256 << 2 * power for power in range(12))  # 256 bytes to 1 GiB, each four times the one before


@dataclass(frozen=True, slots=True)
class Sample:
    """One number. suffix: what follows the name of the family, such as "_count"."""

    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with its samples. The name of a counter ends in _total."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: tuple[Sample, ...]


def counter(name: str, help: str, value: float) -> Family:
    """A number that only grows, from 0 when the process starts unless the help says otherwise."""
    return Family(name, "counter", help, (Sample(value),))


def gauge(name: str, help: str, value: float, **labels: str) -> Family:
    """A number that goes up and down."""
    return Family(name, "gauge", help, (Sample(value, labels),))


@dataclass(slots=True)
class Sizes:
    """How many messages of which size; threads share it. counts: by the bounds, the last is of those beyond them all."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, size: int) -> None:
        """Count a message of so many bytes."""
        place = bisect_left(BOUNDS, size)
        with self._lock:
            self.counts[place] += 1
            self.total += size

    def samples(self, **labels: str) -> tuple[Sample, ...]:
        """Those of a histogram: messages of at most each bound, their bytes, their number."""
        with self._lock:
            counts, total = list(self.counts), self.total
        bounds = [*map(str, BOUNDS), "+Inf"]
        buckets = zip(bounds, accumulate(counts), strict=True)
        found = [Sample(count, {**labels, "le": bound}, "_bucket") for bound, count in buckets]
        return (*found, Sample(total, labels, "_sum"), Sample(sum(counts), labels, "_count"))


@dataclass(frozen=True, slots=True)
class Traffic:
    """The messages of a server, by their size."""

    received: Sizes = field(default_factory=Sizes)
    sent: Sizes = field(default_factory=Sizes)

    def family(self) -> Family:
        """Both directions."""
        samples = (*self.received.samples(direction="received"), *self.sent.samples(direction="sent"))
        return Family("fluidtool_message_bytes", "histogram", "Size of messages.", samples)


def rendered(families: Iterable[Family]) -> str:
    """The text of a page of metrics."""
    return "".join(line + "\n" for family in families for line in _lines(family))


def _lines(family: Family) -> list[str]:
    head = [f"# HELP {family.name} {_escaped(family.help)}", f"# TYPE {family.name} {family.kind}"]
    return head + [f"{family.name}{each.suffix}{_labels(each.labels)} {_number(each.value)}" for each in family.samples]


def _labels(labels: Mapping[str, str]) -> str:
    listed = ",".join(f'{name}="{_escaped(value, quoted=True)}"' for name, value in labels.items())
    return f"{{{listed}}}" if listed else ""


def _escaped(text: str, *, quoted: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quoted else text


def _number(value: float) -> str:
    """As Go reads it: NaN, +Inf, -Inf."""
    if isinstance(value, int):
        return str(value)
    return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}.get(repr(value), repr(value))
