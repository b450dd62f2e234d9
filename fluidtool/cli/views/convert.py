"""What `convert` shows: the files, what holds of them, the comparison; or what keeps a model from being converted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fluidtool.cli.failures import say
from fluidtool.cli.render import counted, number, show, show_json, table
from fluidtool.onnx_export.exporter import Blocker
from fluidtool.workflows.conversion import ConvertResult, VerifiedOutput

SCHEMA = "fluidtool.convert/1"


def show_blockers(to: str, blockers: Sequence[Blocker], json: bool) -> None:
    """The table of blockers, or the document."""
    if json:
        show_json({"schema": SCHEMA, "to": to, "files": [], "blockers": [asdict(each) for each in blockers]})
        return
    out = table("", ">block", ">operator", "!type", "output", "reason")
    for each in blockers:
        out.add(each.block, each.operator if each.operator >= 0 else "", each.type, each.output, each.reason)
    show(out)


def show_result(result: ConvertResult, json: bool) -> None:
    """Verified outputs on stdout, the rest on stderr; or the document."""
    if json:
        show_json(document(result))
    elif result.verified is not None:
        out = table("", "output", "type", "shape", ">difference", ">relative", "fault")
        for each in result.verified:
            out.add(
                each.name,
                each.dtype,
                list(each.shape),
                number(each.difference, 3),
                number(each.relative, 3),
                each.fault,
            )
        show(out)
    say(f"read {result.given}")
    for note in result.notes:
        say(f"note: {note}")
    if result.verified is not None:
        say(_verdict(result, result.verified))
    say(f"{counted(len(result.files), 'file')} saved: {', '.join(str(path) for path in result.files)}")


def _verdict(result: ConvertResult, verified: Sequence[VerifiedOutput]) -> str:
    apart = len(result.differing)
    if apart:
        return f"{apart} of {counted(len(verified), 'output')} differ by more than {result.tolerance} of the largest number"
    worst = max((each.relative for each in verified), default=0.0)
    return f"ONNX Runtime gives the same {counted(len(verified), 'output')} (largest relative difference {worst:.3g})"


def document(result: ConvertResult) -> dict[str, Any]:
    """The data of `--json`."""
    verified = None
    if result.verified is not None:
        verified = {
            "tolerance": result.tolerance,
            "differing": len(result.differing),
            "outputs": [asdict(each) for each in result.verified],
        }
    return {
        "schema": SCHEMA,
        "to": result.to,
        "files": [str(path) for path in result.files],
        "given": result.given,
        "parameters": result.parameters,
        "opset": result.opset,
        "operators": result.operators,
        "nodes": result.nodes,
        "single_sequence": result.single_sequence,
        "notes": list(result.notes),
        "blockers": [],
        "verified": verified,
    }
