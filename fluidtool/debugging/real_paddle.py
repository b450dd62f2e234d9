"""A model in real Paddle, in a process of another interpreter."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fluidtool.debugging import paddle_script
from fluidtool.debugging.places import places
from fluidtool.debugging.sides import Recording, same
from fluidtool.debugging.single_writes import with_single_writes
from fluidtool.errors import DependencyError, OperatorError, PolicyError, UsageError
from fluidtool.io.inference import strip_feed_fetch
from fluidtool.io.parameters import persistables
from fluidtool.ir import Program
from fluidtool.model import Model
from fluidtool.passes.security import Reach, not_allowed
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass
from fluidtool.runtime.dependencies import needed_operators
from fluidtool.tensor import LoDTensor, SelectedRows, numpy_dtype

TIMEOUT = 300.0
READABLE = frozenset({VarType.LOD_TENSOR, VarType.SELECTED_ROWS})
LOOPS = frozenset({"while", "conditional_block"})  # whose variables may outlive an iteration; recurrent links scopes


@dataclass(frozen=True, slots=True)
class PaddleSide:
    """A model that the Paddle of `interpreter` runs; at most `timeout` seconds at a time."""

    model: Model
    interpreter: str
    timeout: float = TIMEOUT
    versions: list[str] = field(default_factory=list)  # what the process said

    @property
    def computes(self) -> str:
        """Paddle and its version, once it has run."""
        return f"Paddle {self.versions[-1]}" if self.versions else "Paddle"

    def part(self, program: Program) -> PaddleSide:
        """Another program on the same parameters."""
        return replace(self, model=self.model.with_program(program))

    def outputs(self, feed: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
        """Run and read `names` alone."""
        return self._run(feed, names, names)

    def record(self, feed: Mapping[str, Any], names: Sequence[str]) -> Recording:
        """Run once; Paddle's Executor computes operator by operator, so reading every value changes nothing.

        The last values within loops and branches take a second run, in which these outlive their iteration; they are left out
        if that run fails or has other outputs.
        """
        where = places(self.model.program)
        found = self._run(feed, names, [*names, *(name for name, place in where.items() if not place.block)])
        inner = [name for name, place in where.items() if place.block]
        usual = {name: found[name] for name in names if name in found}
        return Recording(usual, {**feed, **self._within_loops(feed, names, inner, usual), **found})

    def _within_loops(
        self, feed: Mapping[str, Any], outputs: Sequence[str], inner: Sequence[str], usual: Mapping[str, Any]
    ) -> dict[str, Any]:
        if not inner:
            return {}
        try:
            found = self._run(feed, outputs, [*outputs, *inner])
        except OperatorError:
            return {}
        return found if all(name in found and same(found[name], value) for name, value in usual.items()) else {}

    def _run(self, feed: Mapping[str, Any], outputs: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
        self.model.check_feed(feed, outputs)
        program = self._program(outputs, {*names, *feed})
        with tempfile.TemporaryDirectory(prefix="fluidtool-compare-") as name:
            folder = Path(name)
            self._write(folder, program, feed, list(dict.fromkeys(names)))
            self._call(folder)
            return self._read(folder)

    def _program(self, outputs: Sequence[str], kept: set[str]) -> Program:
        """What the outputs need, with all values that are to be read as persistable variables."""
        program = with_single_writes(self.model.program).clone()
        strip_feed_fetch(program)
        block = program.global_block()
        block.ops = needed_operators(program, block.ops, set(outputs))
        within = {index for each in program.blocks for op in each.ops if op.type in LOOPS for index in op.sub_blocks()}
        for each in program.blocks:
            for var in each.vars.values():
                if var.name in kept and var.type in READABLE and (each.idx == 0 or each.idx in within):
                    var.persistable = True
        program.touch()
        return program

    def _write(self, folder: Path, program: Program, feed: Mapping[str, Any], names: Sequence[str]) -> None:
        refused = [found for found in not_allowed(program, self.model.policy) if found.reach is not Reach.ENDLESS]
        if refused:
            raise PolicyError(
                f"the model is not run in real Paddle: {refused[0].text}; allow it with --allow-files or --allow-network"
            )
        store = self.model.files.parameters
        given = {**{var.name: store[var.name] for var in persistables(program) if var.name in store}, **feed}
        arrays, items = dict[str, Any](), []
        for number, (name, value) in enumerate(given.items()):
            arrays[f"a{number}"], item = described(name, value)
            items.append({**item, "key": f"a{number}"})
        np.savez(folder / "values.npz", **arrays)
        (folder / "program.pb").write_bytes(program.serialize_to_string())
        (folder / "job.json").write_text(json.dumps({"set": items, "get": _readable(program, names)}))

    def _call(self, folder: Path) -> None:
        """Run the script; raises DependencyError for an interpreter without Paddle, UsageError for what is none."""
        command = [self.interpreter, os.path.abspath(paddle_script.__file__), str(folder)]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self.timeout,
                env=environment,
                cwd=folder,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise OperatorError(
                f"Paddle did not finish within {self.timeout:g} seconds; give it more with --timeout"
            ) from error
        except OSError as error:
            raise UsageError(
                f"--paddle {self.interpreter} cannot be started: {error.strerror or error}; name a Python that has Paddle"
            ) from error
        if not (folder / "found.json").is_file():
            last = _last_line(done.stderr) or f"exit code {done.returncode}"
            raise UsageError(
                f"--paddle {self.interpreter} did not run the model: {last}; name a Python that has Paddle"
            )

    def _read(self, folder: Path) -> dict[str, Any]:
        result = json.loads((folder / "found.json").read_text())
        if "import" in result:
            raise DependencyError(
                f"{self.interpreter} has no Paddle that can be imported: {result['import']}; name a Python that has it"
            )
        if "error" in result:
            raise OperatorError(f"Paddle failed: {_reason(result['error'])}")
        self.versions[:] = [str(result["version"])]
        with np.load(folder / "found.npz") as arrays:
            return {item["name"]: self._value(item, arrays[item["key"]]) for item in result["found"]}

    def _value(self, item: Mapping[str, Any], array: Any) -> Any:
        var = self.model.program.global_block().vars.get(item["name"])
        if array.dtype == np.uint16 and var is not None and var.dtype == VarType.BF16:
            array = array.view(numpy_dtype(VarType.BF16))
        if item["rows"] is not None:
            return SelectedRows(item["rows"], item["height"], array)
        return LoDTensor(array, item["lod"])


def _readable(program: Program, names: Sequence[str]) -> list[tuple[str, bool]]:
    """Those that the run leaves in the scope, and whether each is a SelectedRows."""
    kept = {
        var.name: var.type == VarType.SELECTED_ROWS
        for var in program.list_vars()
        if var.persistable and var.type in READABLE
    }
    return [(name, kept[name]) for name in names if name in kept]


def described(name: str, value: Any) -> tuple[Any, dict[str, Any]]:
    """A value as an array of numpy and what else it is."""
    if isinstance(value, SelectedRows):
        return _plain(value.tensor.numpy()), {"name": name, "lod": [], "rows": value.rows(), "height": value.height()}
    if not isinstance(value, LoDTensor):
        raise UsageError(f"{name} is a {type(value).__name__}, which cannot be given to real Paddle")
    return _plain(value.numpy()), {"name": name, "lod": value.recursive_sequence_lengths(), "rows": None, "height": 0}


def _plain(array: Any) -> Any:
    """bfloat16 as Paddle takes it from numpy, uint16."""
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def _reason(text: str) -> str:
    """The line that names an error in a report of Paddle: the last one, behind the call stacks of Python and C++."""
    told = re.findall(r"^[\w.]*(?:Error|NotMet|Exception): *\S.*$", text, re.MULTILINE)
    return str(told[-1] if told else _last_line(text))[:500]
