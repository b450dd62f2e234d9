"""Saving, with every system call of it failed once (ENOSPC, EIO, EINTR) and killed once.

Afterwards whoever opens finds the old state or the new one, whole; a command that exits with 0 has saved; and the next
command leaves no litter.
"""

from __future__ import annotations

import hashlib
import io
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from typer.main import get_command

from fluidtool import disk, fluid
from fluidtool.cli.app import app
from fluidtool.cli.failures import explain
from fluidtool.distribute import checkpoints as job_checkpoints
from fluidtool.errors import FluidError
from fluidtool.io.parameters import write_separate
from fluidtool.ir import Program
from fluidtool.ir.roles import CALLSTACK_ATTR
from fluidtool.runtime import Executor, Scope
from fluidtool.tensor import LoDTensor
from tests.cli.support import combined_model, feed_file, linear_model
from tests.fuzz._interrupting import FAULTS, KILL, LOOKS, Fault, count, run
from tests.fuzz.campaign import Budget, Finding

Files = dict[str, str]  # relative name -> digest
INTERNAL = 70
DATED = "_SUCCESS"  # holds the time


@dataclass(frozen=True)
class Scenario:
    """prepare: what is there before. save: the command, which returns its exit code; also what a user runs next.

    stages: a command that leaves every checkpoint on the way in its folder; each is absent, incomplete, or like that.
    """

    name: str
    prepare: Callable[[Path], None]
    save: Callable[[Path], int]
    stages: Callable[[Path], int] | None = None


# ---------------------------------------------------------------- what is saved
def command(*words: str) -> Callable[[Path], int]:
    """A command line in which {} stands for the folder."""

    def call(folder: Path) -> int:
        out = io.StringIO()
        main: Any = get_command(app)
        with redirect_stdout(out), redirect_stderr(out):
            code = main.exit_code([word.replace("{}", str(folder)) for word in words])
        _tell(out.getvalue())
        return int(code)

    return call


def _models(folder: Path) -> None:
    linear_model(folder / "model")
    combined_model(folder / "combined")
    feed_file(folder / "x.npy")
    (folder / "out").mkdir()


def _older(save: Callable[[Path], int]) -> Callable[[Path], None]:
    """Have an older result there: of a model with other parameters."""

    def prepare(folder: Path) -> None:
        _models(folder)
        files = [folder / "model" / "w", folder / "model" / "b", folder / "combined" / "__params__"]
        kept = [path.read_bytes() for path in files]
        for path, data in zip(files, kept, strict=True):
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        assert save(folder) == 0
        for path, data in zip(files, kept, strict=True):
            path.write_bytes(data)

    return prepare


def _training(folder: Path) -> None:
    program, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(program, startup), fluid.unique_name.guard():
        x = fluid.layers.data("x", [3], dtype="float32")
        y = fluid.layers.data("y", [1], dtype="float32")
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, size=1), y))
        fluid.optimizer.Momentum(0.05, momentum=0.9).minimize(loss)
    (folder / "line").mkdir()
    (folder / "line" / "main.pb").write_bytes(program.serialize_to_string())
    (folder / "line" / "startup.pb").write_bytes(startup.serialize_to_string())
    data = np.random.default_rng(5).standard_normal((6, 3)).astype("float32")
    np.savez(folder / "data.npz", x=data, y=data.sum(axis=1, keepdims=True))


def _trained(folder: Path) -> None:
    _training(folder)
    assert command(*TRAIN, "--epochs", "2", "--save", "{}/out/state")(folder) == 0


def _tensor(number: float) -> LoDTensor:
    return LoDTensor(np.full((4, 3), number, "float32"))


def _save_job(folder: Path) -> int:
    """What a role of a job does when a checkpoint is due: write it, and let the oldest go."""
    return _reported(lambda: job_checkpoints.save(folder / "job", "pserver_0", 30, {"w": _tensor(30)}, {"step": 30}))


def _saved_jobs(folder: Path) -> None:
    for step in (10, 20, 30):
        job_checkpoints.save(folder / "job", "pserver_0", step, {"w": _tensor(step + 1)}, {}, keep=2)


def _save_table(folder: Path) -> int:
    """What `checkpoint_notify` has a server run."""
    program, scope = fluid.Program(), Scope()
    block = program.global_block()
    block.create_var(name="table", shape=[4, 3], dtype="float32", persistable=True)
    block.append_op(type="save", inputs={"X": ["table"]}, outputs={}, attrs={"file_path": "tables/part/table_0"})
    scope.var("table").value = _tensor(7)

    def save() -> None:
        with chdir(folder):  # programs write below the working directory only
            Executor().run(program, {}, [], scope=scope)

    return _reported(save)


