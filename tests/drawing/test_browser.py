"""The page in a real browser: its script runs, its policy holds, it is no empty picture. Skipped where there is no Chromium."""

from __future__ import annotations

import re
import struct
import subprocess
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fluidtool.ir import Program
from fluidtool.workflows.view import view
from tests.cli.support import linear_program
from tests.drawing.programs import EVIL, chain, looping, named
from tests.support.chromium import BROWSER, MISSING

pytestmark = [pytest.mark.skipif(BROWSER is None, reason=MISSING), pytest.mark.slow]


def page(folder: Path, program: Program, **options: Any) -> Path:
    path = folder / "graph.html"
    view(program.serialize_to_string(), path, **options)
    return path


def browse(path: Path, *options: str, fragment: str = "") -> tuple[str, str]:
    """What the browser writes, and its log, in which every violation of the policy and every error of a script stands."""
    command = [
        str(BROWSER),
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--enable-logging=stderr",
        "--virtual-time-budget=4000",
        f"--user-data-dir={path.parent / 'profile'}",
        *options,
        f"{path.as_uri()}{fragment}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line or "Content Security Policy" in line]
    return done.stdout, "\n".join(said)


def dom(path: Path, fragment: str = "") -> str:
    """The document after its script has run, without complaints."""
    text, log = browse(path, "--dump-dom", fragment=fragment)
    assert log == ""
    assert 'data-ready="yes"' in text
    return text


def nodes(text: str) -> list[str]:
    """The classes of the nodes in the picture, without those of the legend."""
    canvas = text[text.index('id="canvas"') : text.index('id="legend"')]
    return re.findall(r'<g class="node ([^"]*)"', canvas)


def pixels(path: Path) -> Counter[bytes]:
    """How often each color occurs in a PNG of 8 bits for each channel."""
    data = path.read_bytes()
    chunks, at = [], 8
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += length + 12
    width, height, depth, kind = struct.unpack_from(">IIBB", chunks[0][1])
    channels = {2: 3, 6: 4}[kind]
    assert depth == 8
    raw = zlib.decompress(b"".join(body for name, body in chunks if name == b"IDAT"))
    stride, before = width * channels, bytes(width * channels)
    counts: Counter[bytes] = Counter()
    for row in range(height):
        start = row * (stride + 1)
        before = unfiltered(raw[start], raw[start + 1 : start + 1 + stride], before, channels)
        counts.update(before[x : x + 3] for x in range(0, stride, channels * 4))
    return counts


def unfiltered(kind: int, line: bytes, above: bytes, step: int) -> bytes:
    """A row of a PNG as it was before it was filtered (PNG specification, 9.2)."""
    out = bytearray(line)
    for at in range(len(out)):
        left = out[at - step] if at >= step else 0
        corner = above[at - step] if at >= step else 0
        up = above[at]
        guess = left + up - corner
        nearest = min((abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner))[2]
        out[at] = (out[at] + (0, left, up, (left + up) // 2, nearest)[kind]) & 255
    return bytes(out)


def test_every_node_is_drawn(tmp_path: Path) -> None:
    assert len(nodes(dom(page(tmp_path, linear_program())))) == 6


def test_a_search_from_the_address_counts_and_marks(tmp_path: Path) -> None:
    text = dom(page(tmp_path, chain(30)), "#search=tanh")
    assert re.search(r'<output id="count"[^>]*>1 of 10</output>', text)
    assert sum("found" in each for each in nodes(text)) == 10
    assert sum("chosen" in each for each in nodes(text)) == 1


def test_a_search_opens_the_group_of_what_it_finds(tmp_path: Path) -> None:
    path = page(tmp_path, chain(700))
    folded = len(nodes(dom(path)))
    text = dom(path, "#search=y350")
    assert folded < 100 < 700 and len(nodes(text)) > folded
    assert any("chosen" in each for each in nodes(text))


def test_blocks_are_folded_until_they_are_opened(tmp_path: Path) -> None:
    path = page(tmp_path, looping())
    assert not any("open" in each.split() for each in nodes(dom(path)))
    opened = nodes(dom(path, "#open"))
    assert sum("open" in each.split() for each in opened) == 1 and len(opened) > 9


def test_the_details_of_an_operator(tmp_path: Path) -> None:
    text = dom(page(tmp_path, linear_program()), "#operator=0.1")
    panel = text[text.index('<aside id="details"') : text.index("</aside>")]
    assert "operator 1 of block 0" in panel and "parameter float32 (4, 3)" in panel and "x_num_col_dims" in panel


def test_names_do_no_harm(tmp_path: Path) -> None:
    text = dom(page(tmp_path, named(EVIL)), "#operator=0.2")
    assert text.count("<script") == 2 and "&lt;/script&gt;&lt;script&gt;alert(1)" in text


def test_a_script_that_the_policy_does_not_know_does_not_run(tmp_path: Path) -> None:
    path = page(tmp_path, linear_program())
    text = path.read_text("utf-8").replace("<header>", '<header><script>document.title = "changed"</script>')
    path.write_text(text, "utf-8")
    shown, log = browse(path, "--dump-dom")
    assert "<title>changed" not in shown and "Content Security Policy" in log


@pytest.mark.parametrize("size", ["1280,800", "390,844"])
@pytest.mark.parametrize("dark", [False, True])
def test_the_picture_is_not_empty(tmp_path: Path, size: str, dark: bool) -> None:
    target = tmp_path / "page.png"
    theme = ["--blink-settings=preferredColorScheme=0"] if dark else []
    browse(page(tmp_path, looping()), f"--screenshot={target}", f"--window-size={size}", *theme)
    counts = pixels(target)
    ground, card = (b"\x14\x17\x1c", b"\x3f\x2d\x18") if dark else (b"\xfb\xfb\xfa", b"\xfd\xee\xdb")
    assert counts.most_common(1)[0][0] == ground
    assert counts[card] > 50, "the card of relu"
    assert len(counts) > 20


def test_a_thousand_operators_open_at_once(tmp_path: Path) -> None:
    assert len(nodes(dom(page(tmp_path, chain(1000), fold="never")))) == 1002
