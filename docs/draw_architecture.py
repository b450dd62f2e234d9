"""Draws `docs/architecture.svg`: `python docs/draw_architecture.py [--check]`. A test checks it.

The drawing follows one feed from the command line to a kernel and back. Every box names its file.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILE = Path(__file__).with_name("architecture.svg")

WIDTH, HEIGHT, ACROSS, DOWN, LEFT, TOP = 218, 74, 256, 112, 64, 20  # of a box; from one to the next; of the first
COLUMNS, ROWS = 4, 9
STYLE = """
svg { background: #ffffff; font-family: system-ui, sans-serif; font-size: 12px; fill: #1f2933; }
.box { fill: #f4f6f8; stroke: #9aa5b1; }
.once { fill: #fff8e6; stroke: #d9a514; }
.title { font-weight: 600; font-size: 13px; }
.file { font-family: ui-monospace, monospace; font-size: 10.5px; fill: #52606d; }
.arrow { fill: none; stroke: #3e4c59; stroke-width: 1.4; marker-end: url(#head); }
.first { stroke: #b7791f; stroke-dasharray: 5 3; }
.back { stroke: #2b6cb0; }
.label { font-size: 11px; fill: #52606d; }
"""


@dataclass(frozen=True, slots=True)
class Box:
    """A place that a feed comes by; `once` for what happens at the first run only."""

    column: int
    row: int
    title: str
    file: str
    lines: tuple[str, ...]
    once: bool = False

    @property
    def x(self) -> int:
        """Of its left edge."""
        return LEFT + self.column * ACROSS

    @property
    def y(self) -> int:
        """Of its upper edge."""
        return TOP + self.row * DOWN


@dataclass(frozen=True, slots=True)
class Arrow:
    """From one box to another, by name: `first` for the way of the first run, `back` for results."""

    start: str
    end: str
    label: str = ""
    kind: str = ""


BOXES = {
    "command": Box(
        0, 0, "fluidtool run", "fluidtool/cli/commands/run.py", ("parses its arguments,", "and calls one function")
    ),
    "workflow": Box(
        0,
        1,
        "run(model, inputs)",
        "fluidtool/workflows/run.py",
        ("reads --feed files, repeats,", "compares with expected values"),
    ),
    "view": Box(3, 1, "output", "fluidtool/cli/views/run.py", ("a table, or JSON", "")),
    "model": Box(0, 2, "Model.run", "fluidtool/model.py", ("a program, its parameters,", "an executor")),
    "files": Box(1, 2, "files", "fluidtool/io", ("program decoded and validated,", "parameters mapped"), once=True),
    "executor": Box(
        0,
        3,
        "Executor.run",
        "fluidtool/runtime/executor.py",
        ("puts the feed into a scope,", "takes fetched values out of it"),
    ),
    "plan": Box(1, 3, "Plan", "fluidtool/runtime/plan.py", ("needed operators, kernels,", "last uses"), once=True),
    "partition": Box(
        2,
        3,
        "regions",
        "fluidtool/runtime/partition.py",
        ("neighboring steps that an", "engine can compute in one call"),
        once=True,
    ),
    "block": Box(0, 4, "BoundBlock", "fluidtool/runtime/block.py", ("a loop over steps whose", "names are looked up")),
    "step": Box(
        1, 4, "BoundStep", "fluidtool/runtime/step.py", ("one operator: inputs from the", "scope, outputs into it")
    ),
    "kernel": Box(2, 4, "operator kernel", "fluidtool/ops", ("numpy on the host,", "cupy on a GPU")),
    "region": Box(0, 5, "BoundRegion", "fluidtool/runtime/bound_region.py", ("a region instead of its steps", "")),
    "special": Box(
        1,
        5,
        "Specializations",
        "fluidtool/runtime/specialization.py",
        ("compiled for these shapes", "and LoDs already?"),
    ),
    "import": Box(
        2, 5, "importers", "fluidtool/runtime/graph/importers", ("operators become nodes", "of known shapes"), once=True
    ),
    "rewrite": Box(
        3,
        5,
        "rewrites",
        "fluidtool/runtime/graph/pipeline.py",
        ("fewer and faster nodes,", "the same numbers"),
        once=True,
    ),
    "lower": Box(
        3,
        6,
        "lowering",
        "fluidtool/runtime/engines/native/lowering",
        ("nodes become kernel calls", "with layouts; weights packed"),
        once=True,
    ),
    "bind": Box(
        2,
        6,
        "arena and extents",
        "fluidtool/runtime/engines/native/binding.py",
        ("every value gets its place,", "every pointer is checked"),
        once=True,
    ),
    "compiled": Box(
        1,
        6,
        "NativeRegion.run",
        "fluidtool/runtime/engines/native/region.py",
        ("addresses of inputs and outputs,", "then one call into C"),
    ),
    "engine": Box(
        1,
        7,
        "ft_run",
        "fluidtool/runtime/engines/native/src/engine.c",
        ("kernel calls in order,", "each cut into tasks for threads"),
    ),
    "c": Box(
        2, 7, "C kernel", "fluidtool/runtime/engines/native/src/products.c", ("for AVX-512, AVX2, or any", "processor")
    ),
}
ARROWS = (
    Arrow("command", "workflow"),
    Arrow("workflow", "model"),
    Arrow("model", "files", "", "first"),
    Arrow("model", "executor"),
    Arrow("executor", "plan", "", "first"),
    Arrow("plan", "partition", "", "first"),
    Arrow("executor", "block"),
    Arrow("block", "step"),
    Arrow("step", "kernel"),
    Arrow("block", "region"),
    Arrow("region", "special"),
    Arrow("special", "import", "no", "first"),
    Arrow("import", "rewrite", "", "first"),
    Arrow("rewrite", "lower", "", "first"),
    Arrow("lower", "bind", "", "first"),
    Arrow("bind", "compiled", "", "first"),
    Arrow("special", "compiled", "yes"),
    Arrow("compiled", "engine"),
    Arrow("engine", "c"),
    Arrow("workflow", "view", "values by name", "back"),
)


def drawing() -> str:
    """The SVG."""
    width, height = LEFT + COLUMNS * ACROSS, TOP + (ROWS - 1) * DOWN + 40
    arrows, boxes = map(arrow, ARROWS), map(box, BOXES.values())
    body = "\n".join(chain(*arrows, way_back(), *boxes, legend()))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>The way of a feed from the command line to a kernel and back</title>
<style>{STYLE}</style>
<defs><marker id="head" markerWidth="9" markerHeight="9" refX="7.5" refY="4" orient="auto">
<path d="M0,0 L8,4 L0,8 z" fill="#3e4c59"/></marker></defs>
{body}
</svg>
"""


def box(found: Box) -> Iterator[str]:
    """A rectangle with its title, its file and what happens there."""
    kind = "box once" if found.once else "box"
    yield f'<rect class="{kind}" x="{found.x}" y="{found.y}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>'
    yield text(found.x + 10, found.y + 18, found.title, "title")
    yield text(found.x + 10, found.y + 33, found.file.removeprefix("fluidtool/"), "file")
    for number, line in enumerate(found.lines):
        yield text(found.x + 10, found.y + 50 + 14 * number, line)


def text(x: int, y: int, said: str, kind: str = "") -> str:
    """A line of text; `kind` is its class."""
    return f'<text x="{x}" y="{y}"{f" class={kind!r}" if kind else ""}>{escape(said)}</text>'.replace("'", '"')


def arrow(found: Arrow) -> Iterator[str]:
    """Straight: to the right, to the left, or down."""
    start, end = BOXES[found.start], BOXES[found.end]
    if start.row == end.row:
        right = end.column > start.column
        x, y = (start.x + WIDTH, start.y + HEIGHT // 2) if right else (start.x, start.y + HEIGHT // 2)
        to, down = (end.x if right else end.x + WIDTH), y
        label = (min(x, to) + 4, y - 6)
    else:
        x, y, to, down = start.x + WIDTH // 2, start.y + HEIGHT, end.x + WIDTH // 2, end.y
        label = (x + 8, y + 22)
    yield f'<path class="arrow {found.kind}" d="M{x},{y} L{to},{down}"/>'
    if found.label:
        yield text(*label, found.label, "label")


def way_back() -> Iterator[str]:
    """The outputs: from what computes into the scope, and out of it."""
    last, executor, workflow = BOXES["engine"], BOXES["executor"], BOXES["workflow"]
    edge, y = LEFT // 2, last.y + HEIGHT // 2
    yield f'<path class="arrow back" d="M{last.x},{y} L{edge},{y} L{edge},{executor.y + 37} L{executor.x},{executor.y + 37}"/>'
    yield text(edge + 6, y - 6, "outputs, into the scope", "label")
    x, top = executor.x - 14, workflow.y + 37
    yield f'<path class="arrow back" d="M{executor.x},{executor.y + 20} L{x},{executor.y + 20} L{x},{top} L{workflow.x},{top}"/>'


def legend() -> Iterator[str]:
    """What the colors mean."""
    y = TOP + 8 * DOWN - 4
    yield f'<rect class="box once" x="{LEFT}" y="{y}" width="16" height="12" rx="2"/>'
    yield text(LEFT + 24, y + 11, "the first run, or inputs of new shapes", "label")
    yield f'<path class="arrow back" d="M{LEFT + 270},{y + 6} L{LEFT + 300},{y + 6}"/>'
    yield text(LEFT + 308, y + 11, "results", "label")


def main(arguments: list[str]) -> int:
    """Write the file, or compare."""
    made = drawing()
    if "--check" not in arguments:
        FILE.write_text(made)
        return 0
    if not FILE.exists() or FILE.read_text() != made:
        sys.stderr.write(f"{FILE} is not current; python docs/draw_architecture.py\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
