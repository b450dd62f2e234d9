"""The training part of `python -m benchmarks`: the same batches for every peer, ratios of speeds, peers that are missing."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import torch_worker, training, training_worker
from benchmarks.rounds import Engine, Worker
from benchmarks.tables import training_table
from benchmarks.training_networks import NETWORKS
from fluidtool import fluid
from fluidtool.cli.render import plain

SECOND_BIAS = "lstm"  # that of nn.LSTM


def steady(name: str, milliseconds: float) -> Engine:
    """A worker whose steps always take so long."""
    code = (
        "import sys\nprint('{\"batch\": 10}', flush=True)\n"
        f"for line in sys.stdin: print([{milliseconds}] * int(line), flush=True)"
    )
    return Engine(name, (sys.executable, "-c", code))


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of ours takes 4 ms."""
    monkeypatch.setattr(training, "OURS", steady("fluidtool", 4.0))


@pytest.mark.usefixtures("ours")
def test_a_ratio_is_our_speed_to_that_of_the_best_variant() -> None:
    others = [steady("paddle1", 8.0), steady("torch eager", 6.0), steady("torch compiled", 5.0)]
    found = training.trained("mlp", others, 3, 0.01, 1)
    assert found["ratio"] == pytest.approx(2.0) and found["torch_ratio"] == pytest.approx(1.25)
    assert found["examples_per_second"]["fluidtool"] == pytest.approx(2500)
    assert found["absent"] == {} and "cross entropy" in found["differences"]


@pytest.mark.parametrize(
    ("ours", "theirs", "ratio"), [(300.0, {"a": 600.0, "b": 400.0}, 0.75), (None, {"a": 5.0}, None), (3.0, {}, None)]
)
def test_memory_is_compared_with_the_most_frugal(
    ours: float | None, theirs: dict[str, float], ratio: float | None
) -> None:
    most = {"fluidtool": ours, **theirs}
    process: Any = None
    workers = [Worker(Engine(name, ()), process, {"rss_peak_mb": mb}, process) for name, mb in most.items()]
    assert training.memory_ratio(workers, list(theirs)) == ratio


def test_memory_is_that_of_the_process_alone() -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("the system does not tell the most memory of a process")
    held = bytearray(300 << 20)
    held[:: 1 << 12] = b"x" * len(held[:: 1 << 12])
    code = "import sys; sys.path.insert(0, sys.argv[1]); import training_worker as w; print(w.most_resident_mb())"
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(training.WORKER).parent)], capture_output=True, text=True, check=True
    )
    assert 1 < float(done.stdout) < 200


@pytest.mark.usefixtures("ours")
def test_a_peer_that_cannot_is_named_and_the_others_are_measured() -> None:
    broken = Engine("torch compiled", (sys.executable, "-c", "raise SystemExit('no compiler here')"))
    found = training.trained("mlp", [broken, steady("torch eager", 8.0)], 1, 0.01, 1)
    assert found["absent"] == {"torch compiled": "no compiler here"}
    assert found["torch_ratio"] == pytest.approx(2.0) and found["ratio"] is None
    text = plain(training_table([found]))
    assert "no compiler here" in text and "2.00" in text and found["differences"] in text


@pytest.mark.parametrize(
    ("name", "network", "takes_part"),
    [
        ("paddle1", "lstm", True),
        ("torch eager", "lstm", True),
        ("torch channels_last", "bert_base", False),
        ("torch eager", "mlp", True),
        ("torch channels_last", "mlp", False),
        ("torch channels_last", "resnet18", True),
        ("paddle1", "greedy", True),
        ("torch eager", "greedy", False),
        ("torch compiled", "million_rows", False),
    ],
)
def test_who_takes_part(name: str, network: str, takes_part: bool) -> None:
    assert training.trains(Engine(name, ()), network) is takes_part


def test_missing_peers_are_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PADDLE_1", "TORCH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(training, "find_spec", lambda name: None)
    found, missing = training.peers()
    assert (
        found == []
        and any("PADDLE_1" in why for why in missing.values())
        and any("TORCH" in why for why in missing.values())
    )
    monkeypatch.setenv("TORCH", "python-of-torch")
    found, missing = training.peers()
    assert [engine.name for engine in found] == ["torch eager", "torch channels_last", "torch compiled"] and len(
        missing
    ) == 1


@pytest.mark.parametrize("network", NETWORKS)
def test_batches_are_the_same_for_every_peer(network: str) -> None:
    build, batch = NETWORKS[network]
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        want = build(fluid, batch)[2]
    got = build(torch_worker.Batch(), batch)[2]
    assert list(got) == list(want)
    for name, value in want.items():
        if isinstance(value, fluid.LoDTensor):
            rows, lengths = got[name]
            assert value.recursive_sequence_lengths() == [lengths]
            np.testing.assert_array_equal(rows, np.asarray(value))
        else:
            np.testing.assert_array_equal(got[name], value)


def test_each_initializer_has_a_seed_of_its_own() -> None:
    startup = fluid.Program()
    with fluid.program_guard(fluid.Program(), startup), fluid.unique_name.guard():
        NETWORKS["mlp"][0](fluid, 4)
    training_worker.draw_apart(startup)
    seeds = [op.attr("seed") for op in startup.global_block().ops if op.has_attr("seed")]
    assert len(seeds) >= 3 and len(set(seeds)) == len(seeds)


def parameters_of(network: str) -> int:
    """The number of numbers that training changes."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        NETWORKS[network][0](fluid, 2)
    return sum(int(np.prod(parameter.shape)) for parameter in main.all_parameters() if parameter.trainable)


def test_networks_in_pytorch_have_as_many_parameters() -> None:
    python = os.environ.get("TORCH") or (sys.executable if find_spec("torch") else "")
    if not python:
        pytest.skip("PyTorch is not installed, and TORCH names no interpreter that has it")
    names = [name for name in NETWORKS if name not in (SECOND_BIAS, *training.OF_PADDLE_ALONE)]
    folder = str(Path(training.WORKER).parent)
    code = (
        f"import sys; sys.path.insert(0, {folder!r}); import torch_networks as t; "
        f"print([sum(p.numel() for p in t.NETWORKS[name].make()[0].parameters() if p.requires_grad) for name in {names}])"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str([parameters_of(network) for network in names])
