"""Programs that the inference rewrites made are loaded and run by real Paddle 1.8.5, to the same numbers.

FLUIDTOOL_PADDLE_PYTHON names the interpreter of a Paddle 1.8.5; without it these tests are reported as not run.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.passes.catalogue import INFERENCE_PASSES, find_pass
from tests.interop.test_saved_models import SCRIPT, feeds_of
from tests.passes.inference import (
    test_constants,
    test_gelu,
    test_layer_norm,
    test_recurrent,
    test_sequence_pooling,
    test_summed_products,
)
from tests.passes.inference.net import Net
from tests.support.checkout import paddle_environment
from tests.support.golden import array_difference, corpus, names_in, read_arrays, read_json

TOLERANCE = {"kind": "allclose", "rtol": 1e-4, "atol": 1e-5}
SAVED = [known.name for known in INFERENCE_PASSES if known.saved]
CASES: dict[str, tuple[Callable[[], Net], str, tuple[str, ...]]] = {
    "constants": (test_constants.transposed_weight, "fold-constants", ("out",)),
    "gelu": (test_gelu.erf_form, "fuse-gelu", ("out",)),
    "gelu of tanh": (test_gelu.tanh_form, "fuse-gelu", ("out",)),
    "layer_norm": (test_layer_norm.written_out, "fuse-layer-norm", ("out",)),
    "layer_norm without scale": (lambda: test_layer_norm.written_out(affine=False), "fuse-layer-norm", ("n",)),
}
for number, form in enumerate(test_summed_products.FORMS):
    if "lod" not in form:
        CASES[f"products {number}"] = (partial(test_summed_products.products, **form), "fuse-sum-of-products", ("out",))
for kind in test_sequence_pooling.POOL_TYPES:
    for cvm in (False, True):
        build = partial(test_sequence_pooling.pooled, kind, cvm, last=1)
        CASES[f"pooled by {kind}, cvm {cvm}"] = (build, "fuse-seqpool-concat", ("out",))
for options in [*test_recurrent.OPTIONS, {"peepholes": True}]:
    both = ("hidden", "cell")
    CASES[f"lstm {options}"] = (partial(test_recurrent.layer, **options), "fuse-fc-lstm", both)
    CASES[f"words {options}"] = (partial(test_recurrent.layer, words=True, **options), "fuse-embedding-lstm", both)
    if "peepholes" not in options:
        CASES[f"gru {options}"] = (partial(test_recurrent.layer, "gru", **options), "fuse-fc-gru", ("hidden",))


@pytest.fixture(scope="module")
def paddle() -> str:
    """The interpreter."""
    interpreter = os.environ.get("FLUIDTOOL_PADDLE_PYTHON")
    if not interpreter:
        pytest.skip("not run: FLUIDTOOL_PADDLE_PYTHON does not name the interpreter of a real Paddle 1.8.5")
    return interpreter


def run_all(interpreter: str, jobs: Sequence[dict[str, Any]], folder: Path) -> list[dict[str, Any] | str]:
    """What real Paddle fetches for every job, or its error."""
    (folder / "jobs.json").write_text(json.dumps(list(jobs)))
    done = subprocess.run(
        [interpreter, str(SCRIPT), str(folder / "jobs.json")],
        capture_output=True,
        text=True,
        check=False,
        env=paddle_environment(),
    )
    answers: list[dict[str, Any] | str] = []
    for job in jobs:
        error = Path(job["out"] + ".error")
        if Path(job["out"]).exists():
            answers.append(read_arrays(Path(job["out"])))
        else:
            answers.append(error.read_text()[-600:] if error.exists() else done.stderr[-600:])
    return answers


def save(program: Any, scope: Any, feeds: Sequence[str], fetches: Sequence[str], folder: Path) -> None:
    """Write an inference model whose fetches keep their names."""
    executor = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(scope), fluid.unique_name.guard():
        targets = [program.global_block().var(name) for name in fetches]
        fluid.io.save_inference_model(str(folder), list(feeds), targets, executor, program)


def test_every_fused_operator_computes_what_the_operators_did(paddle: str, tmp_path: Path) -> None:
    jobs, wanted = [], []
    for number, (build, rewrite, fetches) in enumerate(CASES.values()):
        net = build()
        wanted.append(net.run(*fetches))
        assert find_pass(rewrite).run(net.program, net.scope, fetches).changed
        folder = tmp_path / str(number)
        save(net.program, net.scope, list(net.feeds), fetches, folder)
        arrays: dict[str, Any] = {}
        for name, value in net.feeds.items():
            arrays[name] = value.numpy()
            if value.offsets:
                arrays[name + "@lod"] = json.dumps(value.recursive_sequence_lengths())
        np.savez(f"{folder}.feed.npz", **arrays)
        job = {"folder": str(folder), "model": None, "params": None}
        jobs.append({**job, "feed": f"{folder}.feed.npz", "out": f"{folder}.out.npz"})
    wrong = []
    for name, answer, values in zip(CASES, run_all(paddle, jobs, tmp_path), wanted, strict=True):
        if isinstance(answer, str):
            wrong.append(f"{name}: {answer}")
            continue
        for index, value in enumerate(values):
            text = array_difference(answer[f"fetch_{index}"], value, TOLERANCE)
            if text:
                wrong.append(f"{name}, fetch {index}: {text}")
    assert wrong == []


def test_rewritten_models_give_their_numbers(paddle: str, tmp_path: Path) -> None:
    names = names_in("models")
    jobs, specs = [], {}
    for name in names:
        folder = corpus("models") / name
        specs[name] = read_json(folder / "case.json"), read_arrays(folder / "golden.npz")
        files = (None, None) if (folder / "separate").exists() else ("__model__", "__params__")
        executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
        with fluid.scope_guard(scope):
            where = folder / ("separate" if files[0] is None else "combined")
            program, feeds, targets = fluid.io.load_inference_model(str(where), executor, *files)
        fetches = [target.name for target in targets]
        for rewrite in SAVED:
            find_pass(rewrite).run(program, scope, fetches)
        save(program, scope, feeds, fetches, tmp_path / name)
        np.savez(tmp_path / f"{name}.feed.npz", **feeds_of(*specs[name]))
        job = {"folder": str(tmp_path / name), "model": None, "params": None}
        jobs.append({**job, "feed": str(tmp_path / f"{name}.feed.npz"), "out": str(tmp_path / f"{name}.out.npz")})
    wrong = []
    for name, answer in zip(names, run_all(paddle, jobs, tmp_path), strict=True):
        if isinstance(answer, str):
            wrong.append(f"{name}: {answer}")
            continue
        for index, _ in enumerate(specs[name][0]["fetches"]):
            text = array_difference(answer[f"fetch_{index}"], specs[name][1][f"fetch_{index}"], TOLERANCE)
            if text:
                wrong.append(f"{name}, fetch {index}: {text}")
    assert wrong == []
