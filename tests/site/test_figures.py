"""Every measured figure on a page names what it comes from, and that is there and says the same."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support.checkout import ROOT

RESULTS = ROOT / "benchmarks/results"
pytestmark = pytest.mark.skipif(
    not RESULTS.exists(), reason="the results are not part of this copy (benchmarks/results)"
)

PAGES = [ROOT / "README.md", *sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), RESULTS / "README.md"]
# Pages whose figures are measured. A decision (docs/adr) has those of the day on which it was taken.
MEASURED = [
    *(ROOT / name for name in ("README.md", "SECURITY.md", "docs/collectives.md", "docs/scaling.md")),
    *sorted((ROOT / "docs/explanation").glob("*.md")),
    ROOT / "samples/README.md",
]
FIGURE = re.compile(
    r"\d ?(?:ms|µs|[MG]B/s|GFLOP/s|examples/s)\b|\d ?(?:%|times) (?:longer|faster|slower|less|more)|takes \d+ [MG]iB"
    r"|^\|.*\| (?:seconds|ms|MiB|time) \|",
    re.MULTILINE,
)
SOURCE = re.compile(r"benchmarks/[\w/.-]+|python -m (?:benchmarks|tests)[\w.]*|results/README\.md|python samples/")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def sections(page: Path) -> list[str]:
    return re.split(r"^(?=#+ )", prose(page), flags=re.MULTILINE)


def newest() -> Any:
    return json.loads(max(RESULTS.glob("*.json")).read_text())


def latency(network: str, batch: int) -> Any:
    [found] = [each for each in newest()["latency"] if (each["network"], each["batch"]) == (network, batch)]
    return found["engines"]


def limit_reached(*wanted: object) -> float:
    """What part of the processor's limits a run reaches, by network, images and precision."""
    [found] = [each for each in newest()["limits"] if (each["network"], each["batch"], each["precision"]) == wanted]
    return float(sum(kind["at_limit"] for kind in found["kinds"].values()) / found["milliseconds"])


def test_pages_have_measured_figures() -> None:
    assert sum(bool(FIGURE.search(section)) for page in MEASURED for section in sections(page)) >= 4


@pytest.mark.parametrize("page", MEASURED, ids=name_of)
def test_a_section_with_measured_figures_names_their_source(page: Path) -> None:
    text = page.read_text("utf-8")
    unsourced = [part for part in sections(page) if FIGURE.search(part) and not SOURCE.search(part)]
    assert [part.splitlines()[0] for part in unsourced if not SOURCE.search(text.partition("\n## ")[0])] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_results_and_measuring_commands_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    files = {each.rstrip(".,") for each in re.findall(r"benchmarks/[\w/-]+\.(?:json|svg|py|md)", text)}
    assert [name for name in sorted(files) if not (ROOT / name).exists()] == []
    modules = set(re.findall(r"python -m ((?:benchmarks|tests)[\w.]*)", text))
    assert [name for name in sorted(modules) if find_spec(name.rstrip(".")) is None] == []


def test_a_table_of_results_names_its_file() -> None:
    linked = re.findall(r"\]\(([\w-]+\.(?:json|svg))\)", (RESULTS / "README.md").read_text())
    assert linked and [name for name in linked if not (RESULTS / name).exists()] == []
    assert max(RESULTS.glob("*.json")).name in linked


def test_the_bars_are_drawn_from_the_newest_results() -> None:
    drawing = (ROOT / "docs/explanation/throughput.svg").read_text()
    assert max(RESULTS.glob("*.json")).name in drawing


def test_the_figures_in_sentences_are_those_of_the_newest_results() -> None:
    names = max(RESULTS.glob("*.json")).relative_to(ROOT).as_posix()
    page = " ".join((ROOT / "docs/explanation/speed.md").read_text().split())
    small, eight = latency("mobilenet_v1", 1), latency("resnet50", 8)
    assert f"MobileNet-V1 in float32 takes {small['fluidtool']['ratio']:.2f} of the time" in page
    reached = limit_reached("mobilenet_v1", 1, "float32")
    assert f"a run reaches {reached:.0%} of the limits of the processor (`{names}`)".replace("%", " %") in page
    arena = eight["fluidtool"]["arena_bytes"] / (1 << 20)
    assert f"the arena takes {arena:.0f} MiB (`{names}`)" in (ROOT / "docs/explanation/machine-code.md").read_text()
