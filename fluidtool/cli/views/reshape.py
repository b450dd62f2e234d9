"""What `reshape` shows: shapes before and after, and the operators that contain a size of the old inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fluidtool.cli.failures import failure, say
from fluidtool.cli.render import Table, counted, show, show_json, table
from fluidtool.errors import BakedSizeError
from fluidtool.passes.reshape.axes import Baked, Shape
from fluidtool.shapes import shape_text
from fluidtool.workflows.reshape import ReshapeResult

if TYPE_CHECKING:
    from fluidtool.report.common import Failure
    from fluidtool.report.reshape import BakedOperator, ChangedShape, ReshapeReport

Pairs = Mapping[str, tuple[Shape, Shape]]
Places = Sequence[tuple[int, int, str]]


def show_refused(error: BakedSizeError, json: bool) -> None:
    """The operators that keep the model from its new shapes, or the document; nothing was written."""
    if json:
        show_json(_document((), {}, {}, error.operators, error.unknown, failure(error)))
    else:
        show(*_operators(error.operators, error.unknown))


def show_reshaped(result: ReshapeResult, output: Path | None, json: bool) -> None:
    """The new shapes and the repairs on stdout, the files on stderr; or the document."""
    if json:
        show_json(_document(result.files, result.inputs, result.outputs, result.baked, result.unknown))
    else:
        shapes = table("", "", "variable", ">before", ">after")
        for kind, pairs in (("input", result.inputs), ("output", result.outputs)):
            for name, (before, after) in pairs.items():
                shapes.add(kind, name, shape_text(before), shape_text(after))
        show(shapes, *_operators(result.baked, result.unknown))
    if output is not None:
        say(f"{counted(len(result.files), 'file')} saved to {output}")


def _operators(baked: Sequence[Baked], unknown: Places) -> Iterator[Table]:
    if baked:
        out = table(
            "Operators with old sizes",
            ">block",
            ">operator",
            "!type",
            "output",
            "attribute",
            "reason",
            "repair",
            "made at",
        )
        for each in baked:
            attribute = f"{each.attribute} {each.value}".strip()
            place = (each.block, each.operator, each.type, each.output)
            out.add(*place, attribute, each.reason, each.repair or "none", each.written_in)
        yield out
    if unknown:
        out = table("Operators whose outputs cannot be inferred", ">block", ">operator", "!type")
        for row in unknown:
            out.add(*row)
        yield out


def _document(
    files: Sequence[Path],
    inputs: Pairs,
    outputs: Pairs,
    baked: Sequence[Baked],
    unknown: Places,
    error: Failure | None = None,
) -> ReshapeReport:
    return {
        "schema": "fluidtool.reshape/1",
        "files": [str(path) for path in files],
        "inputs": _shapes(inputs),
        "outputs": _shapes(outputs),
        "baked": [_baked(each) for each in baked],
        "unknown": [{"block": block, "operator": at, "type": kind} for block, at, kind in unknown],
        "error": error,
    }


def _baked(found: Baked) -> BakedOperator:
    return {
        "block": found.block,
        "operator": found.operator,
        "type": found.type,
        "output": found.output,
        "attribute": found.attribute or None,
        "value": found.value or None,
        "reason": found.reason,
        "repair": found.repair or None,
        "written_in": found.written_in or None,
    }


def _shapes(pairs: Pairs) -> list[ChangedShape]:
    return [{"name": name, "before": before, "after": after} for name, (before, after) in pairs.items()]
