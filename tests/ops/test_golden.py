"""Every packed operator case: a program that real Paddle 1.8.5 ran, its inputs and its results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fluidtool.ir import Program
from fluidtool.runtime import Executor, Scope
from fluidtool.tensor.streams import write_tensor
from tests.support.golden import corpus, difference, fill_scope, names_in, read_arrays, read_json, value_of

CASES = names_in("optest")


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


@pytest.mark.parametrize("case", CASES)
def test_operator_gives_the_numbers_of_real_paddle(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = corpus("optest") / case
    spec, arrays = read_json(folder / "case.json"), read_arrays(folder / "arrays.npz")
    program = Program.parse_from_string((folder / "program.pb").read_bytes())
    scope = Scope()
    fill_scope(scope, spec["scope"], arrays)
    feed = {entry["name"]: value_of(entry, arrays) for entry in spec["feeds"]}
    monkeypatch.chdir(tmp_path)
    make_files(program, [*spec["fetch"], *spec["scope_after"]], arrays)

    fetched = Executor().run(program, feed, [entry["name"] for entry in spec["fetch"]], scope)

    values = list(zip(spec["fetch"], fetched, strict=True))
    for entry in spec["scope_after"]:
        var = scope.find_var(entry["name"])
        values.append((entry, None if var is None else var.value))
    for entry, value in values:
        if spec["rng_ops"] and "key" in entry:
            entry = {name: item for name, item in entry.items() if name != "key"}
        found = difference(value, entry, arrays, spec["tolerance"])
        assert found is None, f"{entry['name']}: {found}"
