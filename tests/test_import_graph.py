"""No files import one another in a circle, but those that docs/architecture.md names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.import_graph import Graph, circles, import_graph

PARENT_TYPES = frozenset(
    f"fluidtool.ir.{name}" for name in ("block", "descriptions", "operator", "program", "variable")
)
KNOWN = {PARENT_TYPES}


@pytest.fixture(scope="module")
def found() -> set[frozenset[str]]:
    folders = {"fluidtool": ROOT / "fluidtool", "fluidtool.ops": ROOT / "ops", "fluidtool.proto": ROOT / "proto"}
    return circles(import_graph(folders))


def test_there_is_no_circle_but_the_known_ones(found: set[frozenset[str]]) -> None:
    assert [sorted(circle) for circle in found - KNOWN] == []


@pytest.mark.parametrize("circle", KNOWN, ids=sorted)
def test_a_known_circle_is_still_there(found: set[frozenset[str]], circle: frozenset[str]) -> None:
    assert circle in found


def graph_of(folder: Path, files: dict[str, str]) -> Graph:
    """The graph of a package `p` of these files."""
    for name, text in files.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return import_graph({"p": folder})


@pytest.mark.parametrize(
    "text",
    [
        "import p.b",
        "from p import b",
        "from p.b import thing",
        "def f():\n    from p.b import thing",
        "async def f():\n    import p.b",
        "if TYPE_CHECKING:\n    from p.b import Thing",
        "try:\n    import p.b\nexcept ImportError:\n    pass",
    ],
)
def test_an_import_counts_wherever_it_stands(tmp_path: Path, text: str) -> None:
    assert graph_of(tmp_path, {"a": text, "b": ""})["p.a"] == {"p.b"}


def test_a_name_of_a_package_is_imported_from_its_init(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, {"a": "from p.inner import thing, c", "inner/__init__": "thing = 1", "inner/c": ""})
    assert graph["p.a"] == {"p.inner", "p.inner.c"}


def test_other_packages_are_left_out(tmp_path: Path) -> None:
    assert graph_of(tmp_path, {"a": "import os\nfrom numpy import array"}) == {"p.a": frozenset()}


@pytest.mark.parametrize(
    ("a", "b", "c", "expected"),
    [
        ("import p.b", "import p.c", "", set()),
        ("import p.b\nimport p.c", "import p.c", "", set()),
        ("import p.b", "import p.a", "import p.a", {frozenset({"p.a", "p.b"})}),
        ("import p.b", "import p.c", "import p.a", {frozenset({"p.a", "p.b", "p.c"})}),
    ],
    ids=["a line", "two ways to one file", "a circle of two, and a file outside it", "a circle of three"],
)
def test_a_circle_is_found(tmp_path: Path, a: str, b: str, c: str, expected: set[frozenset[str]]) -> None:
    assert circles(graph_of(tmp_path, {"a": a, "b": b, "c": c})) == expected


def test_circles_that_share_no_file_are_told_apart(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, {"a": "import p.b", "b": "import p.a\nimport p.c", "c": "import p.d", "d": "import p.c"})
    assert circles(graph) == {frozenset({"p.a", "p.b"}), frozenset({"p.c", "p.d"})}