def _saved_table(folder: Path) -> None:
    (folder / "tables" / "part").mkdir(parents=True)
    (folder / "tables" / "part" / "table_0").write_bytes(b"the older one")


def _save_variables(folder: Path) -> int:
    """`fluid.io.save_vars` into a folder that holds other things, too."""
    values = {name: _tensor(number) for number, name in enumerate(("a", "b", "deeper/c"))}
    return _reported(lambda: write_separate(folder / "variables", values))


def _saved_variables(folder: Path) -> None:
    (folder / "variables" / "deeper").mkdir(parents=True)
    for name in ("a", "b", "deeper/c", "another"):
        (folder / "variables" / name).write_bytes(b"the older one")


def _reported(save: Callable[[], object]) -> int:
    """The exit code that the command line would give."""
    try:
        save()
    except Exception as error:
        found = explain(error)
        text, code = found.text, found.exit_code
        _tell(text)
        return code
    return 0


def _tell(text: str) -> None:
    with suppress(OSError):  # that call may be the one that fails
        os.write(2, text.encode())


PRUNE = ("prune", "--targets", "probability", "--force")
TRANSPILE = ("transpile", "{}/model", "--all-inference", "--force", "-o")
RUN = ("run", "{}/model", "--feed", "x={}/x.npy", "--force", "-o")
TRAIN = ("train", "{}/line", "--data", "{}/data.npz", "--batch-size", "3", "--seed", "1")
CHECKPOINTS = (
    *TRAIN,
    "--epochs",
    "2",
    "--checkpoint",
    "{}/checkpoints",
    "--checkpoint-every",
    "1",
    "--resume",
    "--keep",
)


def scenarios() -> list[Scenario]:
    """Every command that saves, into nothing and over something older."""
    commands = {
        "transpile -o folder": command(*TRANSPILE, "{}/out/folder"),
        "transpile -o pair": command(*TRANSPILE, "{}/out/new.pdmodel"),
        "prune -o folder": command(*PRUNE, "{}/model", "-o", "{}/out/folder"),
        "prune -o combined": command(*PRUNE, "{}/combined", "-o", "{}/out/folder"),
        "run -o file": command(*RUN, "{}/out/result.npz"),
        "run -o folder": command(*RUN, "{}/out/results"),
    }
    found = [Scenario(f"{name}, new", _models, save) for name, save in commands.items()]
    found += [Scenario(f"{name}, replaced", _older(save), save) for name, save in commands.items()]
    train = command(*TRAIN, "--save", "{}/out/state", "--force")
    found.append(Scenario("train --save, new", _training, train))
    found.append(Scenario("train --save, replaced", _trained, train))
    found.append(Scenario("train --checkpoint", _training, command(*CHECKPOINTS, "1"), command(*CHECKPOINTS, "9")))
    found.append(Scenario("checkpoint of a job", _saved_jobs, _save_job))
    found.append(Scenario("table of a server, new", lambda folder: None, _save_table))
    found.append(Scenario("table of a server, replaced", _saved_table, _save_table))
    found.append(Scenario("variables, new", lambda folder: None, _save_variables))
    found.append(Scenario("variables, replaced", _saved_variables, _save_variables))
    return found


# ---------------------------------------------------------------- what is there
def files_below(folder: Path) -> Files:
    """What is there, but for what saves made for themselves."""
    found: Files = {}
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not disk.is_leftover(name)]
        for name in names:
            path = Path(place) / name
            if not disk.is_leftover(name):
                content = b"" if name == DATED else _content(path)
                found[str(path.relative_to(folder))] = hashlib.sha256(content).hexdigest()
    return found


def _content(path: Path) -> bytes:
    """The bytes of a file; of a program without the call stacks, which tell of this module."""
    data = path.read_bytes()
    if path.name != "__model__" and path.suffix != ".pdmodel":
        return data
    with suppress(FluidError):
        program = Program.parse_from_string(data)
        for op in (op for block in program.blocks for op in block.ops if op.has_attr(CALLSTACK_ATTR)):
            op.remove_attr(CALLSTACK_ATTR)
        return program.serialize_to_string()
    return data


