"""Rows of a GPU: their order and limits of time, what is left out, shares of its limits, goals, and PyTorch's inputs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu_rows
from benchmarks.goals import gpu_host, gpu_time
from benchmarks.gpu_rows import CEILINGS, COMPILED, IMPORTANT, Task, joined, measured, shares, tasks, with_shares
from benchmarks.rounds import ROOT
from benchmarks.tables import goals_table, gpu_tables
from benchmarks.training_networks import ON_GPUS
from fluidtool.cli.render import plain
from tests.gpu.standin.kernels import COMPILER, NO_COMPILER

NETWORKS = ("resnet50", "bert_base", "mobilenet_v1", "lstm")
LIMITS = {"float32_flops": 50e12, "bf16_flops": 500e12, "bytes_per_second": 4e12}


def worker(tmp_path: Path, *statements: str) -> list[str]:
    """A row's process that does this: `given` has its arguments."""
    script = tmp_path / "worker.py"
    script.write_text("\n".join(["import json, sys, time", "given = sys.argv[1:]", *statements]))
    return [sys.executable, str(script)]


SAYS = (
    'print(json.dumps({"part": given[0], "network": given[1], "batch": int(given[2]), "ways": given[3:]}), flush=True)'
)


# ---------------------------------------------------------------- what is measured, in which order
def test_rows_never_measured_come_first_and_compiled_ones_last() -> None:
    listed = tasks(("latency", "training"), NETWORKS, tuple(ON_GPUS), ())
    assert [each.name for each in listed[:4]] == [
        "ceilings gpu", "training bert_base", "training resnet50", "training lstm",
    ]  # fmt: skip
    count = len(IMPORTANT)
    assert [each.ways for each in listed] == [()] * (1 + count) + [COMPILED] * count


def test_every_goal_of_a_gpu_has_a_row() -> None:
    rows: list[dict[str, Any]] = [
        {"part": each.part, "network": each.network, "batch": each.batch or 8, "host_us": {"fluidtool, graphs": 50.0}}
        | dict.fromkeys(("fluidtool, graphs", "torch, graph", "fluidtool, graphs, bf16", "torch, graph, bf16"), 1.0)
        for each in IMPORTANT
    ]
    shown = plain(goals_table({"gpu": rows}))
    assert shown.count("GPU,") == 2 * len(IMPORTANT) + 6 and "missed" not in shown


def test_rows_may_be_chosen() -> None:
    assert [each.name for each in tasks(("training",), NETWORKS, ("mlp",), ("torch, graph",))] == [
        "ceilings gpu",
        "training mlp",
    ]
    assert tasks(("training",), NETWORKS, ("mlp",), ("torch, graph",))[1].ways == ("torch, graph",)


# ---------------------------------------------------------------- processes and their time
def test_a_row_is_said_as_soon_as_it_is_there(tmp_path: Path) -> None:
    said: list[str] = []
    listed = [Task("training", "mlp", limit=30), Task("inference", "lstm", 1, 30)]
    rows, left_out = measured(listed, 5, ["--rounds", "3"], said.append, worker(tmp_path, SAYS))
    assert [(row["network"], row["ways"]) for row in rows] == [("mlp", ["--rounds", "3"]), ("lstm", ["--rounds", "3"])]
    assert list(map(json.loads, said)) == rows and left_out == {}


def test_a_process_ends_with_its_time_and_what_it_has_said_is_kept(tmp_path: Path) -> None:
    hanging = worker(tmp_path, SAYS, "time.sleep(60)")
    rows, left_out = measured([Task("training", "mlp", limit=2)], 5, [], lambda line: None, hanging)
    assert [row["network"] for row in rows] == ["mlp"] and left_out == {"training mlp": "2 s were over"}


def test_a_process_that_breaks_costs_no_other_row(tmp_path: Path) -> None:
    breaking = worker(tmp_path, 'if given[1] == "mlp": raise RuntimeError("the GPU is lost")', SAYS)
    listed = [Task("training", "mlp"), Task("training", "lstm")]
    rows, left_out = measured(listed, 5, [], lambda line: None, breaking)
    assert [row["network"] for row in rows] == ["lstm"]
    assert left_out == {"training mlp": "its process ended with 1: RuntimeError: the GPU is lost"}


def test_rows_for_which_there_is_no_time_are_named(tmp_path: Path) -> None:
    rows, left_out = measured([CEILINGS, Task("training", "mlp", ways=("jax",))], 0, [], print, worker(tmp_path, SAYS))
    assert rows == []
    assert left_out == {"ceilings gpu": "the 0 minutes are over", "training mlp (jax)": "the 0 minutes are over"}


def test_ways_that_are_measured_apart_are_one_row(tmp_path: Path) -> None:
    first = {"part": "training", "network": "mlp", "batch": 8, "a": 1.0, "host_us": {"a": 2.0}, "not_run": {"b": "no"}}
    second = {
        "part": "training",
        "network": "mlp",
        "batch": 8,
        "c": 3.0,
        "host_us": {},
        "not_run": {},
        "needs": {"x": 1},
    }
    row = joined(first, second)
    assert (row["a"], row["c"], row["host_us"], row["not_run"]) == (1.0, 3.0, {"a": 2.0}, {"b": "no"})


