"""`fluidtool.view("model", "graph.html")`: a model as a page, or as a drawing in SVG or DOT; in a notebook without a file."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, Literal

from fluidtool.drawing.build import program_graph
from fluidtool.drawing.coloring import Coloring
from fluidtool.drawing.dot import graph_dot
from fluidtool.drawing.folding import folded
from fluidtool.drawing.graph import Graph, Place
from fluidtool.drawing.kinds import UNKNOWN, kind_of
from fluidtool.drawing.page import page
from fluidtool.drawing.svg import graph_svg
from fluidtool.errors import OVERWRITE, Location, OutputExistsError, UsageError
from fluidtool.io.atomic import write_file
from fluidtool.io.parameters import persistables
from fluidtool.ir import Program
from fluidtool.model import Model
from fluidtool.records import dataclass
from fluidtool.runtime import Policy
from fluidtool.tensor import SelectedRows
from fluidtool.tensor.statistics import Statistics, statistics
from fluidtool.workflows.names import counted
from fluidtool.workflows.sources import Source, opened
from fluidtool.workflows.view_figures import Document, Figures, difference_figures, read_document, time_figures
from fluidtool.workflows.watcher import SILENT, Watcher

Format = Literal["html", "svg", "dot"]
Fold = Literal["auto", "always", "never"]
FORMATS: dict[str, Format] = {".html": "html", ".htm": "html", ".svg": "svg", ".dot": "dot", ".gv": "dot"}
MOST_SHOWN: dict[Fold, dict[Format, int]] = {  # nodes that are shown at once, by what is wanted and the format
    "auto": {"html": 300, "svg": 1500, "dot": 1500},
    "always": {"html": 40, "svg": 40, "dot": 40},
    "never": {},
}
UNLIMITED = 1 << 62
NOTEBOOK_HEIGHT = 640  # pixels


@dataclass(frozen=True, slots=True)
class Drawing:
    """A model to look at. A notebook shows it; `html()`, `svg()` and `dot()` are its texts, and `files` what was written.

    figures: what colors operators besides their kinds; color_by: 'kind', or the figures that are shown (first, in a page).
    """

    program: Program
    title: str
    unfolded: Graph
    fold: Fold
    figures: tuple[Figures, ...]
    color_by: str
    statistics: Mapping[str, Statistics]
    files: tuple[Path, ...] = ()

    def html(self) -> str:
        """One page that needs nothing else: pan, zoom, search, groups that open, details."""
        colorings = [each.coloring for each in self.figures]
        return page(
            self.graph("html"), self.program, self.title, self.caption(), colorings, self.color_by, self.statistics
        )

    def svg(self) -> str:
        """A still picture; blocks within are open."""
        return graph_svg(self.graph("svg"), self.title, self._coloring())

    def dot(self) -> str:
        """The graph in the language of Graphviz."""
        return graph_dot(self.graph("dot"), self.title, self._coloring())

    def text(self, format: Format) -> str:
        """The text of a format."""
        return {"html": self.html, "svg": self.svg, "dot": self.dot}[format]()

    def graph(self, format: Format) -> Graph:
        """What a format shows: nodes, and groups of them."""
        return folded(self.unfolded, MOST_SHOWN[self.fold].get(format, UNLIMITED))

    def unknown(self) -> Iterator[tuple[Place, str]]:
        """The operators that fluidtool does not have, with their types."""
        for block in self.program.blocks:
            for position, op in enumerate(block.ops):
                if kind_of(op.type) == UNKNOWN:
                    yield Place(block.idx, position), op.type

    def caption(self) -> str:
        """'88 operators, 137 parameters (4.2 million values)'."""
        operators = sum(len(block.ops) for block in self.program.blocks)
        parameters = [var for var in persistables(self.program) if min(var.shape, default=0) >= 0]
        values = sum(prod(var.shape) for var in parameters)
        blocks = f" in {self.program.num_blocks} blocks" if self.program.num_blocks > 1 else ""
        return f"{counted(operators, 'operator')}{blocks} · {counted(len(parameters), 'parameter')} ({amount_text(values)} values)"

    def _coloring(self) -> Coloring | None:
        return next((each.coloring for each in self.figures if each.coloring.by == self.color_by), None)

    def _repr_html_(self) -> str:
        """For notebooks: the page in a frame of its own, which reaches nothing outside."""
        return (
            f'<iframe sandbox="allow-scripts" srcdoc="{html.escape(self.html())}" width="100%" height="{NOTEBOOK_HEIGHT}" '
            'style="border:1px solid #8884;border-radius:8px"></iframe>'
        )

    def _repr_svg_(self) -> str:
        """For notebooks that show no frames."""
        return self.svg()


def view(
    source: Source,
    output: str | Path | None = None,
    *,
    format: Format | None = None,
    fold: Fold = "auto",
    with_params: bool = False,
    profile: str | Path | Document | None = None,
    difference: str | Path | Document | None = None,
    color_by: str | None = None,
    overwrite: bool = False,
    params: Any = None,
    model_filename: str | None = None,
    policy: Policy | None = None,
    watcher: Watcher = SILENT,
) -> Drawing:
    """Draw a model that is open or that `load` can open. output: the file to write, whose suffix selects the format.

    format: overrides the suffix. fold: 'auto' folds what would be too large to read, 'always' as much as possible,
    'never' nothing. with_params: read the weights for their statistics. profile: a document of `fluidtool profile
    --json`, or its file; difference: the same of `diff` or `compare`. color_by: 'kind', 'time' or 'difference'
    (default: the last one given). Raises UsageError for an unknown suffix, OutputExistsError, OutputError,
    UnreadableError, and what `load` raises.
    """
    wanted = None if output is None else format or format_of(Path(output))
    if output is not None and not overwrite and Path(output).exists():
        raise OutputExistsError(f"{output} already exists", hint=OVERWRITE, location=Location(str(output)))
    figures = {"time": profile, "difference": difference}
    color_by = _color_by(color_by, [by for by, given in figures.items() if given is not None])
    model = opened(
        source,
        params=params,
        model_filename=model_filename,
        policy=policy,
        need_parameters=with_params,
        validate=False,
    )
    drawing = Drawing(
        program=model.program,
        title=title_of(source, model),
        unfolded=program_graph(model.program, model.fetches),
        fold=fold,
        figures=tuple(_figures(model.program, profile, difference)),
        color_by=color_by,
        statistics=_statistics(model, watcher) if with_params else {},
    )
    if output is None or wanted is None:
        return drawing
    with watcher.progress("drawing"):
        text = drawing.text(wanted)
    write_file(output, [text.encode("utf-8", "backslashreplace")], overwrite=overwrite)
    return replace(drawing, files=(Path(output),))


def format_of(path: Path) -> Format:
    """The format that a file's suffix means; raises UsageError for others."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"{path}: the suffix says which format to write; expected .html, .svg or .dot")
    return FORMATS[path.suffix.lower()]


