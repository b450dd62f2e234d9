"""How much each operator case, model and training step may ask of the GPU: `budgets.json`, a row of KINDS for each.

`python -m tests.gpu.budgets` measures them all on the stand-in and writes the file, after a change that asks less.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping
from contextlib import chdir
from functools import cache, partial
from pathlib import Path

from tests.gpu.standin import installed
from tests.gpu.standin.events import KINDS
from tests.support.golden import names_in

FILE = Path(__file__).with_name("budgets.json")
Budgets = dict[str, dict[str, list[int]]]


@cache
def budgets() -> Budgets:
    """By kind of case and its name: a number for each of KINDS."""
    return json.loads(FILE.read_text()) if FILE.exists() else {}  # type: ignore[no-any-return]


def operator_cases() -> list[str]:
    """One packed case of each operator and of each gradient."""
    kinds: dict[str, str] = {}
    for name in names_in("optest"):
        kinds.setdefault(name.rpartition("__")[0], name)
    return list(kinds.values())


def judgement(kind: str, name: str, counts: Mapping[str, int]) -> str | None:
    """What is wrong with the counts of a case, in a line; None if they are its budget."""
    budget, found = budgets().get(kind, {}).get(name), row(counts)
    if budget == found:
        return None
    if budget is None:
        return f"{name} has no budget: python -m tests.gpu.budgets"
    changes = [f"{a} -> {b} {what}" for what, a, b in zip(KINDS, budget, found, strict=True) if a != b]
    more = any(b > a for a, b in zip(budget, found, strict=True))
    advice = "it asks more of the GPU" if more else "it asks less; keep that: python -m tests.gpu.budgets"
    return f"{name}: {', '.join(changes)}; {advice}"


def row(counts: Mapping[str, int]) -> list[int]:
    """Counts as a row of the file."""
    return [counts.get(kind, 0) for kind in KINDS]


def measured() -> Budgets:
    """What all cases ask now."""
    from tests.gpu import cases

    kinds: dict[str, tuple[list[str], Callable[[str], Mapping[str, int]]]] = {
        "operators": (operator_cases(), partial(cases.by_cupy, cases.operator_counts)),
        "models": (list(names_in("models")), partial(cases.by_cupy, cases.model_counts)),
        "models as graphs": (list(names_in("models")), cases.graph_counts),
        "training steps": (list(names_in("train")), partial(cases.by_cupy, cases.training_counts)),
        "training steps as graphs": (list(names_in("train")), cases.step_counts),
    }
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        return {kind: {name: _one(count, name) for name in names} for kind, (names, count) in kinds.items()}


def _one(count: Callable[[str], Mapping[str, int]], name: str) -> list[int]:
    with installed():
        return row(count(name))


def text(found: Budgets) -> str:
    """The file: a line for each case, so that a change is one line of a diff."""
    kinds = []
    for kind, rows in found.items():
        lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
        kinds.append(f"  {json.dumps(kind)}: {{\n{lines}\n  }}")
    return "{\n" + ",\n".join(kinds) + "\n}\n"


def main() -> None:
    """Write the file."""
    argparse.ArgumentParser(prog="python -m tests.gpu.budgets", description=__doc__).parse_args()
    FILE.write_text(text(measured()))


if __name__ == "__main__":
    main()
