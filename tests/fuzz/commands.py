"""Mutated programs of all packed models through every command that takes one: no exit code 70, no signal, no hang.

A case is one mutated program given to one command, in a forked child of this process, under limits of processor time and
memory. A run may take as long as its operators say, so that only commands which run nothing can hang.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import re
import resource
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from fluidtool.cli.app import run_command
from fluidtool.errors import EXIT_INTERNAL
from fluidtool.ir import Program
from fluidtool.ops.registry import all_ops
from tests.fuzz._mutations import mutated
from tests.fuzz.campaign import Budget, Finding
from tests.support.golden import corpus

SAMPLES = Path(__file__).parent.parent.parent / "samples"
SECONDS = 10  # of the processor, for one command
MEMORY = 8 * 2**30
RUNNING = {"run", "profile", "train", "transpile --verify"}  # what lasts as long as the program's operators do


@dataclass(frozen=True, slots=True)
class Model:
    """A program and where its parameters are ('' without); for training, its startup program and a mini-batch."""

    name: str
    program: Path
    params: str = ""
    startup: str = ""
    data: str = ""


@cache
def variables(model: Model) -> tuple[str, ...]:
    """The names that a model's blocks declare."""
    program = Program.parse_from_string(model.program.read_bytes())
    return tuple(sorted(var.name for var in program.list_vars())) or ("x",)


@dataclass(frozen=True, slots=True)
class Case:
    """A spoiled program and the command that gets it."""

    model: Model
    program: bytes
    command: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.model.name}: {self.command} {' '.join(self.arguments)}"


def packed_models() -> list[Model]:
    """The inference models and training programs of the samples and of the corpora."""
    found = samples()
    for folder in sorted(corpus("models").iterdir()):
        found += [_inference(folder.name, inner) for inner in sorted(folder.iterdir()) if inner.is_dir()]
    for folder in sorted(corpus("train").iterdir()):
        if (folder / "main.pb").is_file():
            found.append(_training(folder.name, folder, folder / "stream.npz"))
    for file in sorted(corpus("formats").rglob("program*.pb")):
        found.append(Model(str(file.relative_to(corpus("formats"))), file))
    return found


def samples() -> list[Model]:
    """Three inference models and one training."""
    found = [Model("digits", SAMPLES / "digits" / "__model__", str(SAMPLES / "digits"))]
    found.append(Model("topics", SAMPLES / "topics" / "model", str(SAMPLES / "topics" / "params")))
    pair = SAMPLES / "digits_v2"
    found.append(Model("digits_v2", pair / "model.pdmodel", str(pair / "model.pdiparams")))
    training = SAMPLES / "digits_training"
    found.append(_training("digits_training", training, training / "data.npz"))
    return found


def _inference(name: str, folder: Path) -> Model:
    program = next(folder / each for each in ("__model__", "model") if (folder / each).is_file())
    files = [file for file in folder.iterdir() if file != program]
    return Model(name, program, str(files[0]) if len(files) == 1 else str(folder))


def _training(name: str, folder: Path, data: Path) -> Model:
    return Model(name, folder / "main.pb", startup=str(folder / "startup.pb"), data=str(data))


# ---------------------------------------------------------------- cases
def case_of(seed: int, models: Sequence[Model]) -> Case:
    """The case of a seed; the same one for the same models."""
    random = Random(seed)
    model = random.choice(models)
    program = mutated(model.program.read_bytes(), random)
    name = random.choice(variables(model))
    command, arguments = random.choice(_commands(model, name))
    return Case(model, program, command, arguments)


def _commands(model: Model, name: str) -> list[tuple[str, tuple[str, ...]]]:
    params = ("--params", model.params) if model.params else ()
    engine = ("--engine", "numpy")
    found = [
        ("inspect", view)
        for view in (
            (),
            ("--with-details",),
            ("--vars", "--json"),
            ("--ops",),
            ("--format", "text"),
            ("--batch", "3", "--json"),
        )
    ]
    found += [("inspect", ("--plan", *more)) for more in ((), engine)]
    found += [("check", (*params, *more)) for more in ((), ("--json",), ("--security",))]
    found += [("diff", (str(model.program), *more)) for more in ((), ("--json", "--callstack"))]
    found += [("prune", ("--targets", name, "-o", "out", "--program-only"))]
    found += [("prune", ("--targets", name, "-o", "out", *params))]
    rewrites = (("--memory-optimize", "--level", "1"), ("--release-memory", "--explain"))
    found += [("transpile", (*rewrite, "-o", "out")) for rewrite in rewrites]
    formats = (("onnx",), ("onnx", "--opset", "13", "--json"), ("paddle1",), ("paddle2",), ("npz",))
    found += [("convert", ("-o", "out", *params, "--to", *more)) for more in formats]
    if model.params:
        found += [("transpile", ("--all-inference", "-o", "out", "--explain", *params))] * 3
        found += [("transpile --verify", ("--all-inference", "--memory-optimize", "--verify", *params))]
        found += [
            ("run", ("--random", *params, *more)) for more in ((), (), engine, ("--fetch", name), ("--check-nan",))
        ]
        found += [("profile", ("--random", "--repeat", "1", *params))]
    if model.startup:
        found += [("train", ("--startup", model.startup, "--data", model.data, "--epochs", "1"))] * 4
    return found