def title_of(source: Any, model: Model) -> str:
    """What to call a model: the name of its folder or file."""
    if isinstance(source, (str, Path)) and Path(source).name:
        return Path(source).resolve().name
    return Path(model.files.program_source).name or "model"


def amount_text(count: int) -> str:
    """4233001 -> '4.23 million'."""
    for size, name in ((10**9, "billion"), (10**6, "million"), (10**3, "thousand")):
        if count >= size:
            return f"{count / size:.3g} {name}"
    return str(count)


def _color_by(wanted: str | None, given: list[str]) -> str:
    """What the colors say at first."""
    if wanted is None:
        return given[-1] if given else "kind"
    if wanted not in ("kind", *given):
        option = {"time": "--profile FILE", "difference": "--diff FILE"}.get(wanted)
        raise UsageError(
            f"colors by {wanted} need figures; give {option}"
            if option
            else f"there is no color by {wanted!r}; expected kind, time or difference"
        )
    return wanted


def _figures(program: Program, profile: Any, difference: Any) -> Iterator[Figures]:
    if profile is not None:
        yield time_figures(program, read_document(profile), _name(profile, "the profile"))
    if difference is not None:
        yield difference_figures(program, read_document(difference), _name(difference, "the difference"))


def _name(source: Any, otherwise: str) -> str:
    return otherwise if isinstance(source, Mapping) else str(source)


def _statistics(model: Model, watcher: Watcher) -> dict[str, Statistics]:
    store = model.files.parameters
    found = {}
    with watcher.progress("reading parameters", len(store)) as advance:
        for name in sorted(store):
            value = store[name]
            tensor = value.get_tensor() if isinstance(value, SelectedRows) else value
            found[name] = statistics(tensor.numpy())
            advance()
    return found
