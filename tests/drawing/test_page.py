"""The page, the SVG and the DOT text: well-formed, closed to everything outside, the same each time; names do no harm."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest

from fluidtool.drawing.assets import asset
from fluidtool.drawing.palette import (
    FIGURE_COLORS,
    INK_DARK,
    INK_LIGHT,
    KIND_COLORS,
    SOFT_DARK,
    SOFT_LIGHT,
)
from fluidtool.ir import Program
from fluidtool.workflows.view import Drawing, view
from tests.cli.support import linear_program
from tests.drawing.programs import EVIL, chain, looping, named

VOID = {"meta", "input", "link", "br", "hr", "img"}
SVG = "{http://www.w3.org/2000/svg}"


def drawing(program: Program, **options: Any) -> Drawing:
    return view(program.serialize_to_string(), **options)


class Page(HTMLParser):
    """The elements of a page, and the text of its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, dict[str, str | None], str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("script", "style"):
            self.texts.append((self.open[-1], self.elements[-1][1], data))

    def raw(self, tag: str, kind: str | None = None) -> str:
        return "".join(data for name, attrs, data in self.texts if name == tag and attrs.get("type") == kind)

    @property
    def data(self) -> Any:
        return json.loads(self.raw("script", "application/json"))

    @property
    def policy(self) -> dict[str, str]:
        (meta,) = [attrs for _, attrs in self.elements if attrs.get("http-equiv") == "Content-Security-Policy"]
        rules = (rule.strip().partition(" ") for rule in (meta["content"] or "").split(";"))
        return {name: value for name, _, value in rules}


