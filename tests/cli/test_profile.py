"""`fluidtool profile`: what is timed, what it is compared with, the trace, and every way to use it wrongly."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest

import fluidtool
from fluidtool import fluid
from fluidtool.profiling import Peak, Work, profile
from fluidtool.profiling.machine import measure_peak
from fluidtool.profiling.recorder import Recorder
from fluidtool.random_feed import random_feed
from fluidtool.runtime import Executor, Scope
from fluidtool.runtime.engines.native import library as native
from fluidtool.runtime.engines.native.kernels.products import matrices, product
from fluidtool.runtime.graph.importers import IMPORTERS
from tests.cli.support import DIGITS, TOPICS, call, call_json, error_of, feed_file, linear_model, on_terminal

built = pytest.mark.usefixtures("native")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return linear_model(tmp_path / "model")


@pytest.fixture
def x(tmp_path: Path) -> Path:
    return feed_file(tmp_path / "x.npy", rows=2)


# ---------------------------------------------------------------- numpy
def test_every_operator_is_an_item_with_its_place(model: Path, x: Path) -> None:
    found = call_json("profile", model, "--feed", x, "--engine", "numpy", "--repeat", 2)
    assert [item["name"] for item in found["items"]] == ["mul", "elementwise_add", "relu", "softmax"]
    assert {item["engine"] for item in found["items"]} == {"numpy"}
    assert [(item["block"], item["operator"], item["output"]) for item in found["items"]] == [
        (0, 1, "product"),
        (0, 2, "sum"),
        (0, 3, "positive"),
        (0, 4, "probability"),
    ]
    assert [item["shape"] for item in found["items"]] == [[2, 3]] * 4


@built
@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_items_and_what_is_outside_them_add_up(model: Path, x: Path, engine: str) -> None:
    found = call_json("profile", model, "--feed", x, "--engine", engine, "--repeat", 7)
    total = sum(item["seconds"] for item in found["items"]) + found["seconds_outside"]
    assert total == pytest.approx(found["seconds_added"], rel=1e-9)
    shares = sum(item["share"] for item in found["items"]) + found["seconds_outside"] / found["seconds_added"]
    assert shares == pytest.approx(1, rel=1e-9)
    assert found["seconds_watched"]["min"] <= found["seconds_added"] <= found["seconds_watched"]["max"]


def test_work_is_counted_by_the_shapes_of_the_run(model: Path, x: Path) -> None:
    product, add, *_ = call_json("profile", model, "--feed", x, "--engine", "numpy", "--repeat", 1)["items"]
    assert product["multiply_adds"] == 2 * 4 * 3
    assert product["bytes"] == 4 * (2 * 4 + 4 * 3 + 2 * 3)
    assert add["multiply_adds"] == 0 and add["bytes"] == 4 * (2 * 3 + 3 + 2 * 3)
    assert product["flops_per_second"] == pytest.approx(2 * product["multiply_adds"] / product["seconds"])


def test_the_memory_is_what_is_alive_at_each_operator(model: Path, x: Path) -> None:
    memory = call_json("profile", model, "--feed", x, "--engine", "numpy", "--repeat", 1)["memory"]
    assert [point["alive_bytes"] for point in memory["curve"]] == [4 * 14, 4 * 12, 4 * 12, 4 * 12]
    assert (memory["peak_bytes"], memory["peak_item"]) == (4 * 14, 0)


def test_operators_within_a_loop_do_not_count_twice() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        i = fluid.layers.fill_constant([1], "int64", 0)
        limit = fluid.layers.fill_constant([1], "int64", 3)
        cond = fluid.layers.less_than(i, limit)
        loop = fluid.layers.While(cond)
        with loop.block():
            fluid.layers.increment(i, 1, in_place=True)
            fluid.layers.less_than(i, limit, cond=cond)
    recorder = Recorder({})
    Executor(engine="numpy").run(main, {}, [i.name], Scope(), observer=recorder)
    totals = {total.what.name: total for total in recorder.totals.values()}
    seconds = {total.what.name: recorder.seconds[key] for key, total in recorder.totals.items()}
    assert totals["increment"].times == 3 and totals["while"].times == 1
    length = next(event.length for event in recorder.events if event.name == "while")
    within = sum(event.length for event in recorder.events if event.name == "increment")
    assert seconds["while"] <= length - within


# ---------------------------------------------------------------- native
@built
def test_every_step_of_a_call_is_an_item(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLUIDTOOL_NATIVE", raising=False)
    found = call_json("profile", DIGITS, "--random", "--repeat", 2, "--engine", "native")
    kernels = [item["kernel"] for item in found["items"]]
    (plan,) = call_json("inspect", DIGITS, "--plan")["native"]["regions"]
    assert kernels == [*(step["kernel"] for step in plan["kernel_calls"]), "in and out"]
    convolution = next(item for item in found["items"] if item["name"] == "conv + relu")
    assert convolution["multiply_adds"] == 16 * 8 * 8 * 9 and convolution["region"] == 1


@built
def test_regions_and_single_operators_stand_in_the_order_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLUIDTOOL_NATIVE", raising=False)
    monkeypatch.delitem(IMPORTERS, "sequence_conv")  # as if there were no kernel
    found = call_json("profile", TOPICS, "--random", "--repeat", 1)
    engines = {item["engine"] for item in found["items"]}
    assert engines == {"native", "numpy"} and found["items"][0]["name"] in ("gather", "lookup_table")


@built
def test_a_watched_run_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fluidtool.load(DIGITS, engine="native")
    feed = random_feed(model, seed=3)
    want = model.run(feed)
    found = model.run(feed, observer=Recorder(feed))
    for name, value in want.items():
        np.testing.assert_array_equal(np.asarray(found[name]), np.asarray(value))


@built
@pytest.mark.parametrize("there", [True, False], ids=["native", "numpy"])
def test_the_peak_is_measured(there: bool) -> None:
    peak = measure_peak(native.library() if there else None)
    assert 1e8 < peak.flops < 1e14
    assert all(1e8 < speed < 1e13 for _, speed in peak.bandwidth)


@built
def test_pairs_of_bf16_are_compared_with_a_peak_of_their_own() -> None:
    engine = native.library()
    assert engine is not None
    pairs = replace(engine, precision="bf16")
    if not pairs.pairs:
        pytest.skip("this processor has no instructions for pairs of bfloat16 numbers")
    found = profile(fluidtool.load(DIGITS, precision="bf16"), random_feed(fluidtool.load(DIGITS)), repeat=1).peak
    assert found.by.endswith("bf16 pairs")
    assert measure_peak(pairs).flops > 0.7 * measure_peak(engine).flops  # as fast on some processors, twice on others


@built
def test_no_product_is_faster_than_the_peak() -> None:
    engine, size = native.library(), 768
    assert engine is not None
    x = matrices(np.ones((size, size), np.float32))
    before, taken = measure_peak(engine), []
    for _ in range(5):
        start = perf_counter()
        product(engine, x, x, (size, size))
        taken.append(perf_counter() - start)
    peak = before.better(measure_peak(engine))
    assert 2 * size**3 / min(taken) < 1.1 * peak.flops


# ---------------------------------------------------------------- what is compared
def test_the_larger_part_of_the_peak_is_what_limits() -> None:
    peak = Peak(flops=100.0, bandwidth=((1000, 50.0), (10_000, 20.0)), by="test")
    assert peak.reached(Work(25, 10), 1.0) == ("multiply-adds", 0.5)
    assert peak.reached(Work(5, 40), 1.0) == ("memory", 0.8)
    assert peak.reached(Work(0, 2000), 200.0) == ("memory", 0.5)
    assert peak.reached(Work(), 1.0) == ("", None)
    assert peak.reached(Work(1, 1), 0.0) == ("", None)


def test_profile_is_one_call_of_the_library() -> None:
    model = fluidtool.load(DIGITS, engine="numpy")
    found = profile(model, random_feed(model), repeat=2)
    assert len(found.plain) == len(found.watched) == 2
    assert found.most is not None and found.items[found.most.item].name


# ---------------------------------------------------------------- output
def test_the_tables_fit_into_eighty_columns() -> None:
    shown = on_terminal("profile", DIGITS, "--random", "--repeat", 1, "--top", 0, TERM="dumb")
    assert max(len(line) for line in shown.splitlines()) <= 80
    out = call("profile", DIGITS, "--random", "--repeat", 1, "--top", 0).stdout
    assert re.search(r"^a run +\S+ ms \(min \S+, p90 \S+, std \S+; 1 runs\)$", out, re.MULTILINE)
    assert re.search(r"^peak +\S+ GFLOP/s, \S+ GB/s \(in cache \S+\) \(.*\)$", out, re.MULTILINE)


def test_top_leaves_out_what_takes_little() -> None:
    out = call("profile", DIGITS, "--random", "--repeat", 1, "--top", 2, "--engine", "numpy").stdout
    _, _, _, others, outside = out.split("Slowest\n")[1].splitlines()
    assert others.split()[:2] == ["9", "others"] and outside.split()[:2] == ["outside", "operators"]


def test_a_trace_holds_every_item_and_the_memory(tmp_path: Path, model: Path, x: Path) -> None:
    target = tmp_path / "trace.json"
    result = call("profile", model, "--feed", x, "--engine", "numpy", "--repeat", 2, "--trace", target)
    assert result.exit_code == 0 and f"trace saved to {target}" in result.stderr
    events = json.loads(target.read_text())["traceEvents"]
    bars = [event for event in events if event["ph"] == "X"]
    assert [bar["name"] for bar in bars] == ["mul", "elementwise_add", "relu", "softmax"]
    assert all(first["ts"] + first["dur"] <= second["ts"] for first, second in pairwise(bars))
    assert [event["args"]["alive bytes"] for event in events if event["ph"] == "C"] == [56, 48, 48, 48]


def test_a_trace_is_not_overwritten_without_force(tmp_path: Path, model: Path, x: Path) -> None:
    target = tmp_path / "trace.json"
    target.write_text("mine")
    result = call("profile", model, "--feed", x, "--trace", target)
    assert result.exit_code == 2 and "already exists" in error_of(result) and target.read_text() == "mine"
    assert call("profile", model, "--feed", x, "--trace", target, "--force", "--repeat", 1).exit_code == 0
    assert target.read_text().startswith("{")


def test_a_model_needs_its_inputs(model: Path) -> None:
    result = call("profile", model)
    assert result.exit_code == 2 and "--random" in error_of(result)


@pytest.mark.parametrize("options", [["--repeat", "0"], ["--top", "-1"], ["--engine", "tpu"], ["--shape", "y=1"]])
def test_options_that_cannot_be(model: Path, options: list[str]) -> None:
    result = call("profile", model, "--random", *options)
    assert result.exit_code == 2 and result.stdout == ""


# ---------------------------------------------------------------- the drawing
def test_times_are_drawn_as_bars(model: Path, x: Path, tmp_path: Path) -> None:
    path = tmp_path / "time.svg"
    result = call("profile", model, "--feed", x, "--engine", "numpy", "--repeat", 1, "--draw", path)
    assert result.exit_code == 0 and f"drawing saved to {path}" in result.stderr
    text = path.read_text("utf-8")
    assert text.count('class="bar"') == 4 and ">softmax<" in text and "product (2, 3)" in text


def test_a_drawing_has_its_suffix_and_replaces_nothing(model: Path, tmp_path: Path) -> None:
    assert "ends in .svg" in error_of(call("profile", model, "--random", "--draw", tmp_path / "time.png"))
    (tmp_path / "time.svg").write_text("mine")
    assert "already exists" in error_of(call("profile", model, "--random", "--draw", tmp_path / "time.svg"))
    assert (tmp_path / "time.svg").read_text() == "mine"
