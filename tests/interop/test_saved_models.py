"""Real Paddle loads and runs what we save, to the same numbers.

FLUIDTOOL_PADDLE_PYTHON names the interpreter of a Paddle 1.8.5, FLUIDTOOL_PADDLE2_PYTHON that of a 2.6.2; without them
these tests are reported as not run.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from tests.support.checkout import paddle_environment
from tests.support.golden import array_difference, corpus, names_in, read_arrays, read_json

SCRIPT = Path(__file__).parent / "paddle_runs.py"
TOLERANCE = {"kind": "allclose", "rtol": 1e-4, "atol": 1e-5}
# Models with operators that Paddle 2.6.2 no longer registers, so that no file of theirs runs there.
GONE_IN_26 = {"lm_staticrnn": "rnn_memory_helper", "text_lstm_pool_zoo": "lstmp"}


@pytest.fixture(scope="module", params=["FLUIDTOOL_PADDLE_PYTHON", "FLUIDTOOL_PADDLE2_PYTHON"])
def paddle(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The variable's name and the interpreter that it names."""
    interpreter = os.environ.get(request.param)
    if not interpreter:
        pytest.skip(f"not run: {request.param} does not name the interpreter of a real Paddle")
    return request.param, interpreter


def feeds_of(spec: dict[str, Any], arrays: dict[str, Any]) -> dict[str, Any]:
    feed: dict[str, Any] = {}
    for index, entry in enumerate(spec["feeds"]):
        feed[entry["name"]] = arrays[f"feed_{index}"]
        levels = [arrays[f"feed_{index}_lod_{level}"].tolist() for level in range(entry.get("lod_level", 0))]
        if levels:
            feed[entry["name"] + "@lod"] = json.dumps([np.diff(level).tolist() for level in levels])
    return feed


def save_again(folder: Path, target: Path) -> dict[str, Any]:
    """Load the model of a case with our library and save it; the files' names."""
    layout = "separate" if (folder / "separate").exists() else "combined"
    files = {"separate": (None, None), "combined": ("__model__", "__params__")}[layout]
    executor = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()), fluid.unique_name.guard():
        program, feeds, fetches = fluid.io.load_inference_model(str(folder / layout), executor, *files)
        fluid.io.save_inference_model(str(target), feeds, fetches, executor, program, *files)
    return {"folder": str(target), "model": files[0], "params": files[1]}


def test_models_saved_by_us_give_their_numbers_in_real_paddle(paddle: tuple[str, str], tmp_path: Path) -> None:
    variable, interpreter = paddle
    names = names_in("models")
    gone = GONE_IN_26 if variable == "FLUIDTOOL_PADDLE2_PYTHON" else {}
    jobs, specs = [], {}
    for name in names:
        folder = corpus("models") / name
        specs[name] = read_json(folder / "case.json"), read_arrays(folder / "golden.npz")
        job = save_again(folder, tmp_path / name)
        np.savez(tmp_path / f"{name}.feed.npz", **feeds_of(*specs[name]))
        jobs.append({**job, "feed": str(tmp_path / f"{name}.feed.npz"), "out": str(tmp_path / f"{name}.out.npz")})
        if variable == "FLUIDTOOL_PADDLE2_PYTHON" and job["model"] is None:
            jobs[-1]["model"] = "__model__"
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    done = subprocess.run(
        [interpreter, str(SCRIPT), str(tmp_path / "jobs.json")],
        capture_output=True,
        text=True,
        check=False,
        env=paddle_environment(),
    )
    wrong = []
    for name in names:
        out = tmp_path / f"{name}.out.npz"
        if not out.exists():
            error = tmp_path / f"{name}.out.npz.error"
            text = error.read_text() if error.exists() else done.stderr[-600:]
            if name not in gone or gone[name] not in text:
                wrong.append(f"{name}: not run; {text[-600:]}")
            continue
        got = read_arrays(out)
        for index, _ in enumerate(specs[name][0]["fetches"]):
            text = array_difference(got[f"fetch_{index}"], specs[name][1][f"fetch_{index}"], TOLERANCE)
            if text:
                wrong.append(f"{name}, fetch {index}: {text}")
    assert wrong == []
