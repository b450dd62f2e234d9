"""What `debug reduce` shows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fluidtool.cli.failures import say
from fluidtool.cli.render import counted, fields, show, show_json
from fluidtool.workflows.debug import ReduceResult

if TYPE_CHECKING:
    from fluidtool.report.debug import DebugReport


def show_reduced(result: ReduceResult, output: Path, json: bool) -> None:
    """What is left, or the document; where it is on stderr."""
    if json:
        show_json(document(result))
    else:
        rows = [
            ("operators", f"{result.operators} of {result.of}"),
            ("inputs", "\n".join(result.feeds) or "none"),
            ("commands", str(result.asked)),
        ]
        show(fields("", rows))
    if not result.complete:
        say("note: --limit ended the search; more may be taken out")
    say(f"{counted(len(result.files), 'file')} saved to {output}")


def document(result: ReduceResult) -> DebugReport:
    """The data of `--json`."""
    return {
        "schema": "fluidtool.debug/1",
        "operators": result.operators,
        "of": result.of,
        "feeds": list(result.feeds),
        "files": [str(path) for path in result.files],
        "commands": result.asked,
        "complete": result.complete,
    }
