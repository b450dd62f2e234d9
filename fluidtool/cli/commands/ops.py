"""`fluidtool ops`."""

from __future__ import annotations

from typing import Annotated

import typer

from fluidtool.cli.failures import say, say_error
from fluidtool.cli.opening import open_model
from fluidtool.cli.options.model import ModelFile
from fluidtool.cli.options.outputs import Json
from fluidtool.cli.render import counted, show, show_json
from fluidtool.errors import EXIT_UNSUPPORTED, UsageError


def ops(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="An operator, or a pattern such as 'sequence_*'.")
    ] = None,
    coverage: Annotated[
        str | None,
        typer.Option("--coverage", metavar="MODEL", help="Show which operators of this model are implemented."),
    ] = None,
    model_file: ModelFile = None,
    json: Json = False,
) -> None:
    """Show which operators are implemented, or how one is declared.

    A slot marked * takes several variables, ? is optional, ~ is an intermediate result that only the gradient reads.
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
    from fluidtool.cli.views.ops import implemented_table, not_supported_table, operators_document
    from fluidtool.workflows.operators import matching

    infos, excluded = matching(pattern)
    if json:
        show_json(operators_document(infos, excluded))
        return
    show(implemented_table(infos), not_supported_table(excluded))
    say(counted(len(infos), "operator") + (f", {len(excluded)} not supported" if excluded else ""))


def _one(name: str, json: bool) -> None:
    from fluidtool.cli.views.ops import declaration_tables, operator_document
    from fluidtool.ops.registry import get_op

    info = get_op(name)
    if json:
        show_json(operator_document(info))
    else:
        show(*declaration_tables(info))


def _coverage(path: str, model_file: str | None, json: bool) -> None:
    from fluidtool.cli.views.ops import coverage_document, coverage_table
    from fluidtool.workflows.operators import coverage

    model = open_model(path, model_file, need_parameters=False, validate=False)
    found = coverage(model.program)
    missing = [each.type for each in found if each.reason]
    if json:
        show_json(coverage_document(model.files.program_source, found))
    else:
        show(coverage_table(found))
    if missing:
        say_error(f"{len(missing)} of {counted(len(found), 'operator')} not supported: {', '.join(missing)}")
        raise typer.Exit(EXIT_UNSUPPORTED)
    say(f"{counted(len(found), 'operator')}, all supported")
