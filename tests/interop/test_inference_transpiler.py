"""Real Paddle 1.8.5 loads and runs the programs that our rewrites make, to the same numbers.

FLUIDTOOL_PADDLE_PYTHON names the interpreter of a Paddle 1.8.5; without it these tests are reported as not run.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.ir import Program
from fluidtool.passes.catalogue import INFERENCE_PASSES
from fluidtool.passes.pipeline import plan_passes
from tests.interop.test_saved_models import SCRIPT, feeds_of
from tests.support.checkout import paddle_environment
from tests.support.golden import array_difference, corpus, names_in, read_arrays, read_json

TOLERANCE = {"kind": "allclose", "rtol": 1e-4, "atol": 1e-5}
Rewrite = Callable[[Program, list[str]], Program]


@pytest.fixture(scope="module")
def paddle() -> str:
    """The interpreter of real Paddle."""
    interpreter = os.environ.get("FLUIDTOOL_PADDLE_PYTHON")
    if not interpreter:
        pytest.skip("not run: FLUIDTOOL_PADDLE_PYTHON does not name the interpreter of a real Paddle")
    return interpreter


def transpiled(program: Program, fetches: list[str]) -> Program:
    fluid.InferenceTranspiler().transpile(program, fluid.CPUPlace())
    return program


def passed(*names: str) -> Rewrite:
    """The program after these passes, in the global scope."""

    def rewrite(program: Program, fetches: list[str]) -> Program:
        for planned in plan_passes(names).passes:
            planned.run(program, fluid.global_scope(), fetches)
        return program

    return rewrite


def save_rewritten(folder: Path, target: Path, rewrite: Rewrite) -> dict[str, Any]:
    """Load the model of a case, rewrite it, save it; the files' names."""
    layout = "separate" if (folder / "separate").exists() else "combined"
    files = {"separate": (None, None), "combined": ("__model__", "__params__")}[layout]
    executor = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()), fluid.unique_name.guard():
        program, feeds, fetches = fluid.io.load_inference_model(str(folder / layout), executor, *files)
        program = rewrite(program, [variable.name for variable in fetches])
        fetched = [program.global_block().var(variable.name) for variable in fetches]
        fluid.io.save_inference_model(str(target), feeds, fetched, executor, program, *files)
    return {"folder": str(target), "model": files[0], "params": files[1]}


def run_in_paddle(paddle: str, folder: Path, rewrite: Rewrite) -> dict[str, dict[str, Any] | str]:
    """For each model what real Paddle computes after `rewrite`, by fetch, or why it does not."""
    jobs = []
    for name in names_in("models"):
        model = corpus("models") / name
        spec, arrays = read_json(model / "case.json"), read_arrays(model / "golden.npz")
        np.savez(folder / f"{name}.feed.npz", **feeds_of(spec, arrays))
        job = save_rewritten(model, folder / name, rewrite)
        jobs.append({**job, "feed": str(folder / f"{name}.feed.npz"), "out": str(folder / f"{name}.out.npz")})
    (folder / "jobs.json").write_text(json.dumps(jobs))
    done = subprocess.run(
        [paddle, str(SCRIPT), str(folder / "jobs.json")],
        capture_output=True,
        text=True,
        check=False,
        env=paddle_environment(),
    )
    results: dict[str, dict[str, Any] | str] = {}
    for name in names_in("models"):
        out, error = folder / f"{name}.out.npz", folder / f"{name}.out.npz.error"
        failure = error.read_text() if error.exists() else done.stderr
        results[name] = read_arrays(out) if out.exists() else failure[-600:]
    return results


@pytest.fixture(scope="module")
def plain(paddle: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any] | str]:
    """What real Paddle computes for the models as they are, on this machine."""
    return run_in_paddle(paddle, tmp_path_factory.mktemp("plain"), lambda program, fetches: program)


def differences(got: dict[str, dict[str, Any] | str], plain: dict[str, dict[str, Any] | str]) -> list[str]:
    wrong = []
    for name, want in plain.items():
        values = got[name]
        if isinstance(want, str) or isinstance(values, str):
            wrong.append(f"{name}: {want if isinstance(want, str) else values}")
            continue
        texts = {fetch: array_difference(values[fetch], want[fetch], TOLERANCE) for fetch in want}
        wrong += [f"{name}, {fetch}: {text}" for fetch, text in texts.items() if text]
    return wrong


def test_transpiled_models_give_their_numbers_in_real_paddle(paddle: str, plain: Any, tmp_path: Path) -> None:
    assert differences(run_in_paddle(paddle, tmp_path, transpiled), plain) == []


def test_models_after_all_inference_give_their_numbers_in_real_paddle(paddle: str, plain: Any, tmp_path: Path) -> None:
    assert differences(run_in_paddle(paddle, tmp_path, passed("all-inference")), plain) == []


@pytest.mark.parametrize("name", [known.name for known in INFERENCE_PASSES if known.saved])
def test_models_after_each_pass_give_their_numbers_in_real_paddle(
    paddle: str, plain: Any, tmp_path: Path, name: str
) -> None:
    assert differences(run_in_paddle(paddle, tmp_path, passed(name)), plain) == []
