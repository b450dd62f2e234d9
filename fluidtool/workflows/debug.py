"""`fluidtool debug reduce MODEL -o OUT -- COMMAND {model}`: the smallest part of a model that a command finds interesting."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from fluidtool.debugging.reduction import Reduction, bare
from fluidtool.debugging.sides import model_side
from fluidtool.debugging.single_writes import with_single_writes
from fluidtool.errors import FluidError, UsageError
from fluidtool.io.arrays import archive_bytes
from fluidtool.io.atomic import new_folder, write_into
from fluidtool.io.parameters import combined_parts, persistables
from fluidtool.ir import Program
from fluidtool.model import Model
from fluidtool.records import dataclass
from fluidtool.tensor import LoDTensor
from fluidtool.workflows.inputs import Inputs, gather
from fluidtool.workflows.outputs import require_free
from fluidtool.workflows.watcher import SILENT, Watcher

MODEL, FEED = "{model}", "{feed}"
TIMEOUT, LIMIT = 60.0, 500


@dataclass(frozen=True, slots=True)
class ReduceResult:
    """What is left: operators of so many, the inputs, the files, how many times the command ran, and whether the limit ended it."""

    operators: int
    of: int
    feeds: tuple[str, ...]
    files: tuple[Path, ...]
    asked: int
    complete: bool
    fed: bool


def reduce(
    model: Model,
    command: Sequence[str],
    output: str | Path,
    inputs: Inputs | None = None,
    *,
    timeout: float = TIMEOUT,
    limit: int = LIMIT,
    overwrite: bool = False,
    watcher: Watcher = SILENT,
) -> ReduceResult:
    """Save the smallest part of a model for which a command still succeeds (exit code 0); it must succeed for the whole model.

    command: its words, or one text for the shell. {model} stands for the folder of a part, {feed} for a .npz file with its inputs:
    values of a run on `inputs` (default: random), if the model can be run. A command that takes longer than `timeout` seconds
    does not succeed; after `limit` commands the smallest part so far is saved.
    Raises UsageError if the command fails on the whole model, FeedError, OutputExistsError, OutputError.
    """
    output = Path(output)
    require_free(output, overwrite=overwrite)
    if not any(MODEL in word for word in command):
        raise UsageError(
            f"the command must name the model as {MODEL}, such as: -- fluidtool run {MODEL} --random --check-nan"
        )
    program = bare(with_single_writes(model.program))
    values = _values(model, inputs, any(FEED in word for word in command), watcher)
    judge = _Judge(model, tuple(command), timeout, values)
    with watcher.progress("reducing") as advance:
        search = Reduction(program, frozenset(model.feeds), frozenset(model.fetches), judge, limit, advance)
        whole = search.candidate(range(len(search.flow.effects)))
        if whole is None or not judge(whole.program, whole.feeds):
            raise UsageError(
                f"the command does not succeed on the whole model{judge.why}; exit code 0 means that the fault shows"
            )
        kept = search.reduce()
    found = search.candidate(kept)
    assert found is not None
    files = judge.files(found.program, found.feeds)
    with new_folder(output, replace=overwrite) as temporary:
        write_into(temporary, files)
    paths = tuple(output / name for name in files)
    return ReduceResult(
        len(kept),
        len(search.flow.effects),
        found.feeds,
        paths,
        search.asked + 1,
        search.asked < limit,
        "feed.npz" in files,
    )


def _values(model: Model, inputs: Inputs | None, needed: bool, watcher: Watcher) -> Mapping[str, Any]:
    """What a run computes, to be fed to parts; nothing if the model cannot be run and the command does not ask for it."""
    inputs = inputs or Inputs()
    try:
        feed = gather(model, replace(inputs, random=inputs.random or not inputs.feeds), watcher)
        return model_side(model).record(feed, model.fetches).values
    except FluidError as error:
        if needed or inputs.feeds:
            raise
        watcher.say(f"note: parts get no {FEED}, as the model cannot be run: {error}")
        return {}


@dataclass(slots=True)
class _Judge:
    """Runs the command on a program."""

    model: Model
    command: tuple[str, ...]
    timeout: float
    values: Mapping[str, Any]
    why: str = field(default="")

    def __call__(self, program: Program, feeds: Sequence[str]) -> bool:
        with tempfile.TemporaryDirectory(prefix="fluidtool-reduce-") as name:
            folder = Path(name)
            write_into(folder, self.files(program, feeds))
            code = self._run({MODEL: str(folder), FEED: str(folder / "feed.npz")})
        self.why = f" within {self.timeout:g} seconds" if code is None else f": exit code {code}"
        return code == 0

    def files(self, program: Program, feeds: Sequence[str]) -> dict[str, Iterable[Any]]:
        """A model's folder, and feed.npz if every input has a value."""
        store = self.model.files.parameters
        parameters = {var.name: store[var.name] for var in persistables(program) if var.name in store}
        files: dict[str, Iterable[Any]] = {"__model__": [program.serialize_to_string()]}
        if parameters:
            files["__params__"] = combined_parts(parameters)
        given = {name: self.values[name] for name in feeds if isinstance(self.values.get(name), LoDTensor)}
        return files | ({"feed.npz": [archive_bytes(given)]} if given and len(given) == len(feeds) else {})

    def _run(self, names: Mapping[str, str]) -> int | None:
        """The exit code; None if the time was up, and then nothing that the command started goes on."""
        shell = len(self.command) == 1
        words = [
            _filled(word, {key: shlex.quote(value) if shell else value for key, value in names.items()})
            for word in self.command
        ]
        try:
            process = subprocess.Popen(
                words[0] if shell else words,
                shell=shell,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise UsageError(f"the command {self.command[0]} cannot be started: {error.strerror or error}") from error
        try:
            return process.wait(self.timeout)
        except BaseException as error:
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                return None
            raise


def _filled(word: str, names: Mapping[str, str]) -> str:
    for key, value in names.items():
        word = word.replace(key, value)
    return word
