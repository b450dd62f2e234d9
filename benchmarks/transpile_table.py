"""What every pass does to whole models: `python -m benchmarks.transpile_table FOLDER...`.

Each folder holds models, or folders with models; a `golden*.npz` with a `case*.json` beside a model says what to feed it
and what Paddle computed, without one the feed is random. For every pass alone, for all inference rewrites and for all with
the memory passes behind them: are the outputs kept (bit by bit, or within 1e-5 where a pass rounds in another order), does
a second run find nothing more, how many operators, how much memory for activations, how long does a run take. Times are
medians of runs in turns; OPENBLAS_NUM_THREADS=1 makes them comparable. The exit code is 1 if anything was not kept.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fluidtool.cli.render import Table, number, plain, size, table
from fluidtool.errors import FluidError
from fluidtool.model import Model, load
from fluidtool.passes.catalogue import INFERENCE_PASSES
from fluidtool.passes.comparison import Runnable, compare_runs, compare_times
from fluidtool.passes.peak import estimate, until_deleted
from fluidtool.passes.pipeline import ALL_INFERENCE, MEMORY_OPTIMIZE, RELEASE_MEMORY, plan_passes
from fluidtool.random_feed import random_feed
from fluidtool.runtime import Executor, Scope
from fluidtool.tensor import LoDTensor
from fluidtool.tensor.compare import compare

LEVEL_1 = f"{MEMORY_OPTIMIZE} (level 1)"
EVERYTHING = (ALL_INFERENCE, MEMORY_OPTIMIZE, RELEASE_MEMORY)
SEQUENCES: dict[str, tuple[str, ...]] = {
    **{known.name: (known.name,) for known in INFERENCE_PASSES},
    ALL_INFERENCE: (ALL_INFERENCE,),
    MEMORY_OPTIMIZE: (MEMORY_OPTIMIZE,),
    LEVEL_1: (MEMORY_OPTIMIZE,),
    RELEASE_MEMORY: (RELEASE_MEMORY,),
    "all and memory": EVERYTHING,
}


@dataclass(frozen=True)
class Case:
    """A model with what it is fed; what Paddle computed and how close that is to be met, where somebody has noted it."""

    name: str
    model: Model
    scope: Scope
    feed: Mapping[str, LoDTensor]
    expected: Mapping[str, LoDTensor]
    rtol: float = 0.0
    atol: float = 0.0


@dataclass(frozen=True)
class Row:
    """One sequence of passes over one model. Pairs are before and after; `paddle` is None where nobody noted its numbers."""

    model: str
    passes: str
    done: int
    left: int
    kept: bool
    exact: bool
    difference: float
    idempotent: bool
    paddle: tuple[bool, bool] | None
    operators: tuple[int, int]
    activations: tuple[int, int]
    live: tuple[int, int]
    seconds: tuple[float, float] | None

    @property
    def good(self) -> bool:
        """Whether everything that was promised is kept."""
        return self.kept and self.idempotent and self.paddle != (True, False)


# ---------------------------------------------------------------- models
def cases(folder: Path, only: Sequence[str] = ()) -> Iterator[Case]:
    """The models in a folder and in the folders below it."""
    for child in [folder, *sorted(entry for entry in folder.iterdir() if entry.is_dir())]:
        place = next((child / name for name in ("separate", "combined", "model") if (child / name).is_dir()), None)
        noted = sorted(child.glob("case*.json"))
        if place is None or (only and child.name not in only):
            continue
        model = load(place)
        scope = Scope()
        for name, value in model.files.parameters.items():
            scope.var(name).value = value
        if not noted:
            yield Case(child.name, model, scope, random_feed(model), {})
            continue
        note = json.loads(noted[0].read_text())
        with np.load(next(child.glob("golden*.npz"))) as archive:
            arrays = {name: archive[name] for name in archive.files}
        feed = {entry["name"]: tensor(arrays, f"feed_{i}") for i, entry in enumerate(note["feeds"])}
        names = model.fetches
        expected = {name: tensor(arrays, f"fetch_{i}") for i, name in enumerate(names)}
        yield Case(child.name, model, scope, feed, expected, **note["tolerance"])


def tensor(arrays: Mapping[str, Any], key: str) -> LoDTensor:
    """An array with the offsets that stand beside it."""
    levels = sorted(name for name in arrays if name.startswith(f"{key}_lod_"))
    return LoDTensor(arrays[key], [arrays[name].tolist() for name in levels])


# ---------------------------------------------------------------- measuring
def row(case: Case, label: str, repeat: int) -> Row:
    """Run one sequence of passes over a model, once and once again, and compare."""
    plan = plan_passes(SEQUENCES[label], level=int(label == LEVEL_1))
    program, names = case.model.program, case.model.fetches
    outcome = plan.run(program, case.scope, names)
    again = plan.run(outcome.program, outcome.scope, names)
    before, after = Runnable(program, case.scope), Runnable(outcome.program, outcome.scope)
    items = compare_runs(before, after, case.feed, names, exact=plan.exact)
    decisions = [decision for stage in outcome.stages for decision in stage.result.decisions]
    changed = program.serialize_to_string() != outcome.program.serialize_to_string()
    shapes = {name: value.shape() for name, value in case.feed.items()}
    return Row(
        case.name,
        label,
        sum(decision.done for decision in decisions),
        sum(not decision.done for decision in decisions),
        all(item.agrees for item in items),
        plan.exact,
        max((item.largest_error for item in items), default=0.0),
        again.program.serialize_to_string() == outcome.program.serialize_to_string(),
        (_as_paddle(case, before), _as_paddle(case, after)) if case.expected else None,
        (sum(len(b.ops) for b in program.blocks), sum(len(b.ops) for b in outcome.program.blocks)),
        (until_deleted(program, shapes), until_deleted(outcome.program, shapes)),
        (estimate(program, shapes).at_once, estimate(outcome.program, shapes).at_once),
        compare_times(before, after, case.feed, names, repeat) if changed and repeat else None,
    )


def _as_paddle(case: Case, side: Runnable) -> bool:
    values, _ = side.run(Executor(seed=1, engine="numpy"), case.feed, list(case.expected))
    return all(compare(n, values[n], value, case.rtol, case.atol).agrees for n, value in case.expected.items())


# ---------------------------------------------------------------- showing
def text(rows: Sequence[Row]) -> Table:
    """The rows in which anything happened; two columns where there are a before and an after."""
    out = table(
        "",
        "model",
        "passes",
        ">done",
        ">left",
        ">ops",
        ">",
        ">kept",
        ">",
        ">live",
        ">",
        ">ms",
        ">",
        ">difference",
        "verdict",
    )
    for each in rows:
        times = ["", ""] if each.seconds is None else [number(value * 1000, 3) for value in each.seconds]
        memory = [size(value) for value in (*each.activations, *each.live)]
        counts = each.done, each.left, *each.operators
        out.add(each.model, each.passes, *counts, *memory, *times, number(each.difference, 2), verdict(each))
    return out


def verdict(each: Row) -> str:
    """'bit by bit', 'within 1e-5', or what is wrong."""
    faults = [] if each.kept else ["OUTPUTS DIFFER"]
    faults += [] if each.idempotent else ["NOT IDEMPOTENT"]
    faults += ["NO LONGER AS PADDLE"] if each.paddle == (True, False) else []
    return ", ".join(faults) or ("bit by bit" if each.exact else "within 1e-5")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and show; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--models", nargs="+", default=(), help="only these")
    parser.add_argument("--passes", nargs="+", choices=SEQUENCES, default=list(SEQUENCES), help="only these")
    parser.add_argument("--repeat", type=int, default=5, help="runs that a median is of; 0 measures no time")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    options = parser.parse_args(arguments)
    rows, refused = [], []
    for folder in options.folders:
        for case in cases(folder, options.models):
            print(case.name, file=sys.stderr)
            for label in options.passes:
                try:
                    rows.append(row(case, label, options.repeat))
                except FluidError as error:
                    refused.append(f"{case.name}, {label}: {error}")
    if options.json:
        print(json.dumps({"rows": [asdict(each) for each in rows], "refused": refused}, indent=2))
    else:
        shown = [each for each in rows if each.done or not each.good or each.passes == ALL_INFERENCE]
        print(plain(text(shown)), end="")
    models = len({each.model for each in rows})
    wrong = [each for each in rows if not each.good]
    print(
        f"{models} models, {len(rows)} runs of passes, {len(wrong)} not kept, {len(refused)} refused", file=sys.stderr
    )
    for line in refused:
        print(f"refused: {line}", file=sys.stderr)
    return 1 if wrong or refused else 0


if __name__ == "__main__":
    sys.exit(main())
