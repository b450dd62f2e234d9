"""How close kernels come to the processor's limits (benchmarks/limits.py), and the table of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.inference_networks import NETWORKS, write
from benchmarks.limits import CASES, limits, reached
from benchmarks.tables import limits_table
from fluidtool.profiling import Item, Work


def item(seconds: float, limit: str, share: float | None) -> Item:
    return Item("conv", "convolution", "native", 1, 0, 0, "out", (1,), 1, seconds, 0.1, Work(), limit, share)


def test_a_call_takes_its_share_of_its_time_at_the_limit() -> None:
    items = item(0.002, "multiply-adds", 0.75), item(0.001, "multiply-adds", 0.5), item(0.004, "memory", 1.0)
    assert reached(items, "multiply-adds") == pytest.approx({"milliseconds": 3.0, "at_limit": 2.0})
    assert reached(items, "memory") == pytest.approx({"milliseconds": 4.0, "at_limit": 4.0})


def test_what_nothing_limits_counts_to_neither() -> None:
    assert reached((item(0.002, "", None),), "memory") == {"milliseconds": 0.0, "at_limit": 0.0}


def test_the_table_has_the_part_of_the_limit_and_of_the_time() -> None:
    kinds = {
        "products": {"milliseconds": 8.0, "at_limit": 6.0},
        "moves": {"milliseconds": 2.0, "at_limit": 1.0},
    }
    row = {
        "network": "resnet50",
        "batch": 8,
        "precision": "bf16",
        "milliseconds": 10.0,
        "watched": 12.5,
        "kinds": kinds,
    }
    assert limits_table([row]).rows == [
        ["ResNet-50, 224 x 224, batch 8", "bf16", "10", "7", "70 %", "75 %", "64 %", "50 %", "16 %"]
    ]


def test_a_network_without_calls_that_are_limited_has_no_share() -> None:
    kinds = {"products": {"milliseconds": 0.0, "at_limit": 0.0}, "moves": {"milliseconds": 0.0, "at_limit": 0.0}}
    row = {"network": "lstm", "batch": 1, "precision": "float32", "milliseconds": 1.0, "watched": 1.0, "kinds": kinds}
    assert limits_table([row]).rows[0][4:] == ["0 %", "-", "0 %", "-", "0 %"]


def test_all_cases_are_networks_of_the_benchmarks() -> None:
    assert {network for network, _, _ in CASES} <= set(NETWORKS)


@pytest.mark.usefixtures("native")
def test_a_network_is_measured(tmp_path: Path) -> None:
    write(NETWORKS["mobilenet_v3_small"], tmp_path / "mobilenet_v3_small")
    found = limits("mobilenet_v3_small", 1, "float32", tmp_path, runs=2)
    products = found["kinds"]["products"]
    assert products["at_limit"] > 0 and 0 < products["milliseconds"] < found["watched"]
