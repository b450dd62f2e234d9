"""Runs of packed cases on GPU 0, compared with real Paddle's numbers; each gives the counts of what it asked of the GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import fluidtool
import fluidtool.fluid as fluid
from fluidtool.ir import Program
from fluidtool.runtime import Executor, Scope
from fluidtool.tensor import CUDAPlace, LoDTensor
from tests.gpu.standin import EVENTS
from tests.support.golden import array_difference, corpus, read_arrays, read_json
from tests.support.operator_cases import operator_case


def operator_counts(name: str) -> Mapping[str, int]:
    """One run of an operator case; raises AssertionError if its values are not real Paddle's."""
    case, scope = operator_case(name), Scope()
    executor = Executor(CUDAPlace(0), seed=1)  # what is drawn decides how much is done
    with EVENTS.counted() as counts:
        fetched = case.run(executor, scope)
    assert case.differences(fetched, scope) == []
    return counts


def model_counts(name: str, runs: int = 2) -> Mapping[str, int]:
    """The last run of a model; raises AssertionError if its outputs are not real Paddle's."""
    folder = corpus("models") / name
    spec, arrays = read_json(folder / "case.json"), read_arrays(folder / "golden.npz")
    layout = "separate" if (folder / "separate").exists() else "combined"
    model = fluidtool.load(folder / layout, place=CUDAPlace(0))
    feed = {entry["name"]: tensor(arrays, f"feed_{i}", entry) for i, entry in enumerate(spec["feeds"])}
    for _ in range(runs - 1):
        model.run(feed)
    with EVENTS.counted() as counts:
        found = list(model.run(feed).values())
    for index, value in enumerate(found):
        difference = array_difference(
            value.numpy(), arrays[f"fetch_{index}"], {"kind": "allclose", **spec["tolerance"]}
        )
        assert difference is None, f"{spec['fetches'][index]['name']}: {difference}"
    return counts


def graph_counts(name: str) -> Mapping[str, int]:
    """The third run of a model with regions as CUDA graphs, the first that launches what it captured before."""
    with switched_on():
        return model_counts(name, runs=3)


@contextmanager
def switched_on() -> Iterator[None]:
    """The engine for regions on a GPU is used by what is loaded in the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLUIDTOOL_CUDA", "1")
        yield


def training_counts(name: str) -> Mapping[str, int]:
    """The second step of a training run; raises AssertionError if the losses are not real Paddle's."""
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
    losses = [executor.run(main, batch(spec, stream, 0), [spec["loss"]], scope=scope)]
    with EVENTS.counted() as counts:
        losses.append(executor.run(main, batch(spec, stream, 1), [spec["loss"]], scope=scope))
    slack = 20 * float(np.max(expect.get("nudge_loss", 0)))
    np.testing.assert_allclose(np.ravel(losses), expect["loss"][:2], rtol=1e-4, atol=1e-6 + slack)
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