def hashed(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


# ---------------------------------------------------------------- the page
def test_every_element_is_closed() -> None:
    assert Page(drawing(looping()).html()).open == []


def test_the_policy_allows_this_script_and_this_style_alone() -> None:
    page = Page(drawing(linear_program()).html())
    assert page.policy == {
        "default-src": "'none'",
        "script-src": hashed(page.raw("script")),
        "style-src": hashed(page.raw("style")),
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_nothing_is_loaded_from_elsewhere() -> None:
    text = drawing(linear_program()).html()
    assert not re.search(r"""(src|href|action)\s*=|url\(|@import|fetch\(|XMLHttp|import\(""", text)
    assert set(re.findall(r"https?://[^\s\"'<]+", text)) == {"http://www.w3.org/2000/svg"}


def test_the_script_makes_no_html_of_text_and_no_style_attributes() -> None:
    script = asset("page.js")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|Function\(|style\s*:", script)


@pytest.mark.parametrize("name", [EVIL, "<!--<script>", "]]>", "a\u2028b", "é漢字\u202e"])
def test_no_name_ends_the_data_or_becomes_markup(name: str) -> None:
    page = Page(drawing(named(name)).html())
    assert len([tag for tag, _ in page.elements if tag == "script"]) == 2
    assert page.open == []
    shown = name.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e").replace("\u2028", "\\u2028")
    assert shown in [each[0] for each in page.data["variables"]]


def test_a_very_long_name_is_short_in_the_picture_and_whole_in_the_details() -> None:
    name = "n" * 10_000
    data = Page(drawing(named(name)).html()).data
    assert max(len(node["title"]) for picture in data["pictures"] for node in picture["nodes"]) <= 28
    assert name in [each[0] for each in data["variables"]]


def test_operators_have_attributes_shapes_and_types() -> None:
    data = Page(drawing(linear_program()).html()).data
    (product,) = [each for each in data["operators"] if each["type"] == "mul"]
    assert (product["block"], product["number"]) == (0, 1)
    assert ["x_num_col_dims", "1"] in product["attributes"]
    names = {slot: [data["variables"][number][:2] for number in numbers] for slot, numbers in product["inputs"]}
    assert names == {"X": [["x", "float32 (-1, 4)"]], "Y": [["w", "parameter float32 (4, 3)"]]}


def test_a_block_is_a_picture_that_a_node_opens() -> None:
    data = Page(drawing(looping()).html()).data
    (loop,) = [node for node in data["pictures"][0]["nodes"] if "inner" in node]
    assert {node["title"] for node in data["pictures"][loop["inner"]]["nodes"]} >= {"assign", "less_than"}


def test_a_page_holds_every_operator_once() -> None:
    program = chain(700)
    data = Page(drawing(program).html()).data
    assert len(data["operators"]) == 700
    assert len(data["pictures"][0]["nodes"]) < 100


# ---------------------------------------------------------------- the others
@pytest.mark.parametrize(
    "program", [linear_program, looping, partial(named, EVIL), partial(named, "n" * 10_000), partial(chain, 400)]
)
def test_svg_is_xml_with_a_card_for_each_node(program: Callable[[], Program]) -> None:
    found = drawing(program())
    root = ElementTree.fromstring(found.svg())
    assert root.tag == f"{SVG}svg"
    cards = [each for each in root.iter(f"{SVG}rect") if each.get("class") == "card"]
    graph = found.graph("svg")
    assert len(cards) == len(graph.nodes) + sum(
        len(group.inner.nodes) for group in graph.groups() if group.inner and group.folded == "block"
    )
    assert not [
        each for each in root.iter() if each.tag in (f"{SVG}script", f"{SVG}foreignObject", f"{SVG}a", f"{SVG}image")
    ]


def test_svg_fits_its_frame() -> None:
    root = ElementTree.fromstring(drawing(looping()).svg())
    _, _, width, height = map(float, root.get("viewBox", "").split())
    (outer,) = [each for each in root if each.tag == f"{SVG}g"]
    for node in outer:
        if node.tag == f"{SVG}g":
            x, y = map(float, re.findall(r"[-\d.]+", node.get("transform", "")))
            card = next(each for each in node if each.get("class") == "card")
            assert x >= 0 and x + float(card.get("width", 0)) <= width - 24
            assert y >= 0 and y + float(card.get("height", 0)) <= height - 24


def test_shapes_stand_beside_lines_except_those_of_inputs() -> None:
    found = drawing(linear_program())
    root = ElementTree.fromstring(found.svg())
    assert [each.text for each in root.iter(f"{SVG}text") if each.get("class") == "label"] == ["(-1, 3)"] * 4
    assert found.dot().count('[label="(-1, 3)"]') == 4 and '[label="(-1, 4)"]' not in found.dot()


def test_dot_quotes_names_and_has_every_link() -> None:
    text = drawing(named('a"b\\c')).dot()
    assert text.startswith("digraph ") and '[label="a\\"b\\\\c' in text
    assert re.findall(r"(n\d) -> (n\d)", text) == [("n0", "n1"), ("n1", "n2"), ("n2", "n3")]


def test_dot_has_a_cluster_for_a_block() -> None:
    assert drawing(looping()).dot().count("subgraph cluster_") == 1


@pytest.mark.parametrize("format", ["html", "svg", "dot"])
def test_the_same_model_gives_the_same_bytes(format: Any) -> None:
    assert drawing(looping()).text(format) == drawing(looping()).text(format)


def test_bytes_do_not_depend_on_the_hashes_of_names() -> None:
    import subprocess
    import sys

    from tests.support.checkout import ROOT, child_environment

    code = (
        "import hashlib; from tests.drawing.programs import looping; from fluidtool.workflows.view import view;"
        "d = view(looping().serialize_to_string()); print(hashlib.sha256((d.html() + d.svg() + d.dot()).encode()).hexdigest())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**child_environment(), "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "12"
    }
    assert len(found) == 1


# ---------------------------------------------------------------- colors
def luminance(color: str) -> float:
    """Of sRGB, by WCAG 2."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", [*KIND_COLORS, *FIGURE_COLORS])
def test_text_is_readable_on_every_color(name: str) -> None:
    color = {**KIND_COLORS, **FIGURE_COLORS}[name]
    for ink, soft, fill in ((INK_LIGHT, SOFT_LIGHT, color.fill), (INK_DARK, SOFT_DARK, color.dark_fill)):
        assert contrast(ink, fill) >= 7
        assert name in FIGURE_COLORS or contrast(soft, fill) >= 4.5  # on figures all text is in ink


def test_ink_is_what_the_style_says() -> None:
    style = asset("graph.css")
    assert style.count(INK_LIGHT) and style.count(INK_DARK) and style.count(SOFT_LIGHT) and style.count(SOFT_DARK)


def test_the_picture_in_the_documents_is_current() -> None:
    from tests.support.checkout import ROOT

    assert (ROOT / "docs/view.svg").read_text("utf-8") == view(ROOT / "samples/digits").svg()
