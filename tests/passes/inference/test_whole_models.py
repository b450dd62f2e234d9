"""Every rewrite, and all together, on whole models of real Paddle: outputs stay, and a second run changes nothing."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from fluidtool.ir import Program
from fluidtool.model import Model, load
from fluidtool.passes.catalogue import INFERENCE_PASSES
from fluidtool.passes.pipeline import plan_passes
from fluidtool.runtime import Executor, Scope
from fluidtool.tensor import LoDTensor
from tests.support.golden import corpus, names_in, read_arrays, read_json

ROUNDING = 1e-5  # of the largest number of an output
MODELS = names_in("models")
RUNTIME = ["all-inference", "fuse-conv-bias", "fuse-conv-residual", "fuse-conv-activation"]


@cache
def model(name: str) -> tuple[Model, dict[str, LoDTensor]]:
    """A model with its parameters, and its feeds."""
    folder = corpus("models") / name
    if (folder / "separate").exists():
        loaded = load(folder / "separate")
    else:
        loaded = load(folder / "combined", model_filename="__model__", params="__params__")
    loaded.executor  # noqa: B018  puts the parameters into the scope
    spec, arrays = read_json(folder / "case.json"), read_arrays(folder / "golden.npz")
    feeds = {}
    for index, entry in enumerate(spec["feeds"]):
        lod = [arrays[f"feed_{index}_lod_{level}"].tolist() for level in range(entry.get("lod_level", 0))]
        feeds[entry["name"]] = LoDTensor(arrays[f"feed_{index}"], lod)
    return loaded, feeds


@cache
def outputs(name: str) -> list[Any]:
    loaded, _ = model(name)
    return run(name, loaded.program, loaded.scope)


def run(name: str, program: Program, scope: Scope) -> list[Any]:
    loaded, feeds = model(name)
    values = Executor().run(program, feeds, loaded.fetches, scope, needed_only=True)
    return [value.numpy() for value in values]


def check(name: str, *passes: str) -> None:
    loaded, _ = model(name)
    plan = plan_passes(passes)
    program, scope, _ = plan.run(loaded.program, loaded.scope, loaded.fetches)
    for got, want in zip(run(name, program, scope), outputs(name), strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        if plan.exact or want.dtype.kind != "f":
            np.testing.assert_array_equal(got, want)
        else:
            np.testing.assert_allclose(got, want, rtol=ROUNDING, atol=ROUNDING * float(np.abs(want).max(initial=0)))
    assert not any(stage.result.changed for stage in plan.run(program, scope, loaded.fetches).stages)


@pytest.mark.parametrize("name", MODELS)
def test_all_that_can_be_saved(name: str) -> None:
    check(name, "all-inference")


@pytest.mark.parametrize("name", MODELS)
def test_all_that_a_run_here_can_use(name: str) -> None:
    check(name, *RUNTIME)


@pytest.mark.parametrize(
    "name", [name for name in MODELS if name in ("text_lstm_pool_zoo", "conv_bn_zoo", "mnist_conv")]
)
@pytest.mark.parametrize("rewrite", [known.name for known in INFERENCE_PASSES])
def test_each_alone(rewrite: str, name: str) -> None:
    check(name, rewrite)
