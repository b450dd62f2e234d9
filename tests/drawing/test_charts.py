"""Charts: the longest bars, curves as high as their figures."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from fluidtool.drawing.charts import Bar, Curve, memory_chart, size_text, time_chart
from tests.drawing.programs import EVIL

SVG = "{http://www.w3.org/2000/svg}"


def bars(text: str) -> list[float]:
    found = [each for each in ElementTree.fromstring(text).iter(f"{SVG}rect") if each.get("class") == "bar"]
    return [float(each.get("width", 0)) for each in found]


def test_the_longest_bar_is_first_and_lengths_are_in_proportion() -> None:
    text = time_chart([Bar("a", "", 0.001), Bar("b", "", 0.004)], "Time", "")
    assert bars(text) == [420, 105]
    assert text.index(">b<") < text.index(">a<") and "4 ms · 80.0 %" in text


def test_what_is_short_becomes_one_bar() -> None:
    text = time_chart([Bar(f"op{at}", "", 1.0) for at in range(100)], "Time", "")
    assert len(bars(text)) == 41 and "60 others" in text


def test_names_are_escaped() -> None:
    assert "<script" not in time_chart([Bar(EVIL, EVIL, 1.0)], EVIL, EVIL)
    ElementTree.fromstring(time_chart([Bar(EVIL, EVIL, 1.0)], EVIL, EVIL))


def test_a_chart_of_nothing() -> None:
    assert bars(time_chart([], "Time", "")) == []
    ElementTree.fromstring(memory_chart([], "Memory", ""))


def curve(text: str, css: str) -> list[tuple[float, float]]:
    (path,) = re.findall(rf'<path class="curve {css}" d="(M[^h"]*)"/>', text)
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([-\d.]+) ([-\d.]+)", path)]


def test_a_curve_is_as_high_as_its_figures() -> None:
    text = memory_chart([Curve("before", "before", [1024, 4096]), Curve("after", "after", [1024, 2048])], "Memory", "")
    before, after = curve(text, "before"), curve(text, "after")
    assert {y for _, y in before} == {386 - 80, 66}
    assert {y for _, y in after} == {386 - 80, 386 - 160}
    assert "before: at most 4 KiB" in text and "after: at most 2 KiB" in text


def test_curves_of_many_operators_keep_their_peaks() -> None:
    text = memory_chart([Curve("before", "before", [10] * 50_000 + [1000] + [10] * 50_000)], "Memory", "")
    points = curve(text, "before")
    assert len(points) <= 2002 and min(y for _, y in points) < 100


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1536, "1.5 KiB"), (10**9, "954 MiB")])
def test_sizes(count: int, text: str) -> None:
    assert size_text(count) == text
