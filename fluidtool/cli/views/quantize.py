"""What `quantize` shows: how the outputs change, and what became of each operator with weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluidtool.cli.render import Table, show, show_json, table
from fluidtool.workflows.quantize import QuantizeResult

if TYPE_CHECKING:
    from fluidtool.report.quantize import QuantizeReport


def show_result(result: QuantizeResult, json: bool) -> None:
    """Tables on stdout, or the document."""
    if json:
        show_json(document(result))
    else:
        show(_outputs(result), _operators(result), _left(result))


def document(result: QuantizeResult) -> QuantizeReport:
    """The data of `--json`."""
    return {
        "schema": "fluidtool.quantize/1",
        "files": [str(path) for path in result.files],
        "batches": result.batches,
        "outputs": [
            {
                "name": each.name,
                "largest_difference": each.largest_difference,
                "root_mean_square": each.root_mean_square,
                "largest_value": each.largest_value,
            }
            for each in result.outputs
        ],
        "operators": [
            {
                "type": each.type,
                "output": each.output,
                "quantized": each.done,
                "reason": None if each.done else each.reason,
                "input": each.input or None,
                "input_scale": each.input_scale if each.done else None,
                "weight_scales": list(each.weight_scales) if each.done else None,
            }
            for each in result.operators
        ],
    }


def _outputs(result: QuantizeResult) -> Table:
    out = table("Outputs", "!name", ">largest difference", ">root mean square", ">largest value")
    for each in result.outputs:
        numbers = each.largest_difference, each.root_mean_square, each.largest_value
        out.add(each.name, *(f"{number:.4g}" for number in numbers))
    return out


def _operators(result: QuantizeResult) -> Table:
    out = table("Operators in 8 bits", "!type", "output", "input", ">input up to", ">weights up to")
    for each in result.operators:
        if each.done:
            least, most = each.weight_scales
            out.add(each.type, each.output, each.input, f"{each.input_scale:.4g}", f"{least:.4g} to {most:.4g}")
    return out


def _left(result: QuantizeResult) -> Table:
    out = table("Left in float32", "!type", "output", "reason")
    for each in result.operators:
        if not each.done:
            out.add(each.type, each.output, each.reason)
    return out
