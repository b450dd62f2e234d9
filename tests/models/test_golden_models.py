"""Whole models that real Paddle 1.8.5 saved give its numbers, run twice, and again after load and save."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool
import fluidtool.fluid as fluid
from fluidtool.tensor import LoDTensor
from tests.support.golden import array_difference, corpus, names_in, read_arrays, read_json


def tensor(arrays: dict[str, Any], key: str, entry: dict[str, Any]) -> LoDTensor:
    """A value of golden.npz: `key`, with its LoD as offsets in `key_lod_0` …"""
    value = LoDTensor(arrays[key])
    value.set_lod([arrays[f"{key}_lod_{level}"].tolist() for level in range(entry.get("lod_level", 0))])
    return value


def check(got: Any, want: LoDTensor, tolerance: dict[str, Any], name: str) -> None:
    assert got.lod() == want.lod(), name
    found = array_difference(got.numpy(), want.numpy(), {"kind": "allclose", **tolerance})
    assert found is None, f"{name}: {found}"


@pytest.fixture(params=names_in("models"))
def case(request: pytest.FixtureRequest) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """The folder, description and arrays of a packed model."""
    folder = corpus("models") / request.param
    return folder, read_json(folder / "case.json"), read_arrays(folder / "golden.npz")


def test_outputs_and_intermediates_are_real_paddles(case: tuple[Path, dict[str, Any], dict[str, Any]]) -> None:
    folder, spec, arrays = case
    layout = "separate" if (folder / "separate").exists() else "combined"
    model = fluidtool.load(folder / layout)
    feed = {entry["name"]: tensor(arrays, f"feed_{i}", entry) for i, entry in enumerate(spec["feeds"])}
    for _ in range(2):
        got = list(model.run(feed).values())
        for index, entry in enumerate(spec["fetches"]):
            check(got[index], tensor(arrays, f"fetch_{index}", entry), spec["tolerance"], entry["name"])
    names = [entry["name"] for entry in spec["extra"]]
    for index, value in enumerate(model.run(feed, names).values()):
        check(value, tensor(arrays, f"extra_{index}", spec["extra"][index]), spec["tolerance"], names[index])


def test_saving_keeps_every_parameter_byte_and_every_output(
    case: tuple[Path, dict[str, Any], dict[str, Any]], tmp_path: Path
) -> None:
    folder, spec, arrays = case
    layout = "separate" if (folder / "separate").exists() else "combined"
    files = {"separate": (None, None), "combined": ("__model__", "__params__")}[layout]
    executor = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()), fluid.unique_name.guard():
        program, feeds, fetches = fluid.io.load_inference_model(str(folder / layout), executor, *files)
        fluid.io.save_inference_model(str(tmp_path), feeds, fetches, executor, program, *files)
    before = {f.relative_to(folder / layout): f.read_bytes() for f in (folder / layout).rglob("*") if f.is_file()}
    after = {f.relative_to(tmp_path): f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()}
    del before[Path("__model__")], after[Path("__model__")]
    assert after == before
    feed = {entry["name"]: tensor(arrays, f"feed_{i}", entry) for i, entry in enumerate(spec["feeds"])}
    for index, value in enumerate(fluidtool.load(tmp_path).run(feed).values()):
        np.testing.assert_allclose(
            value.numpy(), arrays[f"fetch_{index}"], rtol=spec["tolerance"]["rtol"], atol=spec["tolerance"]["atol"]
        )
