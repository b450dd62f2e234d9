"""Draws `docs/explanation/*.svg`: `python docs/draw_explanations.py [--check]`. A test checks them.

What is drawn is read from where it is: sequences from samples/topics, memory from a run of `fluidtool transpile`, times from the
newest file in benchmarks/results.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from itertools import accumulate, pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(__file__).resolve().parent / "explanation"
RESULTS = ROOT / "benchmarks/results"
STYLE = """
svg { background: #ffffff; font-family: system-ui, sans-serif; font-size: 13px; fill: #1f2933; }
.box { fill: #f4f6f8; stroke: #9aa5b1; }
.second { fill: #e3f0fb; stroke: #7aa7d0; }
.third { fill: #fff8e6; stroke: #d9a514; }
.ours { fill: #4051b5; }
.theirs { fill: #c3cad3; }
.title { font-weight: 600; }
.small { font-size: 11px; fill: #52606d; }
.code { font-family: ui-monospace, monospace; font-size: 11.5px; }
.middle { text-anchor: middle; }
.end { text-anchor: end; }
.arrow { fill: none; stroke: #3e4c59; stroke-width: 1.3; marker-end: url(#head); }
.rule { stroke: #9aa5b1; stroke-dasharray: 4 3; }
"""
ENGINES = ("fluidtool", "onnxruntime", "openvino", "paddle2 mkldnn", "paddle1 mkldnn")
NETWORKS = {
    ("resnet50", 1): "ResNet-50, one image",
    ("mobilenet_v1", 1): "MobileNet-V1, one image",
    ("bert_base", 1): "BERT-base, 128 words",
    ("lstm", 1): "LSTM, 128 words",
}


def svg(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    """A drawing."""
    body = "\n".join(parts)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">
<title>{escape(title)}</title>
<style>{STYLE}</style>
<defs><marker id="head" markerWidth="9" markerHeight="9" refX="7.5" refY="4" orient="auto">
<path d="M0,0 L8,4 L0,8 z" fill="#3e4c59"/></marker></defs>
{body}
</svg>
"""


def text(x: float, y: float, said: str, kind: str = "") -> str:
    """A line of text; `kind` is its classes."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{escape(said)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str = "box") -> str:
    """A rectangle."""
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4"/>'


def arrow(*points: tuple[float, float]) -> str:
    """A line through the points, with a head at its end."""
    return f'<path class="arrow" d="M{" L".join(f"{x:g},{y:g}" for x, y in points)}"/>'


def lod() -> str:
    """The six sentences of samples/topics: rows one after the other, offsets below, and what pooling makes of them."""
    lengths: list[int] = json.loads((ROOT / "samples/topics/lod.json").read_text())["words"][0]
    offsets = [0, *accumulate(lengths)]
    scale, left = 3.0, 150
    edges = [left + scale * offset for offset in offsets]

    def parts() -> Iterator[str]:
        yield text(10, 44, "lengths", "title")
        yield text(10, 80, f"sentences: {offsets[-1]} rows", "title")
        yield text(10, 126, "LoD: offsets", "title")
        yield text(10, 208, "sequence_pool", "title")
        yield text(10, 226, f"{len(lengths)} rows, no LoD", "small")
        for number, (start, end) in enumerate(pairwise(edges)):
            middle = (start + end) / 2
            yield text(middle, 44, str(lengths[number]), "middle")
            yield box(start, 60, end - start - 2, 30, "second" if number % 2 else "third")
            yield text(middle, 80, str(number + 1), "middle small")
            yield arrow((middle, 138), (middle, 186))
            yield box(middle - 20, 190, 40, 26, "second" if number % 2 else "third")
            yield text(middle, 208, "1 row", "middle small")
        for offset, x in zip(offsets, edges, strict=True):
            yield f'<path class="rule" d="M{x - 1:g},54 L{x - 1:g},108"/>'
            yield text(x - 1, 126, str(offset), "middle code")

    return svg(860, 244, "Six sentences in one tensor, their offsets, and a row for each after pooling", parts())


def scopes() -> str:
    """A program with its blocks, and the scopes that a run makes for them."""

    def operators(x: int, y: int, names: Sequence[str]) -> Iterator[str]:
        for number, name in enumerate(names):
            yield box(x, y + 34 * number, 220, 26, "second")
            yield text(x + 10, y + 17 + 34 * number, name, "code")

    def values(x: int, y: int, title: str, names: Sequence[str]) -> Iterator[str]:
        yield box(x, y, 300, 36 + 20 * len(names), "third")
        yield text(x + 12, y + 22, title, "title")
        for number, name in enumerate(names):
            yield text(x + 12, y + 44 + 20 * number, name, "code")

    def parts() -> Iterator[str]:
        yield text(20, 26, "a Program: what to compute", "title")
        yield text(480, 26, "Scopes: values, while it runs", "title")
        yield box(20, 40, 260, 178)
        yield text(32, 60, "block 0", "title")
        yield from operators(40, 70, ("mul: x, w -> h", "less_than: i, n -> more", "while: sub_block = 1", "fetch: h"))
        yield box(60, 240, 260, 112)
        yield text(72, 260, "block 1, whose parent is 0", "title")
        yield from operators(80, 270, ("mul: h, w -> h", "increment: i -> i"))
        yield arrow((260, 151), (340, 151), (340, 290), (322, 290))
        yield from values(480, 40, "the scope of the caller", ("w: a parameter, persistable, stays",))
        yield from values(520, 130, "a scope for each run of block 0", ("x, h, i, n, more: dropped afterwards",))
        yield from values(
            560,
            240,
            "a scope for each turn of block 1",
            ("what only block 1 declares", "h, i, w: found in the scopes above"),
        )
        yield arrow((670, 130), (670, 98))
        yield arrow((710, 240), (710, 188))
        yield text(718, 214, "looks up names", "small")

    return svg(880, 370, "A program with two blocks, and the scopes in which it runs", parts())


def round_of_servers() -> str:
    """A synchronous step of two trainers and a server."""
    lanes = {"trainer 0": 90, "server": 430, "trainer 1": 770}

    def message(y: int, start: str, end: str, said: str) -> Iterator[str]:
        x, to = lanes[start], lanes[end]
        edge = 74 if to > x else -74
        yield arrow((x + edge, y), (to - edge, y))
        yield text((x + to) / 2, y - 5, said, "middle small")

    def parts() -> Iterator[str]:
        for name, x in lanes.items():
            yield box(x - 70, 14, 140, 28, "second")
            yield text(x, 33, name, "middle title")
            yield f'<path class="rule" d="M{x},44 L{x},330"/>'
        for name in ("trainer 0", "trainer 1"):
            yield box(lanes[name] - 70, 56, 140, 30)
            yield text(lanes[name], 75, "forward, backward", "middle")
            yield from message(112, name, "server", "gradients")
            yield from message(142, name, "server", "send barrier: that was all")
            yield from message(244, "server", name, "parameters")
            yield from message(274, name, "server", "fetch barrier: I have them")
        yield box(lanes["server"] - 70, 160, 140, 60, "third")
        yield text(lanes["server"], 182, "when all have sent:", "middle small")
        yield text(lanes["server"], 200, "mean, optimizer", "middle title")
        yield box(lanes["server"] - 70, 292, 140, 30, "third")
        yield text(lanes["server"], 311, "the next round", "middle")

    return svg(860, 346, "One round of a synchronous job with two trainers and a server", parts())


def newest() -> Path:
    """The newest kept result."""
    return max(RESULTS.glob("*.json"))


def throughput() -> str:
    """Milliseconds of each engine, from the newest kept result."""
    kept = json.loads(newest().read_text())
    measured = {(each["network"], each["batch"]): each["engines"] for each in kept["latency"]}
    shown = {title: measured[key] for key, title in NETWORKS.items() if key in measured}

    def parts() -> Iterator[str]:
        y = 20
        for title, engines in shown.items():
            y += 16
            yield text(20, y, title, "title")
            present = {name: engines[name]["milliseconds"] for name in ENGINES if name in engines}
            worst = max(present.values())
            for name, milliseconds in present.items():
                y += 22
                yield text(150, y, name, "end small")
                width = 560 * milliseconds / worst
                yield box(160, y - 12, width, 16, "ours" if name == "fluidtool" else "theirs")
                yield text(168 + width, y, f"{milliseconds:.3g} ms", "small")
            y += 22
        where = f"{kept['machine']['processor']}, {kept['settings']['threads']} threads, float32"
        yield text(20, y + 8, f"{newest().name}: {where}; shorter is better", "small")

    rows = sum(len([name for name in ENGINES if name in engines]) for engines in shown.values())
    return svg(860, 50 + 38 * len(shown) + 22 * rows, "Milliseconds of a run beside other libraries", parts())


def memory() -> str:
    """What `fluidtool transpile --memory-optimize --draw` draws for samples/digits_training."""
    with tempfile.TemporaryDirectory() as scratch:
        drawn = Path(scratch) / "memory.svg"
        main, startup = (f"samples/digits_training/{name}.pb" for name in ("main", "startup"))
        words = ["transpile", main, "--startup", startup, "--memory-optimize", "--measure", "--draw", str(drawn), "-q"]
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        command = [sys.executable, "-m", "fluidtool", *words]
        subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, check=True, capture_output=True)
        return drawn.read_text("utf-8")


DRAWINGS: dict[str, Callable[[], str]] = {
    "lod": lod,
    "memory": memory,
    "round": round_of_servers,
    "scopes": scopes,
    "throughput": throughput,
}


def main(arguments: list[str]) -> int:
    """Write the files, or with --check say whether they are current."""
    stale = 0
    for name, draw in DRAWINGS.items():
        path, made = FOLDER / f"{name}.svg", draw()
        if "--check" not in arguments:
            path.write_text(made, "utf-8")
        elif not path.exists() or path.read_text("utf-8") != made:
            stale = 1
            sys.stderr.write(f"{path} is not current; python docs/draw_explanations.py\n")
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