# ---------------------------------------------------------------- running
@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended: its exit code, or minus the signal that ended it; and what it wrote."""

    code: int
    text: str

    def fault(self, command: str) -> str:
        """What is wrong with it; '' for nothing."""
        if self.code == EXIT_INTERNAL:
            return f"exit 70: {self._reason()}"
        if self.code in (-24, -9) and command not in RUNNING:
            return f"no end after {SECONDS} s"
        return f"signal {-self.code}" if self.code < 0 and self.code not in (-24, -9) else ""

    def _reason(self) -> str:
        """The exception, and the innermost place in our own code."""
        places = re.findall(r'File "[^"]*?((?:fluidtool|ops)/[^"]*)", line (\d+)', self.text)
        last = [line for line in self.text.splitlines() if "internal error" in line or "fault of" in line][-1:]
        where = f"{places[-1][0]}:{places[-1][1]}" if places else "?"
        return f"{where}: {last[0][:200] if last else self.text[-200:]}"


def outcome(case: Case, folder: Path) -> Outcome:
    """Run a case in a forked child; `folder` is emptied afterwards."""
    program, log = folder / "__model__", folder.parent / "log"
    program.write_bytes(case.program)
    child = os.fork()
    if not child:
        _in_child([case.command.split()[0], str(program), *case.arguments], folder, log)
    _, status = os.waitpid(child, 0)
    _empty(folder)
    return Outcome(os.waitstatus_to_exitcode(status), log.read_text(errors="replace"))


def _in_child(arguments: list[str], folder: Path, log: Path) -> None:
    """Become a process that runs a command line and nothing else."""
    code = EXIT_INTERNAL
    faulthandler.disable()  # a child that dies is told of by its parent
    try:
        os.chdir(folder)
        os.environ["FLUIDTOOL_DEBUG"] = "1"
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.stdout = open(1, "w", encoding="utf-8")  # noqa: SIM115 (as a process of its own would have it)
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        code = run_command(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 1
    finally:
        os._exit(code)


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _warm_up(model: Model, folder: Path) -> None:
    """Give a sound program to every command here, so that the children need not import what these need."""
    os.environ["FLUIDTOOL_THREADS"] = "1"
    all_ops()
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        for command, arguments in _commands(model, variables(model)[0]):
            out = [str(folder / "out") if word == "out" else word for word in arguments]
            run_command([command.split()[0], str(model.program), *out])
    _empty(folder)


def search(budget: Budget, models: Sequence[Model] | None = None) -> Iterator[Finding]:
    """Cases until the budget is spent; a fault at one place is told once."""
    found = packed_models() if models is None else models
    told: set[str] = set()
    codes: dict[int, int] = {}
    with TemporaryDirectory(prefix="fluidtool-fuzz-") as scratch:
        folder = Path(scratch) / "case"
        folder.mkdir()
        for model in (found[0], *[each for each in found if each.startup][:1]):
            _warm_up(model, folder)
        gc.collect()
        gc.freeze()  # so that the children share the pages of what is there by now
        for seed in budget.seeds():
            case = case_of(seed, found)
            result = outcome(case, folder)
            codes[result.code] = codes.get(result.code, 0) + 1
            fault = result.fault(case.command)
            place = re.sub(r"line \d+|0x[0-9a-f]+|'[^']*'", "", fault.partition(" error: ")[0])
            if fault and place not in told:
                told.add(place)
                yield Finding(f"seed {seed}, {case}", fault)
    print(f"exit codes: {_counted(codes)}")


def _counted(codes: Mapping[int, int]) -> str:
    return ", ".join(f"{code} {count:,}" for code, count in sorted(codes.items()))
