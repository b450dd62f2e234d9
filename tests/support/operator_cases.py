"""Packed operator cases: a program that real Paddle 1.8.5 ran, its inputs and its results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fluidtool.ir import Program
from fluidtool.runtime import Executor, Scope
from fluidtool.tensor.streams import write_tensor
from tests.support.golden import corpus, difference, fill_scope, read_arrays, read_json, value_of


@dataclass(frozen=True)
class OperatorCase:
    """A case: its description, its arrays, its program."""

    spec: dict[str, Any]
    arrays: dict[str, Any]
    program: Program

    def run(self, executor: Executor, scope: Scope) -> list[Any]:
        """Run it once, in the current folder; the fetched values."""
        fill_scope(scope, self.spec["scope"], self.arrays)
        feed = {entry["name"]: value_of(entry, self.arrays) for entry in self.spec["feeds"]}
        make_files(self.program, [*self.spec["fetch"], *self.spec["scope_after"]], self.arrays)
        return executor.run(self.program, feed, [entry["name"] for entry in self.spec["fetch"]], scope)

    def differences(self, fetched: list[Any], scope: Scope) -> list[str]:
        """What is not as in real Paddle, a line each."""
        values = list(zip(self.spec["fetch"], fetched, strict=True))
        for entry in self.spec["scope_after"]:
            var = scope.find_var(entry["name"])
            values.append((entry, None if var is None else var.value))
        found = ((entry["name"], self._difference(entry, value)) for entry, value in values)
        return [f"{name}: {what}" for name, what in found if what is not None]

    def _difference(self, entry: dict[str, Any], value: Any) -> str | None:
        if self.spec["rng_ops"] and "key" in entry:  # other random numbers: shapes and data types are compared
            entry = {name: item for name, item in entry.items() if name != "key"}
        return difference(value, entry, self.arrays, self.spec["tolerance"])


def operator_case(name: str) -> OperatorCase:
    """A case of the corpus."""
    folder = corpus("optest") / name
    program = Program.parse_from_string((folder / "program.pb").read_bytes())
    return OperatorCase(read_json(folder / "case.json"), read_arrays(folder / "arrays.npz"), program)


def make_files(program: Program, entries: list[dict[str, Any]], arrays: dict[str, Any]) -> None:
    """The files that `load` operators read and no `save` operator writes, from the values real Paddle had afterwards."""
    known = {entry["name"]: entry for entry in entries}
    ops = program.global_block().ops
    saved = {op.attr("file_path") for op in ops if op.type in ("save", "save_combine")}
    for op in ops:
        if op.type in ("load", "load_combine") and op.attr("file_path") not in saved:
            path = Path(op.attr("file_path"))
            path.parent.mkdir(parents=True, exist_ok=True)
            values = [value_of(known[name], arrays) for name in op.output("Out")]
            path.write_bytes(b"".join(bytes(part) for value in values for part in write_tensor(value)))
