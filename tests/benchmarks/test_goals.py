"""The goals of `python -m benchmarks`: where a measurement has each ratio, and whether it is good enough."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from benchmarks import starts
from benchmarks.goals import GOALS, Goal, cold, latency, time_to_paddle, training
from benchmarks.goals import starts as starts_of
from benchmarks.tables import goals_table, starts_table
from fluidtool.cli.render import plain

MEASURED: dict[str, Any] = {
    "latency": [
        {
            "network": "resnet50",
            "batch": 8,
            "engines": {
                "fluidtool": {"ratio": 0.9, "ratios": {"paddle1 mkldnn": 0.7}},
                "fluidtool int8": {"ratio": None, "ratios": {"fluidtool": 0.3}},
            },
        }
    ],
    "cold": [
        {"network": "lstm", "engines": {"fluidtool": {"seconds": 0.2}, "onnxruntime": {"seconds": 0.25}}},
        {"network": "bert_base", "engines": {"fluidtool": {"seconds": 0.2}}},
    ],
    "training": [{"network": "seq2seq", "ratio": 1.25, "torch_ratio": 0.5, "memory_ratio": None}],
    "starts": [{"run_seconds": 0.3, "numpy_seconds": 0.1, "ratio": 3.0}],
}


@pytest.mark.parametrize(
    ("of", "ratio"),
    [
        (latency("resnet50", 8), 0.9),
        (latency("resnet50", 8, other="paddle1 mkldnn"), 0.7),
        (latency("resnet50", 8, "fluidtool int8", "fluidtool"), 0.3),
        (cold("lstm"), 0.8),
        (training("seq2seq", "torch_ratio"), 0.5),
        (time_to_paddle("seq2seq"), 0.8),
        (starts_of, 3.0),
        # not measured
        (latency("resnet50", 1), None),
        (latency("resnet50", 8, "fluidtool bf16"), None),
        (latency("resnet50", 8, "fluidtool int8"), None),
        (latency("resnet50", 8, other="paddle2"), None),
        (cold("bert_base"), None),
        (cold("resnet50"), None),
        (training("seq2seq", "memory_ratio"), None),
        (time_to_paddle("lstmp"), None),
    ],
)
def test_where_a_ratio_is_found(of: Any, ratio: float | None) -> None:
    assert of(MEASURED) == (None if ratio is None else pytest.approx(ratio))


def test_nothing_measured_has_no_ratios() -> None:
    assert [goal.of({}) for goal in GOALS] == [None] * len(GOALS)
    assert goals_table({}).rows == []


@pytest.mark.parametrize(
    ("goal", "met", "missed"),
    [(Goal("time", starts_of, at_most=0.9), 0.9, 0.91), (Goal("speed", starts_of, at_least=1.0), 1.0, 0.99)],
)
def test_a_goal_is_met_up_to_its_bound(goal: Goal, met: float, missed: float) -> None:
    assert goal.is_met(met) and not goal.is_met(missed)


def test_every_goal_has_one_bound_and_a_name_of_its_own() -> None:
    assert all((goal.at_most is None) != (goal.at_least is None) for goal in GOALS)
    assert len({goal.what for goal in GOALS}) == len(GOALS)


def test_the_table_says_what_is_missed() -> None:
    lines = plain(goals_table(MEASURED)).splitlines()
    assert [line.split() for line in lines if "seq2seq" in line] == [
        ["0.50", ">=", "1.00", "missed", "training", "speed", "to", "PyTorch:", "seq2seq"],
        ["0.80", "<=", "0.90", "met", "time", "of", "a", "step", "to", "Paddle", "1.8.5:", "seq2seq"],
    ]


def test_starts_are_measured_in_turns_without_the_first_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = iter([9.0, 9.0, 0.3, 0.1, 0.4, 0.2])
    asked: list[Any] = []

    def seconds(arguments: Any) -> float:
        asked.append(arguments)
        return next(taken)

    monkeypatch.setattr(starts, "processor_seconds", seconds)
    found = starts.command_line(2)
    assert asked == [starts.RUN, starts.NUMPY] * 3
    assert found == pytest.approx({"run_seconds": 0.35, "numpy_seconds": 0.15, "ratio": 2.5})
    assert "2.50" in plain(starts_table(found))


def test_a_process_that_starts_takes_processor_time() -> None:
    assert 0 < starts.processor_seconds(["-c", "pass"]) < 30
    with pytest.raises(subprocess.CalledProcessError):
        starts.processor_seconds(["-c", "raise SystemExit(3)"])
