"""What `view` shows: what was drawn and what was folded, or the document."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from fluidtool.cli.failures import say
from fluidtool.cli.render import counted, show_json
from fluidtool.drawing.graph import Graph, Node
from fluidtool.workflows.view import Drawing, Format

if TYPE_CHECKING:
    from fluidtool.report.view import ColoredOperators, DrawnGroup, UnknownOperator, ViewReport

SHOWN = 3  # names in a sentence


def show_drawing(drawing: Drawing, format: Format, json: bool) -> None:
    """Sentences on stderr; or the document."""
    graph = drawing.graph(format)
    document = _document(drawing, graph, format)
    if json:
        show_json(document)
        return
    where = "".join(f" in {path}" for path in drawing.files)
    say(f"{counted(document['operators'], 'operator')} drawn{where}{_folded(document, format)}")
    if document["unknown"]:
        types = dict.fromkeys(each["type"] for each in document["unknown"])
        say(f"{counted(len(document['unknown']), 'operator')} of unknown types drawn: {_listed(list(types))}")
    for each in document["colors"]:
        left = (
            f", {counted(each['unmatched'], 'entry').replace('entrys', 'entries')} of the file without an operator in the model"
            if each["unmatched"]
            else ""
        )
        say(f"{counted(each['operators'], 'operator')} colored by {each['by']}{left}")


def _folded(document: ViewReport, format: Format) -> str:
    folded = [group for group in document["groups"] if group["why"] != "block" or format == "html"]
    if not folded:
        return ""
    names = _listed([group["title"] for group in folded])
    return f"; {document['shown']} nodes at first, with {counted(len(folded), 'group')} folded: {names}"


def _listed(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _block(group: Node) -> int:
    """The block of what is in a group."""
    return next((place.block for place in group.places() if place != group.place), group.block)


def _shown(graph: Graph, format: Format) -> int:
    """The nodes that are seen at once; pictures show blocks within open."""
    opened = [node.inner for node in graph.nodes if node.inner and node.folded == "block" and format != "html"]
    return len(graph.nodes) + sum(_shown(inner, format) for inner in opened)


def _document(drawing: Drawing, graph: Graph, format: Format) -> ViewReport:
    groups = [
        cast(
            "DrawnGroup",
            {
                "title": node.title,
                "why": node.folded,
                "block": _block(node),
                "operators": sum(1 for _ in node.inner.places()),
            },
        )
        for node in graph.groups()
        if node.inner
    ]
    unknown: list[UnknownOperator] = [
        {"block": place.block, "operator": place.operator, "type": op_type} for place, op_type in drawing.unknown()
    ]
    colors = [
        cast(
            "ColoredOperators",
            {"by": each.coloring.by, "operators": len(each.coloring.marks), "unmatched": each.unmatched},
        )
        for each in drawing.figures
    ]
    return {
        "schema": "fluidtool.view/1",
        "files": [str(path) for path in drawing.files],
        "format": format,
        "operators": sum(len(block.ops) for block in drawing.program.blocks),
        "shown": _shown(graph, format),
        "groups": groups,
        "unknown": unknown,
        "colors": colors,
    }
