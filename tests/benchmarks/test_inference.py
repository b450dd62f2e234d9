"""`python -m benchmarks`: the networks are the known ones, engines take turns, results are kept without paths."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool
from benchmarks import __main__ as command
from benchmarks import growth, onnx_models
from benchmarks.engines import engines
from benchmarks.feeds import with_lod
from benchmarks.growth import Curve
from benchmarks.inference_networks import NETWORKS, draw_apart, write
from benchmarks.repeats import milliseconds
from benchmarks.rounds import Absent, Engine, Worker, cold, median_ratio, take_turns
from fluidtool import fluid
from fluidtool.passes.cost import count, input_metas


@pytest.mark.parametrize(
    ("name", "multiply_adds", "parameters"),
    [
        ("resnet50", 4.09e9, 25.6e6),
        ("mobilenet_v1", 0.569e9, 4.25e6),
        ("bert_base", 11.2e9, 109.5e6),
        ("lstm", 0.1175e9, 1.58e6),
        ("mobilenet_v2", 0.301e9, 3.54e6),
        ("mobilenet_v3_small", 0.0565e9, 2.55e6),
        ("mobilenet_v3_large", 0.217e9, 5.5e6),
        ("efficientnet", 0.386e9, 5.33e6),
        ("yolo", 2.78e9, 8.86e6),
        ("db", 0.477e9, 0.952e6),
        ("slim_db", 1.905e9, 0.593e6),
        ("crnn", 0.0588e9, 1.087e6),
        ("se_resnext50", 4.23e9, 27.6e6),
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


def test_parameters_of_one_shape_are_different_numbers() -> None:
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        words = fluid.data("words", [None, 16])
        for _ in range(3):
            fluid.layers.fc(words, 16, bias_attr=False)
    draw_apart(startup)
    fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
    one, two, three = (np.asarray(scope.find_var(p.name).get_tensor()) for p in main.all_parameters())
    assert not any(np.array_equal(a, b) for a, b in ((one, two), (one, three), (two, three)))


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
    """A worker that only notes when it was its turn; a mortal one ends at its second."""

    log: list[str] = []  # noqa: RUF012 - shared by all of them

    def burst(self, seconds: float) -> float:
        if self.engine.name == "mortal" and self.bursts:
            raise Absent("out of memory")
        self.log.append(self.engine.name)
        self.bursts.append(1.0)
        self.foreign.append(0.0)
        return 1.0


def fakes(*engines: Engine) -> list[Worker]:
    process: Any = None
    complaints: Any = None
    Fake.log = []
    return [Fake(engine, process, {}, complaints) for engine in engines]


def test_each_round_starts_with_another_engine() -> None:
    workers = fakes(*(Engine(name, ()) for name in "abc"))
    assert len(take_turns(workers, 2, 0.1)) == 2
    assert "".join(Fake.log) == "abc" + "bca" + "cab"
    assert all(len(worker.bursts) == 2 for worker in workers)  # without the one that does not count


def test_a_rare_engine_takes_part_in_every_third_round() -> None:
    workers = fakes(Engine("a", ()), Engine("r", (), rare=True))
    found = take_turns(workers, 6, 0.1)
    assert ["r" in each for each in found] == [True, False, False, True, False, False]
    assert len(workers[1].bursts) == 2


def test_an_engine_that_ends_is_left_out_and_the_others_go_on() -> None:
    workers = fakes(Engine("mortal", ()), Engine("b", ()))
    found = take_turns(workers, 3, 0.1)
    assert workers[0].lost == "out of memory" and not workers[1].lost
    assert [sorted(each) for each in found] == [["b", "mortal"], ["b"], ["b"]]


def test_a_ratio_is_to_the_best_of_the_same_round() -> None:
    rounds = [{"a": 2.0, "b": 1.0, "c": 4.0}, {"a": 30.0, "b": 20.0, "c": 10.0}, {"b": 1.0}]
    assert median_ratio(rounds, "a", ["b", "c"]) == 2.5
    assert median_ratio(rounds, "a", []) is None


def python(code: str) -> Engine:
    return Engine("other", (sys.executable, "-c", code))


def test_an_engine_that_cannot_run_a_model_says_why() -> None:
    with pytest.raises(Absent, match="no such thing"):
        Worker.begin(python("raise SystemExit('no such thing')"))
    with pytest.raises(Absent, match="exit code 3"):
        Worker.begin(python("raise SystemExit(3)"))
    with pytest.raises(Absent, match="no-such-interpreter"):
        Worker.begin(Engine("other", ("no-such-interpreter",)))
    with pytest.raises(Absent, match=r"^ValueError: no such thing$"):
        Worker.begin(python(r"raise ValueError('no such thing\nsee https://example.org')"))


def test_a_worker_may_greet_and_its_end_is_noticed() -> None:
    worker = Worker.begin(python("print('hello'); print('{\"batch\": 4}'); input(); print('[1.0, 3.0, 2.0]')"))
    try:
        assert worker.fields == {"batch": 4}
        assert worker.burst(0.01) == 2.0
        with pytest.raises(Absent):
            worker.burst(0.01)
    finally:
        worker.end()


def test_a_cold_process_that_fails_counts_for_nothing() -> None:
    seconds, most = cold(python("print('{\"rss_peak_mb\": 7.5}')")) or (0.0, 0.0)
    assert seconds > 0 and most == 7.5
    assert cold(python("print('{\"rss_peak_mb\": 7.5}'); raise SystemExit(1)")) is None


SHORT = ["--networks", "lstm", "--rounds", "1", "--burst", "0.01", "--cold", "1", "--threads", "1", "--peers", "none"]


def test_the_command_prints_ratios_and_keeps_results_by_date(
    lstm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("PADDLE_1", "TORCH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("benchmarks.training.find_spec", lambda name: None)
    monkeypatch.setenv("FLUIDTOOL_THREADS", "1")
    monkeypatch.setattr(growth, "LENGTHS", (1, 2))
    kept = tmp_path / "kept"
    assert command.main([*SHORT, "--models", str(lstm.parent), "--keep", str(kept)]) == 0
    printed = capsys.readouterr()
    titles = ("LSTM 2 x 256, 128 words, batch 1", "Cold process", "LSTM 2 x 256, by length", "Cliffs")
    assert all(title in printed.out for title in titles)
    for why in (
        "training beside Paddle: PADDLE_1",
        "training beside PyTorch: TORCH",
        "throughput: one thread is one executor",
        "full-size networks: --full-models",
    ):
        assert f"not run: {why}" in printed.err
    (results,) = kept.glob("*.json")
    found = json.loads(results.read_text())
    assert found["latency"][0]["engines"]["fluidtool"]["milliseconds"] > 0
    assert found["growth"][0]["sizes"] == [1, 2]
    assert found["machine"]["processors"] and results.name.startswith(found["date"][:10])
    page = (kept / "README.md").read_text()
    assert all(title in page for title in titles) and results.name in page
    for text in (results.read_text(), page):
        assert str(Path.home()) not in text and str(lstm.parent) not in text and str(tmp_path) not in text


def test_executors_at_once_share_the_time(
    lstm: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLUIDTOOL_THREADS", "2")
    short = [*SHORT, "--threads", "2", "--models", str(lstm.parent)]
    assert command.main([*short, "--parts", "throughput"]) == 0
    printed = capsys.readouterr().out
    assert "2 executors at once with a thread each" in printed and "fluidtool" in printed


def test_the_time_of_runs_at_once_is_that_of_all_by_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Barrier(2, timeout=10)  # each waits for the other: they do run at once
    moments = iter((1.0, 1.06))
    monkeypatch.setattr("benchmarks.repeats.time.perf_counter", lambda: next(moments))
    assert milliseconds([begun.wait, begun.wait], 6) == [pytest.approx(10.0)]


def test_each_run_of_one_executor_has_a_time_of_its_own() -> None:
    assert len(milliseconds([lambda: None], 6)) == 6


def test_nothing_is_kept_unless_asked_for(
    lstm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLUIDTOOL_THREADS", "1")
    monkeypatch.setattr(command.keeping, "keep", lambda *_: pytest.fail("kept"))
    assert command.main([*SHORT, "--models", str(lstm.parent), "--parts", "full"]) == 0
    assert list(tmp_path.iterdir()) == [] and capsys.readouterr().out == ""


def test_results_of_before_a_failure_are_kept_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def two(*_: object) -> Iterator[dict[str, float]]:
        yield {"run_seconds": 0.3, "numpy_seconds": 0.2, "ratio": 1.5}
        raise RuntimeError("the second fails")

    monkeypatch.setitem(command.PARTS, "starts", two)
    with pytest.raises(RuntimeError, match="the second fails"):
        command.main(["--parts", "starts", "--threads", "1", "--keep", str(tmp_path)])
    [kept] = tmp_path.glob("*.json")
    assert json.loads(kept.read_text())["starts"][0]["ratio"] == 1.5
    assert "fluidtool run samples/digits" in capsys.readouterr().out


def test_missing_peers_are_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PADDLE_1", raising=False)
    monkeypatch.setenv("PADDLE_2", "python-of-paddle-2")
    present, missing = engines()
    assert "PADDLE_1" in missing["paddle1"] and "paddle2" not in missing
    assert {"fluidtool", "fluidtool numpy", "paddle2", "paddle2 mkldnn"} <= {engine.name for engine in present}


# ---------------------------------------------------------------- growth of the cost
def curve(*milliseconds: float) -> Curve:
    return Curve("by batch", "images", (1, 2, 3, 4)[: len(milliseconds)], milliseconds)


def test_a_curve_says_what_one_costs() -> None:
    assert Curve("by batch", "images", (1, 4), (3.0, 8.0)).per_unit == (3.0, 2.0)


@pytest.mark.parametrize("straight", [(1.0, 2.0, 3.0, 4.0), (10.0, 11.0, 12.0, 13.0), (1.0, 2.5, 4.5, 7.0)])
def test_a_straight_or_gently_bent_curve_has_no_cliffs(straight: tuple[float, ...]) -> None:
    assert curve(*straight).cliffs() == {}


def test_where_one_gets_dearer_there_is_a_cliff() -> None:
    assert curve(1.0, 2.0, 6.0, 8.0).cliffs() == {3: 2.0}


def test_a_size_that_is_dearer_than_the_line_between_its_neighbors_is_a_cliff() -> None:
    assert curve(10.0, 12.0, 17.0, 14.0).cliffs() == {3: pytest.approx(17 / 13)}


def test_curves_are_plotted_with_their_cliffs(tmp_path: Path) -> None:
    if find_spec("matplotlib") is None:
        pytest.skip("matplotlib is not installed: pip install 'fluidtool[plot]'")
    growth.plot([curve(1.0, 2.0, 6.0, 8.0).as_json(), curve(1.0, 2.0).as_json()], tmp_path / "growth.svg")
    assert (tmp_path / "growth.svg").read_text().count("by batch") >= 1


def test_executors_at_once_take_what_all_of_them_get_done() -> None:
    together = growth.at_once([lambda _: 4.0, lambda _: 4.0])
    assert together(0.0) == pytest.approx(4.0)
    assert growth.at_once([lambda _: 2.0, lambda _: 6.0])(0.0) == pytest.approx(3.0)
