"""How roles tell what they have done: lines of JSON in a file that FLUIDTOOL_PROGRESS names, one for each report.

A line is {"step": 12, "loss": 0.53, "sent": 1024, "received": 1024, "examples": 384, "waited": 0.2}; everything but the step
may be left out. Any program may write such lines, toy roles of tests among them. Servers write lines such as {"event": "late",
"text": "round 12: trainer 1 …", "trainer": 1, "round": 12}.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, get_args

from fluidtool.distribute.launch.contract import PROGRESS
from fluidtool.records import dataclass

PAUSE = 0.1
LONGEST_LINE = 1 << 16
LONGEST_NOTE = 1000  # characters


@dataclass(frozen=True, slots=True)
class Report:
    """What a role says of itself: steps done since the beginning of the training, the last loss; and since it was started,
    bytes, examples, and the seconds that it has waited for other roles.
    """

    step: int
    loss: float | None = None
    sent: int = 0
    received: int = 0
    examples: int = 0
    waited: float = 0.0


NoteKind = Literal["join", "leave", "left_out", "late", "paired", "alone", "succeeded", "saved"]
NOTES: frozenset[NoteKind] = frozenset(get_args(NoteKind))


@dataclass(frozen=True, slots=True)
class Note:
    """What a server says of a trainer, as a sentence, and in which round (0 where there are none). times: in how many rounds it
    has been late. role: of which server it is said, where it is said of none of the trainers; the round is a term then, or, of
    one that has "saved" its last checkpoint, the step.
    """

    event: NoteKind
    text: str
    trainer: int
    round: int
    times: int = 0
    role: str = ""

    @property
    def is_news(self) -> bool:
        """Whether to show it: that a trainer is late for the first time, the second, the fourth, the eighth …"""
        return self.times.bit_count() <= 1


class Reporter:
    """Appends reports to a file, ten a second at most; the last one is written when it is closed.

    path None: nobody asked, and nothing is written. `last` is what was reported last, for metrics.
    """

    def __init__(self, path: Path | None) -> None:
        self.last: Report | None = None
        self._file = None if path is None else path.open("ab", buffering=0)
        self._due = 0.0
        self._held: Report | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Reporter:
        """A reporter to where the supervisor of this process looks, if it has one."""
        name = environment.get(PROGRESS)
        return cls(Path(name) if name else None)

    def report(self, report: Report) -> None:
        """Say where the role stands."""
        self._held = self.last = report
        if self._file is not None and time.monotonic() >= self._due:
            self._write()

    def tell(self, note: Note) -> None:
        """Say something of a trainer."""
        if self._file is not None:
            self._append(asdict(note))

    def close(self) -> None:
        """Write what is held back."""
        if self._file is not None:
            self._write()
            self._file.close()
            self._file = None

    def _write(self) -> None:
        if self._held is None or self._file is None:
            return
        held, self._held = self._held, None
        self._due = time.monotonic() + PAUSE
        self._append(asdict(held))

    def _append(self, fields: Mapping[str, Any]) -> None:
        assert self._file is not None
        try:
            self._file.write(f"{json.dumps(fields)}\n".encode())
        except OSError:
            return  # a full disk ends no training; the next report says the same, and more


class ProgressFile:
    """Reads the reports of one role as they come. What is no report is left out and counted in `faults`."""

    def __init__(self, path: Path) -> None:
        self.path, self.faults = path, 0
        self._position, self._rest = 0, b""

    def read(self) -> list[Report | Note]:
        """The reports since the last call."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return []
        self._position += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            self._rest, self.faults = b"", self.faults + 1
        found = [_report(line) for line in lines]
        self.faults += found.count(None)
        return [report for report in found if report is not None]


def _report(line: bytes) -> Report | Note | None:
    try:
        content = json.loads(line)
    except ValueError:
        return None
    if isinstance(content, dict) and content.get("event") in NOTES:
        return _note(content)
    if not isinstance(content, dict) or not _is_count(content.get("step")):
        return None
    loss, waited = content.get("loss"), content.get("waited", 0.0)
    counts = [content.get(name, 0) for name in ("sent", "received", "examples")]
    if not (all(map(_is_count, counts)) and (loss is None or _is_number(loss)) and _is_number(waited)):
        return None
    return Report(
        content["step"], None if loss is None else float(loss), counts[0], counts[1], counts[2], float(waited)
    )


def _note(content: dict[str, Any]) -> Note | None:
    text, numbers = content.get("text"), [content.get(name, 0) for name in ("trainer", "round", "times")]
    role = content.get("role", "")
    if not (isinstance(text, str) and isinstance(role, str)) or not all(map(_is_count, numbers)):
        return None
    return Note(content["event"], text[:LONGEST_NOTE], int(numbers[0]), int(numbers[1]), int(numbers[2]), role)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