def litter_below(folder: Path) -> list[str]:
    """What saves that were interrupted have left."""
    return [name for _, folders, names in os.walk(folder) for name in (*folders, *names) if disk.is_leftover(name)]


class Search:
    """One scenario: its states before and after, and its cases."""

    def __init__(self, scenario: Scenario, root: Path) -> None:
        self.scenario, self.trace = scenario, root / "trace"
        self.before, self.place = root / "before", root / "place"
        self.before.mkdir(parents=True)
        scenario.prepare(self.before)
        self.old = files_below(self.before)
        self.stages = self._after(scenario.stages) if scenario.stages else {}
        self.new = self._after(scenario.save)
        assert self.new != self.old
        self._refresh()
        self.calls = count(self._save_it, self.trace)

    def cases(self) -> list[Fault]:
        """Every system call with each fault; those that change nothing with one, as a kill there is one at the next call."""
        return [
            Fault(kind, call, number)
            for call, times in self.calls.items()
            for kind in (("EIO",) if call in LOOKS else FAULTS)
            for number in range(1, times + 1)
        ]

    def finding(self, fault: Fault) -> str:
        """What goes wrong in one case; "" when nothing does."""
        self._refresh()
        ended = run(self._save_it, fault, self.trace)
        if ended.exit_code in (INTERNAL, 99) or (ended.exit_code < 0 and fault.kind != KILL):
            return f"exit code {ended.exit_code}: {ended.output[-300:]}"
        left = litter_below(self.place)
        for folder in [self.place, *(path for path in self.place.rglob("*") if path.is_dir())]:
            if folder.is_dir():
                disk.finish(folder)  # as whoever opens something there
        found = files_below(self.place)
        if ended.exit_code == 0 and found != self.new:
            return f"it says that it has saved, but {self._difference(found)}"
        if found not in (self.old, self.new) and not self._is_stage(found):
            return f"neither old nor new: {self._difference(found)}"
        return self._next() if left or (self.stages and ended.exit_code) else ""

    def _next(self) -> str:
        """What goes wrong when the user runs the command again."""
        ended = run(self._save_it, None, self.trace)
        found, left = files_below(self.place), litter_below(self.place)
        if ended.exit_code or left or found != self.new:
            return f"the next command: {ended.exit_code} {ended.output[-300:]} {left} {self._difference(found)}"
        return ""

    def _is_stage(self, found: Files) -> bool:
        """Whether each checkpoint is complete and right, or does not count as one."""
        folders = {name.rpartition("/__model__/")[0] for name in found if name.endswith(f"/__model__/{DATED}")}
        counted = {name: digest for name, digest in found.items() if name.split("/__model__/")[0] in folders}
        expected = {name: digest for name, digest in self.stages.items() if name.split("/__model__/")[0] in folders}
        others = {name: digest for name, digest in found.items() if name in self.old}
        return bool(self.stages) and counted == expected and others == self.old

    def _difference(self, found: Files) -> str:
        names = sorted(name for name in {*found, *self.new} if found.get(name) != self.new.get(name))
        said = ((name, "old" if found.get(name) == self.old.get(name) else "wrong") for name in names)
        return ", ".join(f"{name} is {kind}" for name, kind in said) or "nothing differs"

    def _after(self, save: Callable[[Path], int]) -> Files:
        self._refresh()
        assert save(self.place) == 0  # now everything is imported, and every cache full
        self._refresh()
        assert run(lambda: save(self.place), None, self.trace).exit_code == 0
        return files_below(self.place)

    def _save_it(self) -> int:
        return self.scenario.save(self.place)

    def _refresh(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.before, self.place)


def search(budget: Budget, chosen: Callable[[str], bool] = lambda name: True) -> Iterator[Finding]:
    """Cases of all scenarios, mixed by the seed, until the time is up or every system call has had every fault."""
    with tempfile.TemporaryDirectory() as root:
        searches = [
            Search(scenario, Path(root) / str(number))
            for number, scenario in enumerate(scenarios())
            if chosen(scenario.name)
        ]
        cases = [(one, fault) for one in searches for fault in one.cases()]
        random.Random(budget.seed).shuffle(cases)
        started = time.monotonic()
        for one, fault in cases:
            if budget.cases and time.monotonic() - started > budget.seconds:
                return
            budget.cases += 1
            fault_found = one.finding(fault)
            if fault_found:
                yield Finding(f"{one.scenario.name}, {fault}", fault_found)
