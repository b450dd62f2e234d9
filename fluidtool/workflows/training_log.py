"""The log of a training: a line of JSON for each step, in a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from fluidtool.errors import OVERWRITE, Location, OutputError, OutputExistsError, UnreadableError
from fluidtool.io.atomic import write_file
from fluidtool.io.jsonable import jsonable
from fluidtool.records import dataclass
from fluidtool.tensor import LoDTensor
from fluidtool.training import Position, Step

if TYPE_CHECKING:
    from fluidtool.report.train import TrainReport


@dataclass(slots=True)
class TrainingLog:
    """Writes lines for every `every`th step of an epoch to `path`."""

    path: Path | None
    every: int
    _file: TextIO | None = field(default=None, init=False)

    @contextmanager
    def opened(self, done: Position | None, *, resume: bool, overwrite: bool) -> Iterator[None]:
        """Open the file: new, or, in a training that is resumed, after the line of the last step that is `done`.

        Raises OutputExistsError, OutputError, UnreadableError when the file to go on with is no such log.
        """
        if self.path is None:
            yield
            return
        if self.path.exists() and not (resume or overwrite):
            raise OutputExistsError(f"{self.path} already exists", hint=OVERWRITE, location=Location(str(self.path)))
        kept = _lines_until(self.path, done) if resume and self.path.exists() else []
        write_file(self.path, [line.encode() for line in kept])
        try:
            with self.path.open("a") as self._file:
                yield
        finally:
            self._file = None

    def write(self, step: Step) -> None:
        """The line of a step, if it is due; raises OutputError."""
        if step.step % self.every or self._file is None:
            return
        try:
            self._file.write(log_line(step))
            self._file.flush()
        except OSError as error:
            raise OutputError(f"cannot write {self.path}: {error.strerror or error}") from error


def log_line(step: Step) -> str:
    """A step as a line of JSON."""
    return json.dumps(jsonable(entry(step)), allow_nan=False) + "\n"


def entry(step: Step) -> TrainReport:
    """What a line says of a step."""
    line: TrainReport = {
        "schema": "fluidtool.train/1",
        "epoch": step.epoch,
        "step": step.step,
        "loss": step.loss,
        "examples_per_second": round(step.examples / max(step.seconds, 1e-9), 1),
    }
    if step.values:
        line["fetch"] = {name: _shown(value) for name, value in step.values.items()}
    return line


def _shown(value: Any) -> Any:
    return value.numpy() if isinstance(value, LoDTensor) and value.is_initialized() else str(value)


def _lines_until(path: Path, done: Position | None) -> list[str]:
    """The lines of a log up to a step (None: none of them); a last one that a kill has cut off is left out."""
    kept, last = [], (-1, -1) if done is None else (done.epoch, done.step)
    lines = path.read_text(errors="replace").splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        try:
            found = json.loads(line)
            here = (found["epoch"], found["step"])
        except (ValueError, TypeError, KeyError) as error:
            if number == len(lines) and not line.endswith("\n"):
                break
            raise UnreadableError(
                f"{path}, line {number}, is not a line of a training log",
                hint="name another file",
                location=Location(str(path)),
            ) from error
        if here <= last:
            kept.append(line)
    return kept
