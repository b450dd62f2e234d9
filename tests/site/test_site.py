"""The site: it is built without warnings, its links and anchors lead somewhere, and a page loads nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("mkdocs", reason="the site needs the extra docs; .ci/run builds it in an environment of its own")

LOADS = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "link": "href",
}
LOADED_LINKS = {"stylesheet", "icon", "preload", "preconnect", "modulepreload", "manifest"}


@dataclass
class Page(HTMLParser):
    """What a page names: anchors, links, and what a browser loads with it."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        loaded = tag in LOADS and (tag != "link" or LOADED_LINKS & set(found.get("rel", "").split()))
        if loaded and LOADS[tag] in found:
            self.loads.append(found[LOADS[tag]])


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    """Every page by its file."""
    found = {}
    for path in sorted(site.rglob("*.html")):
        found[path] = Page()
        found[path].feed(path.read_text("utf-8"))
    return found


def inside(pages: dict[Path, Page], path: Path) -> Iterator[tuple[Path, str, str]]:
    """The links of a page that stay in the site: (file, anchor, as written)."""
    for link in pages[path].links:
        parts = urlsplit(link)
        if not parts.scheme and not parts.netloc:
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            yield target / "index.html" if target.is_dir() else target, unquote(parts.fragment), link


def test_every_link_and_anchor_leads_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    broken = []
    for path in pages:
        if path.name == "404.html":  # its links are absolute, since it is shown for any address
            continue
        for target, anchor, link in inside(pages, path):
            missing = not target.exists()
            if missing or (anchor and target in pages and anchor not in pages[target].anchors):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


def test_no_page_loads_anything_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    loaded = [(path.relative_to(site), each) for path, page in pages.items() for each in page.loads]
    assert [each for each in loaded if re.match(r"[a-z]+:|//", each[1]) and not each[1].startswith("data:")] == []
    styles = {path: path.read_text("utf-8") for suffix in ("css", "svg") for path in site.rglob(f"*.{suffix}")}
    outside = re.compile(r"url\(\s*[\"']?(?:https?:)?//|@import|<(?:script|image)[^>]+href=[\"']https?:")
    assert [str(path.relative_to(site)) for path, text in styles.items() if outside.search(text)] == []


def test_every_page_is_two_clicks_away(site: Path, pages: dict[Path, Page]) -> None:
    near = {site / "index.html"}
    for _ in range(2):
        near |= {target for path in near for target, _, _ in inside(pages, path) if target in pages}
    assert [str(path.relative_to(site)) for path in pages if path not in near and path.name != "404.html"] == []


def test_every_name_of_the_api_is_documented(site: Path, pages: dict[Path, Page]) -> None:
    import fluidtool

    anchors = pages[site / "api" / "fluidtool.html"].anchors
    assert [name for name in fluidtool.__all__ if f"fluidtool.{name}" not in anchors] == ["__version__"]
