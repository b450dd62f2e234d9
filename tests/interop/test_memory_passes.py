"""Real Paddle runs what the memory passes made, to the same bits as the program before.

FLUIDTOOL_PADDLE_PYTHON names the interpreter of a Paddle 1.8.5, FLUIDTOOL_PADDLE2_PYTHON that of a 2.6.2; without them
these tests are reported as not run. Under 2.6.2 only inference models run, and without `delete_var`, at which it ends.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.ir import Program
from fluidtool.passes.memory_optimize import memory_optimize
from fluidtool.passes.release_memory import release_memory
from tests.interop.test_saved_models import GONE_IN_26, feeds_of, save_again
from tests.support.checkout import paddle_environment
from tests.support.golden import corpus, names_in, read_arrays, read_json

HERE = Path(__file__).parent
STEPS = 2
# Training with DynamicRNN and `delete_var` varies from run to run in real Paddle, by its own release_memory too.
VARYING = {"seq2seq_att_adam"}
Rewrite = Callable[[Program, Sequence[str]], Any]


def both(program: Program, skip: Sequence[str]) -> None:
    memory_optimize(program, list(skip), level=1)
    release_memory(program, list(skip))


REWRITES: dict[str, Rewrite] = {
    "before": lambda program, skip: None,
    "level 0": lambda program, skip: memory_optimize(program, list(skip)),
    "level 1": lambda program, skip: memory_optimize(program, list(skip), level=1),
    "release": lambda program, skip: release_memory(program, list(skip)),
    "level 1, release": both,
}


def interpreter_of(variable: str) -> str:
    interpreter = os.environ.get(variable)
    if not interpreter:
        pytest.skip(f"not run: {variable} does not name the interpreter of a real Paddle")
    return interpreter


def run(interpreter: str, script: str, jobs: list[dict[str, Any]], folder: Path) -> str:
    """Let real Paddle do the jobs; what it said last, for messages."""
    (folder / "jobs.json").write_text(json.dumps(jobs))
    done = subprocess.run(
        [interpreter, str(HERE / script), str(folder / "jobs.json")],
        capture_output=True,
        text=True,
        check=False,
        env=paddle_environment(),
    )
    return done.stderr[-600:]


def wrong(jobs: list[dict[str, Any]], said: str) -> list[str]:
    """The jobs that did not run, or gave other bits than the first one of the same case."""
    found, first = [], {}
    for job in jobs:
        out, error = Path(job["out"]), Path(job["out"] + ".error")
        if not out.exists():
            found.append(f"{job['case']}, {job['rewrite']}: {error.read_text()[-600:] if error.exists() else said}")
            continue
        values = read_arrays(out)
        plain = first.setdefault(job["case"], values)
        same = plain.keys() == values.keys() and all(
            plain[name].shape == values[name].shape and plain[name].tobytes() == values[name].tobytes()
            for name in plain
        )
        if not same:
            found.append(f"{job['case']}, {job['rewrite']}: other bits than before")
    return found


def test_training_programs(tmp_path: Path) -> None:
    interpreter = interpreter_of("FLUIDTOOL_PADDLE_PYTHON")
    jobs = []
    for case in names_in("train"):
        folder = corpus("train") / case
        spec, stream = read_json(folder / "case.json"), read_arrays(folder / "stream.npz")
        np.savez(tmp_path / f"{case}.feed.npz", **feeds_by_step(spec, stream))
        for number, (rewrite, change) in enumerate(REWRITES.items()):
            if case in VARYING and "release" in rewrite:
                continue
            program = Program.parse_from_string((folder / "main.pb").read_bytes())
            change(program, [spec["loss"], spec["lr"]])
            main = tmp_path / f"{case}.{number}.pb"
            main.write_bytes(program.serialize_to_string())
            job = {"case": case, "rewrite": rewrite, "folder": str(folder), "main": str(main), "steps": STEPS}
            job |= {"fetch": [spec["loss"], spec["lr"]], "final": spec["final"]}
            job |= {"feed": str(tmp_path / f"{case}.feed.npz"), "out": str(tmp_path / f"{case}.{number}.npz")}
            jobs.append(job)
    said = run(interpreter, "paddle_steps.py", jobs, tmp_path)
    assert wrong(jobs, said) == []


def feeds_by_step(spec: dict[str, Any], stream: dict[str, Any]) -> dict[str, Any]:
    feeds: dict[str, Any] = {}
    for step in range(STEPS):
        for index, entry in enumerate(spec["feeds"]):
            key = f"step{step}_feed{index}"
            feeds[f"{step}/{entry['name']}"] = stream[key]
            levels = [np.diff(stream[f"{key}_lod{level}"]).tolist() for level in range(entry["lod_level"])]
            if levels:
                feeds[f"{step}/{entry['name']}@lod"] = json.dumps(levels)
    return feeds


@pytest.mark.parametrize("variable", ["FLUIDTOOL_PADDLE_PYTHON", "FLUIDTOOL_PADDLE2_PYTHON"])
def test_inference_models(variable: str, tmp_path: Path) -> None:
    interpreter = interpreter_of(variable)
    jobs = []
    for case in names_in("models"):
        if variable == "FLUIDTOOL_PADDLE2_PYTHON" and case in GONE_IN_26:
            continue
        folder = corpus("models") / case
        feeds = feeds_of(read_json(folder / "case.json"), read_arrays(folder / "golden.npz"))
        np.savez(tmp_path / f"{case}.feed.npz", **feeds)
        for number, (rewrite, change) in enumerate(REWRITES.items()):
            if variable == "FLUIDTOOL_PADDLE2_PYTHON" and "release" in rewrite:
                continue
            target = tmp_path / f"{case}.{number}"
            job = save_again(folder, target)
            rewrite_file(target / (job["model"] or "__model__"), change)
            if variable == "FLUIDTOOL_PADDLE2_PYTHON":
                job["model"] = job["model"] or "__model__"
            job |= {"case": case, "rewrite": rewrite, "out": str(tmp_path / f"{case}.{number}.npz")}
            jobs.append({**job, "feed": str(tmp_path / f"{case}.feed.npz")})
    said = run(interpreter, "paddle_runs.py", jobs, tmp_path)
    assert wrong(jobs, said) == []


def rewrite_file(path: Path, change: Rewrite) -> None:
    program = fluid.Program.parse_from_string(path.read_bytes())
    change(program, [])
    path.write_bytes(program.serialize_to_string())