# ---------------------------------------------------------------- shares and goals
def test_shares_of_products_and_of_memory() -> None:
    many = {"part": "inference", "batch": 64, "needs": {"operations": 1e12, "parameter_bytes": 4e8}}
    assert shares({**many, "fluidtool, graphs": 40.0, "torch, graph, bf16": 4.0}, LIMITS) == {
        "fluidtool, graphs": 0.5,
        "torch, graph, bf16": 0.5,
    }
    one = {"part": "inference", "batch": 1, "needs": {"operations": 1e12, "parameter_bytes": 4e8}}
    assert shares({**one, "fluidtool, graphs": 0.4, "fluidtool, graphs, bf16": 0.4}, LIMITS) == {
        "fluidtool, graphs": 0.25,
        "fluidtool, graphs, bf16": 0.125,
    }


def test_without_limits_or_needs_there_are_no_shares() -> None:
    row: dict[str, Any] = {"part": "inference", "network": "lstm", "batch": 1, "needs": {}, "fluidtool, graphs": 1.0}
    assert with_shares([row]) == [row]
    measured_limits = {"part": "ceilings", "network": "gpu", "batch": 0, "device": "H200", "limits": LIMITS}
    assert with_shares([row, measured_limits])[0]["share"] == {}


MEASURED = {
    "gpu": [
        {
            "part": "inference", "network": "lstm", "batch": 1, "fluidtool, graphs": 0.9, "torch, graph": 0.6,
            "fluidtool, graphs, bf16": 0.8, "host_us": {"fluidtool, graphs": 150.0}, "not_run": {"jax": "ImportError: none"},
        },
        {
            "part": "training", "network": "deepfm", "batch": 4096, "fluidtool, graphs": 1.0, "torch, eager": 4.0, "host_us": {},
            "not_run": {}, "share": {"fluidtool, graphs": 0.12},
        },
        {"part": "ceilings", "network": "gpu", "batch": 0, "device": "H200", "limits": LIMITS},
    ]
}  # fmt: skip


@pytest.mark.parametrize(
    ("of", "ratio"),
    [
        (gpu_time("inference", "lstm", 1), 1.5),
        (gpu_time("training", "deepfm", None), 0.25),  # beside eager, where PyTorch cannot be captured
        (gpu_host("inference", "lstm", 1), 1.5),
        (gpu_time("inference", "lstm", 1, ", bf16"), None),
        (gpu_time("inference", "lstm", 64), None),
        (gpu_host("training", "deepfm", None), None),
        (gpu_host("training", "mlp", None), None),
    ],
)
def test_where_a_goal_of_a_gpu_is_found(of: Any, ratio: float | None) -> None:
    assert of(MEASURED) == (None if ratio is None else pytest.approx(ratio))


def test_tables_show_times_shares_and_what_is_missing() -> None:
    shown = "\n".join(plain(each) for each in gpu_tables(MEASURED["gpu"]))  # type: ignore[arg-type]
    assert "1 (12%)" in shown and "ImportError: none" in shown and "Limits of H200" in shown
    goals = plain(goals_table(MEASURED))
    assert goals.count("missed") == 2 and goals.count("met") == 1


# ---------------------------------------------------------------- dry runs
def dry_run(*given: str) -> list[dict[str, Any]]:
    """What a row's process says on the stand-in."""
    if COMPILER is None:
        pytest.skip(NO_COMPILER)
    command = [sys.executable, "-m", "tests.benchmarks.gpu_dry_run", *given, "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_dry_run_of_a_training_row() -> None:
    rows = dry_run("training", "mlp", "0", "--ways", "fluidtool, graphs", "torch, graph")
    assert [row["network"] for row in rows] == ["mlp"] * 3  # after each way, and at the end
    assert (
        rows[-1]["batch"] == 128
        and rows[-1]["fluidtool, graphs"] > 0
        and set(rows[-1]["host_us"]) == {"fluidtool, graphs"}
    )
    assert "torch, graph" in rows[-1]["not_run"]


class TestTorch:
    """Where PyTorch is installed."""

    @pytest.fixture(autouse=True)
    def _on_a_processor(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("torch", reason="torch is not installed")
        monkeypatch.setattr("benchmarks.gpu.DEVICE", "cpu")

    def test_lengths_stay_on_the_host_the_longest_first(self) -> None:
        from benchmarks import gpu_training

        (words, lengths), label = gpu_training.torch_inputs(ON_GPUS["lstm"][0], 16)
        assert lengths.tolist() == sorted(lengths.tolist(), reverse=True) and lengths.device.type == "cpu"
        assert words.shape == (16, lengths[0]) and len(label) == 16

    def test_a_network_says_what_it_needs(self) -> None:
        from benchmarks import gpu_training

        found = gpu_training.needs("mlp", ON_GPUS["mlp"][0], 4)
        weights = 784 * 512 + 512 * 256 + 256 * 10
        assert found == {"operations": 3 * 2.0 * 4 * weights, "parameter_bytes": 4.0 * (weights + 512 + 256 + 10)}

    def test_limits_are_measured(self, cupy: Any) -> None:
        assert set(gpu_rows.ceilings(1)["limits"]) == set(LIMITS)


@pytest.fixture
def cupy() -> Any:
    """The stand-in for cupy."""
    from tests.gpu.standin import installed

    with installed(devices=1) as module:
        yield module
