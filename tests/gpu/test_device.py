"""The script for a machine with a GPU, as a dry run on the stand-in."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu
from benchmarks.inference_networks import Network
from fluidtool.fluid import layers
from tests.gpu import device
from tests.gpu.standin.kernels import COMPILER, NO_COMPILER

pytestmark = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)


def test_a_case_of_each_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device.shutil, "which", lambda name: None)
    assert device.main(["--standin", "--cases", "1", "--out", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "results.json").read_text())
    assert {part: 1 for part in device.PARTS} | {"sanitizer": 1} == {
        part: sum(each["part"] == part for each in results["cases"]) for part in (*device.PARTS, "sanitizer")
    }
    (failure,) = json.loads((tmp_path / "failures.json").read_text())
    assert failure["why"] == "not run: compute-sanitizer is not installed"


def test_a_case_that_fails_is_told_and_the_others_run(tmp_path: Path) -> None:
    found = list(device.results_of("models", ["mnist_mlp", "no_such_model", "fit_a_line"], standin=True))
    assert [each["case"] for each in found] == ["mnist_mlp", "no_such_model", "fit_a_line"]
    assert [bool(each["why"]) for each in found] == [False, True, False]


def test_a_process_that_dies_is_replaced(tmp_path: Path) -> None:
    """A command in the place of Python ends as a GPU's fault would end it, in the first case."""
    dying = tmp_path / "dying"
    seen = tmp_path / "seen"
    dying.write_text(
        f'#!/bin/sh\nif [ -e {seen} ]; then exec "$@"; fi\ntouch {seen}\necho \'{{"begun": "fit_a_line"}}\'\nexit 7\n'
    )
    dying.chmod(0o755)
    found = list(device.results_of("models", ["fit_a_line", "mnist_mlp"], standin=True, before=(str(dying),)))
    assert [(each["case"], each["why"][:25]) for each in found] == [
        ("fit_a_line", "the process ended with 7:"),
        ("mnist_mlp", ""),
    ]


def test_a_process_that_hangs_is_ended_and_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging, seen = tmp_path / "hanging", tmp_path / "seen"
    hanging.write_text(
        f'#!/bin/sh\nif [ -e {seen} ]; then exec "$@"; fi\ntouch {seen}\necho \'{{"begun": "fit_a_line"}}\'\nexec sleep 90\n'
    )
    hanging.chmod(0o755)
    limits = iter([2, 600])
    monkeypatch.setattr(device, "limit_of", lambda names: next(limits))
    found = list(device.results_of("models", ["fit_a_line", "mnist_mlp"], standin=True, before=(str(hanging),)))
    assert [(each["case"], each["why"]) for each in found] == [
        ("fit_a_line", "it hung: 2 s have passed"),
        ("mnist_mlp", ""),
    ]


def perceptron() -> tuple[list[str], list[Any]]:
    x = layers.data("x", [8])
    return ["x"], [layers.fc(x, 4, act="softmax")]


def test_benchmarks_tell_what_is_not_there(cupy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    network = Network(perceptron, lambda random: {"x": random.rand(1, 8).astype("float32")}, "a perceptron")
    rows = list(
        gpu.measured(["small"], tmp_path, 2, {"small": network}, list(gpu.ways_of("small", network, tmp_path, 1)))
    )
    assert [row["batch"] for row in rows] == [1, 64]
    for row in rows:
        ours = {"fluidtool, cupy", "fluidtool, graphs", "fluidtool, graphs, bf16"}
        assert all(row[way] > 0 and row["host_us"][way] > 0 for way in ours)
        assert set(row["not_run"]) == {
            f"torch, {way}{half}" for way in ("graph", "eager", "compiled") for half in ("", ", bf16")
        } | {"jax", "needs"}
