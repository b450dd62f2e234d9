"""`fluidtool ops`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

import typer

from fluidtool.cli.failures import say, say_error
from fluidtool.cli.opening import open_model
from fluidtool.cli.options.model import ModelFile
from fluidtool.cli.options.outputs import Json
from fluidtool.cli.render import show, show_json
from fluidtool.errors import EXIT_UNSUPPORTED, UnsupportedOperatorError, UsageError

if TYPE_CHECKING:
    from fluidtool.ops.registry import OpInfo


def ops(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="An operator, or a pattern such as 'sequence_*'.")
    ] = None,
    coverage: Annotated[
        str | None,
        typer.Option("--coverage", metavar="MODEL", help="Which operators of this model are implemented."),
    ] = None,
    model_file: ModelFile = None,
    json: Json = False,
) -> None:
    """Show which operators are implemented, and how one is declared.

    A slot marked * takes several variables, ? may be absent, ~ is an intermediate result that only the gradient reads.
    With --coverage the exit code is 4 if the model has operators that are not implemented.
    """
    if name and coverage:
        raise UsageError("give either an operator or --coverage MODEL, not both")
    if coverage:
        _coverage(coverage, model_file, json)
    elif name and not set(name) & set("*?["):
        _one(name, json)
    else:
        _list(name or "*", json)


def _list(pattern: str, json: bool) -> None:
    from fluidtool.cli.views.ops import describe, implemented_table, not_supported_table
    from fluidtool.ops.index import EXCLUDED, MODULES
    from fluidtool.ops.registry import find_op

    types = [op_type for op_type in sorted(MODULES) if fnmatchcase(op_type, pattern)]
    excluded = {op_type: reason for op_type, reason in sorted(EXCLUDED.items()) if fnmatchcase(op_type, pattern)}
    if not types and not excluded:
        raise UnsupportedOperatorError(f"no operator matches {pattern!r}; 'fluidtool ops' lists what is implemented")
    infos = [info for info in map(find_op, types) if info is not None]
    if json:
        operators = [describe(info) for info in infos]
        show_json({"counts": counts(infos, excluded), "operators": operators, "not_supported": excluded})
        return
    show(implemented_table(infos), not_supported_table(excluded))
    say(f"{len(infos)} operators" + (f", {len(excluded)} not supported" if excluded else ""))


def counts(infos: Iterable[OpInfo], excluded: Iterable[str]) -> dict[str, int]:
    """How many of Paddle 1.8.5's forward operators are implemented, have a gradient, are excluded; and what is beside."""
    from fluidtool.ops.paddle_185 import REGISTERED

    known = {info.type: info for info in infos}
    forward = [known[op_type] for op_type in REGISTERED & known.keys()]
    gradients = [op_type for op_type in known.keys() - REGISTERED if op_type.endswith(("_grad", "_grad_grad"))]
    return {
        "paddle_1_8_5_total": len(REGISTERED),
        "paddle_1_8_5_implemented": len(forward),
        "paddle_1_8_5_with_gradient": sum(has_gradient(info) for info in forward),
        "paddle_1_8_5_excluded": len(REGISTERED & set(excluded)),
        "gradient_operators": len(gradients),
        "later_operators": len(known) - len(forward) - len(gradients),
    }


def has_gradient(info: OpInfo) -> bool:
    """Whether an operator has a gradient, one operator or several that a function builds."""
    return info.gradient is not None or info.maker is not None


def _one(name: str, json: bool) -> None:
    from fluidtool.cli.views.ops import declaration_tables, describe
    from fluidtool.ops.registry import get_op

    info = get_op(name)
    if json:
        show_json(describe(info))
    else:
        show(*declaration_tables(info))


def _coverage(path: str, model_file: str | None, json: bool) -> None:
    from fluidtool.cli.views.ops import coverage_table

    model = open_model(path, model_file, need_parameters=False, validate=False)
    counts = Counter(op.type for block in model.program.blocks for op in block.ops if op.type not in ("feed", "fetch"))
    rows = [(op_type, counts[op_type], why_not(op_type)) for op_type in sorted(counts)]
    missing = [row for row in rows if row[2]]
    if json:
        entries = [{"operator": op_type, "count": count, "reason": reason} for op_type, count, reason in rows]
        show_json({"program": model.files.program_source, "supported": not missing, "operators": entries})
    else:
        show(coverage_table(rows, bool(missing)))
    if missing:
        say_error(f"{len(missing)} of {len(rows)} operators are not supported: {', '.join(row[0] for row in missing)}")
        raise typer.Exit(EXIT_UNSUPPORTED)
    say(f"all {len(rows)} operators are supported")


def why_not(op_type: str) -> str:
    """Why an operator does not run; '' if it does."""
    from fluidtool.ops.index import EXCLUDED, MODULES

    return EXCLUDED.get(op_type, "" if op_type in MODULES else "unknown")
