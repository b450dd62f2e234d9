"""The site in a real browser, at the widths of a phone and of a desk, light and dark. Skipped where there is no Chromium.

Looks for what is broken, not for what is beautiful: no page is compared with a picture.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.support.chromium import BROWSER, MISSING, Browser, browser

pytest.importorskip("mkdocs", reason="the site needs the extra docs; .ci/run builds it in an environment of its own")
pytestmark = [pytest.mark.skipif(BROWSER is None, reason=MISSING), pytest.mark.slow]

PHONE, DESK = 390, 1280
SOME = (
    "index.html",
    "tour.html",
    "operators.html",
    "schemas/run-1.html",
    "api/fluidtool.html",
    "project/CONTRIBUTING.html",
)
# Pixels by which a page is wider than the window, and what is too wide.
OVERFLOW = """(() => {
    const root = document.documentElement, more = root.scrollWidth - root.clientWidth
    const wide = [...document.querySelectorAll("body *")].filter(each => each.getBoundingClientRect().right > root.clientWidth + 1)
    return more > 0 ? `${more}: ${wide.slice(0, 3).map(each => each.outerHTML.slice(0, 80)).join("; ")}` : ""
})()"""
BRIGHTNESS = "Math.max(...getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number))"


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder and writes no log."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the site is served."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


def test_no_page_is_wider_than_a_phone_or_complains_or_loads_from_elsewhere(
    site: Path, address: str, chromium: Browser
) -> None:
    faults = []
    chromium.look(PHONE, dark=False)
    for path in sorted(site.rglob("*.html")):
        name = path.relative_to(site).as_posix()
        chromium.open(address + name)
        if over := chromium.value(OVERFLOW):
            faults.append(f"{name} is too wide by {over}")
        faults += [f"{name}: {each}" for each in chromium.complaints]
        faults += [f"{name} loads {each}" for each in chromium.requests if not each.startswith((address, "data:"))]
    assert faults == []


@pytest.mark.parametrize("width", [PHONE, DESK])
@pytest.mark.parametrize("dark", [False, True])
def test_a_page_follows_the_color_scheme(address: str, chromium: Browser, width: int, dark: bool) -> None:
    chromium.forget()  # a page remembers the scheme of the page before
    chromium.look(width, dark)
    for name in SOME:
        chromium.open(address + name)
        chromium.wait_for(f"{BRIGHTNESS} < 80" if dark else f"{BRIGHTNESS} > 200")
        assert chromium.value(OVERFLOW) == "" and chromium.complaints == [], name


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_search_finds_a_page(address: str, chromium: Browser, width: int) -> None:
    chromium.look(width, dark=False)
    chromium.open(f"{address}tour.html?q=parameter+servers")
    found = chromium.wait_for("document.querySelector('.md-search-result__item a')?.href")
    assert found.startswith(address)
    texts = chromium.value("[...document.querySelectorAll('.md-search-result__link')].map(each => each.href)")
    assert any("tutorials/parameter-servers.html" in each for each in texts)
    assert chromium.complaints == [] and all(each.startswith((address, "data:")) for each in chromium.requests)


def test_a_search_for_nothing_finds_nothing(address: str, chromium: Browser) -> None:
    chromium.open(f"{address}tour.html?q=zzzzqqqq")
    assert chromium.wait_for("document.querySelector('.md-search-result__meta')?.textContent.includes('No matching')")
    assert chromium.value("document.querySelectorAll('.md-search-result__item').length") == 0


def test_what_is_too_wide_is_found(address: str, chromium: Browser) -> None:
    chromium.look(PHONE, dark=False)
    chromium.open(f"{address}index.html")
    chromium.value("document.body.insertAdjacentHTML('beforeend', '<div style=\"width: 500px\">wide</div>')")
    assert chromium.value(OVERFLOW).startswith("110: ")
