"""Runs of packed cases on GPU 0, compared with real Paddle's numbers; each gives the counts of what it asked of the GPU."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pytest

import fluidtool
import fluidtool.fluid as fluid
from fluidtool.ir import Program
from fluidtool.runtime import Executor, Scope
from fluidtool.runtime.engines.cuda.training.importing import STEP_IMPORTERS
from fluidtool.runtime.training_regions import TrainingRegion
from fluidtool.tensor import CUDAPlace, LoDTensor
from tests.gpu.standin import EVENTS
from tests.support.golden import array_difference, corpus, names_in, read_arrays, read_json
from tests.support.operator_cases import operator_case


def operator_counts(name: str) -> Mapping[str, int]:
    """One run of an operator case; raises AssertionError if its values are not real Paddle's."""
    case, scope = operator_case(name), Scope()
    executor = Executor(CUDAPlace(0), seed=1)  # what is drawn decides how much is done
    with EVENTS.counted() as counts:
        fetched = case.run(executor, scope)
    assert case.differences(fetched, scope) == []
    return counts


@cache
def step_operators() -> list[str]:
    """A packed case of the gradient of each operator that has a place in a training step, of floats of 32 bits.

    Of updates by norms, a program with one.
    """
    found: dict[str, str] = {}
    for name in names_in("optest"):
        type = name.partition("/")[0]
        wanted = "__grad__" in name or type in ("lamb", "lars_momentum")
        if type in STEP_IMPORTERS and wanted and type not in found and _in_floats(name):
            found[type] = name
    return list(found.values())


def _in_floats(name: str) -> bool:
    arrays = read_arrays(corpus("optest") / name / "arrays.npz")
    return all(array.dtype in (np.float32, np.int64, np.int32) and array.size for array in arrays.values())


def operator_in_a_step(name: str) -> None:
    """Three runs of an operator case as a training step; raises AssertionError if its values are not real Paddle's."""
    case, executor = operator_case(name), Executor(CUDAPlace(0), seed=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingRegion, "is_worthwhile", True)
        for _ in range(3):
            scope = Scope()
            assert case.differences(case.run(executor, scope), scope) == []


def model_counts(name: str, runs: int = 2) -> Mapping[str, int]:
    """The last run of a model; raises AssertionError if its outputs are not real Paddle's."""
    spec, arrays, found, counts = _run_model(name, runs)
    for index, value in enumerate(found):
        difference = array_difference(
            value.numpy(), arrays[f"fetch_{index}"], {"kind": "allclose", **spec["tolerance"]}
        )
        assert difference is None, f"{spec['fetches'][index]['name']}: {difference}"
    return counts


def _run_model(name: str, runs: int) -> tuple[Any, Mapping[str, Any], list[LoDTensor], Mapping[str, int]]:
    """What is known of a model, its packed arrays, and the outputs and counts of the last run."""
    folder = corpus("models") / name
    spec, arrays = read_json(folder / "case.json"), read_arrays(folder / "golden.npz")
    layout = "separate" if (folder / "separate").exists() else "combined"
    model = fluidtool.load(folder / layout, place=CUDAPlace(0))
    feed = {entry["name"]: tensor(arrays, f"feed_{i}", entry) for i, entry in enumerate(spec["feeds"])}
    for _ in range(runs - 1):
        model.run(feed)
    with EVENTS.counted() as counts:
        found = list(model.run(feed).values())
    return spec, arrays, found, counts


HALF_ERROR = 1e-2  # by norm
HALF_LOSSES = 2e-2  # relative: that of `mlp_ftrl` differs by 1.2 % in bf16, those of all others by less than 1 %


def model_in_halves(name: str, half: str = "bf16") -> None:
    """Three runs of a model with halves in memory; raises AssertionError if its outputs differ by norm from real Paddle's."""
    with in_precision(half):
        spec, arrays, found, _ = _run_model(name, 3)
    for index, value in enumerate(found):
        want = arrays[f"fetch_{index}"]
        if want.dtype.kind == "f" and want.size:
            error = np.linalg.norm(value.numpy() - want) / max(np.linalg.norm(want), 1e-6)
            assert error < HALF_ERROR, f"{spec['fetches'][index]['name']} is off by {error:.2g} of its norm"


def graph_counts(name: str) -> Mapping[str, int]:
    """The third run of a model with regions as CUDA graphs, the first that launches what it captured before."""
    return model_counts(name, runs=3)


def step_counts(name: str) -> Mapping[str, int]:
    """The third step of a training run whose regions are CUDA graphs, the first that launches what it captured before."""
    return training_counts(name, steps=3)


def by_cupy(count: Callable[[str], Mapping[str, int]], name: str) -> Mapping[str, int]:
    """The counts of a case without CUDA graphs: every operator by cupy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLUIDTOOL_CUDA", "0")
        return count(name)


@contextmanager
def in_precision(precision: str) -> Iterator[None]:
    """What is loaded in the block computes with this precision on a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLUIDTOOL_CUDA_PRECISION", precision)
        yield


@contextmanager
def collected_between_steps() -> Iterator[None]:
    """No garbage is collected within a step: what it refers to is copied before it changes, which is a launch."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def training_in_halves(name: str, half: str = "bf16") -> None:
    """Three steps with halves in memory; raises AssertionError if their losses are not near to real Paddle's."""
    with in_precision(half):
        training_counts(name, steps=3, rtol=HALF_LOSSES)


def training_counts(name: str, steps: int = 2, rtol: float = 1e-4) -> Mapping[str, int]:
    """The last of some steps of a training run; raises AssertionError if the losses are not real Paddle's."""
    folder = corpus("train") / name
    spec, stream, expect = (
        read_json(folder / "case.json"),
        read_arrays(folder / "stream.npz"),
        read_arrays(folder / "expect.npz"),
    )
    main, startup = (Program.parse_from_string((folder / f"{which}.pb").read_bytes()) for which in ("main", "startup"))
    executor, scope = fluid.Executor(CUDAPlace(0)), fluid.Scope()
    saved = {file.name for file in (folder / "init").iterdir()}
    with fluid.scope_guard(scope):
        executor.run(startup)
        fluid.io.load_vars(executor, str(folder / "init"), main, predicate=lambda var: var.name in saved)
    losses = []
    with collected_between_steps():
        for step in range(steps):
            gc.collect()
            with EVENTS.counted() as counts:
                losses.append(executor.run(main, batch(spec, stream, step), [spec["loss"]], scope=scope))
    slack = 20 * float(np.max(expect.get("nudge_loss", 0)))
    np.testing.assert_allclose(np.ravel(losses), expect["loss"][:steps], rtol=rtol, atol=1e-6 + slack)
    return counts


def tensor(arrays: Mapping[str, Any], key: str, entry: Mapping[str, Any]) -> LoDTensor:
    """A value of an archive: `key`, with its LoD as offsets in `key_lod_0` …"""
    value = LoDTensor(arrays[key])
    value.set_lod([arrays[f"{key}_lod_{level}"].tolist() for level in range(entry.get("lod_level", 0))])
    return value


def batch(spec: Mapping[str, Any], stream: Mapping[str, Any], step: int) -> dict[str, LoDTensor]:
    """The feed of a step."""
    feed = {}
    for index, entry in enumerate(spec["feeds"]):
        key = f"step{step}_feed{index}"
        feed[entry["name"]] = LoDTensor(stream[key])
        feed[entry["name"]].set_lod([stream[f"{key}_lod{level}"].tolist() for level in range(entry["lod_level"])])
    return feed
