"""`python -m benchmarks`: the networks are the known ones, engines take turns, results are kept without paths."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool
from benchmarks import __main__ as command
from benchmarks import onnx_models
from benchmarks.growth import Curve
from benchmarks.inference_networks import NETWORKS, with_lod, write
from benchmarks.rounds import Absent, Engine, Worker, take_turns
from fluidtool import fluid
from fluidtool.passes.cost import count, input_metas


@pytest.mark.parametrize(
    ("name", "multiply_adds", "parameters"),
    [
        ("resnet50", 4.09e9, 25.6e6),
        ("mobilenet_v1", 0.569e9, 4.25e6),
        ("bert_base", 11.2e9, 109.5e6),
        ("lstm", 0.1175e9, 1.58e6),
    ],
)
def test_the_networks_have_the_known_sizes(name: str, multiply_adds: float, parameters: float) -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        names, _ = NETWORKS[name].build()
    shapes = {"words": (128, 1)} if name == "lstm" else {}
    cost = count(main, input_metas(main, names, 1, shapes))
    assert cost.multiply_adds == pytest.approx(multiply_adds, rel=0.02)
    held = sum(int(np.prod(p.shape)) for p in main.all_parameters())
    assert held == pytest.approx(parameters, rel=0.02)


@pytest.fixture(scope="module")
def lstm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "lstm"
    write(NETWORKS["lstm"], folder)
    return folder


def test_a_network_is_saved_with_its_inputs_and_outputs(lstm: Path) -> None:
    model = fluidtool.load(lstm / "model.pdmodel")
    with np.load(lstm / "io.npz") as stored:
        (out,) = model.run(with_lod(model, {"words": stored["in_words"]})).values()
        np.testing.assert_allclose(np.asarray(out), stored["bs1_out_0"], rtol=1e-5)
        (twice,) = model.run(with_lod(model, {"words": stored["in_words"]}, 2)).values()
        np.testing.assert_allclose(np.asarray(twice), np.repeat(stored["bs1_out_0"], 2, 0), rtol=1e-5)


def test_the_lstm_as_onnx_gives_the_same(lstm: Path) -> None:
    if find_spec("onnxruntime") is None or find_spec("onnx") is None:
        pytest.skip("onnxruntime or onnx is not installed: pip install 'fluidtool[onnxruntime]'")
    import onnxruntime

    session = onnxruntime.InferenceSession(str(onnx_models.write(lstm, 1)), providers=["CPUExecutionProvider"])
    with np.load(lstm / "io.npz") as stored:
        (out,) = session.run(None, {"words": stored["in_words"]})
        np.testing.assert_allclose(out, stored["bs1_out_0"], rtol=1e-5)


class Fake(Worker):
    """A worker that only notes when it was its turn."""

    log: list[str] = []  # noqa: RUF012 - shared by all of them

    def burst(self, seconds: float) -> float:
        self.log.append(self.engine.name)
        self.bursts.append(1.0)
        self.foreign.append(0.0)
        return 1.0


def test_each_round_starts_with_another_engine() -> None:
    process: Any = None
    workers = [Fake(Engine(name, ()), process, {}) for name in "abc"]
    assert len(take_turns(workers, 2, 0.1)) == 2
    assert "".join(Fake.log) == "abc" + "bca" + "cab"
    assert all(len(worker.bursts) == 2 for worker in workers)  # without the one that does not count


def test_an_engine_that_cannot_run_a_model_says_why(tmp_path: Path) -> None:
    import sys

    with pytest.raises(Absent, match="no such thing"):
        Worker.begin(Engine("broken", (sys.executable, "-c", "raise SystemExit('no such thing')")), tmp_path, 1, 1)


def test_the_command_prints_ratios_and_keeps_results_by_date(
    lstm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "RESULTS", command.ROOT / "build" / tmp_path.name)
    monkeypatch.delenv("PADDLE_1", raising=False)
    monkeypatch.setenv("FLUIDTOOL_THREADS", "1")
    options = ["--networks", "lstm", "--rounds", "1", "--burst", "0.01", "--cold", "1", "--threads", "1"]
    assert command.main([*options, "--peers", "none", "--models", str(lstm.parent), "--parts", "latency", "cold"]) == 0
    printed = capsys.readouterr()
    assert "LSTM 2 x 256, 128 words, batch 1" in printed.out and "Cold process" in printed.out
    (kept,) = command.RESULTS.iterdir()
    text = kept.read_text()
    kept.unlink()
    command.RESULTS.rmdir()
    found = json.loads(text)
    assert found["latency"][0]["engines"]["fluidtool"]["milliseconds"] > 0
    assert found["machine"]["processors"] and found["date"][:2] == "20"
    assert str(Path.home()) not in text and str(lstm.parent) not in text


def test_missing_peers_are_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PADDLE_1", raising=False)
    monkeypatch.setenv("PADDLE_2", "python-of-paddle-2")
    present, missing = command.engines(())
    assert "PADDLE_1" in missing["paddle1"] and "paddle2" not in missing
    assert {"fluidtool", "fluidtool numpy", "paddle2", "paddle2 mkldnn"} <= {engine.name for engine in present}


def test_a_curve_says_what_one_costs() -> None:
    assert Curve("by batch", "images", (1, 4), (3.0, 8.0)).per_unit == (3.0, 2.0)
