"""`fluidtool inspect`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from fluidtool.cli.failures import say, text_of
from fluidtool.cli.opening import open_model
from fluidtool.cli.options.changed import Changed
from fluidtool.cli.options.inputs import Batch, Shapes
from fluidtool.cli.options.model import ModelFile, ModelPath, ParamsPath, WithParams
from fluidtool.cli.options.outputs import Json
from fluidtool.cli.options.panels import OUTPUT
from fluidtool.cli.options.passes import Explain
from fluidtool.cli.options.running import Engine, Precision
from fluidtool.cli.progress import progress
from fluidtool.cli.render import printable, show, show_json
from fluidtool.errors import UsageError
from fluidtool.ir.text import program_pieces

if TYPE_CHECKING:
    from fluidtool.model import Model

VIEW = "What to show instead of the summary"


class Format(StrEnum):
    """How `inspect` writes."""

    TABLE = "table"
    TEXT = "text"
    JSON = "json"


def inspect(
    model: ModelPath,
    with_details: Annotated[
        bool,
        typer.Option(
            "--with-details",
            rich_help_panel=VIEW,
            help="Every block with its variables, operators, attributes and recorded call stacks.",
        ),
    ] = False,
    ops: Annotated[bool, typer.Option("--ops", rich_help_panel=VIEW, help="The operators in order.")] = False,
    variables: Annotated[bool, typer.Option("--vars", rich_help_panel=VIEW, help="The declared variables.")] = False,
    with_params: Annotated[
        WithParams, Changed(panel=VIEW, help="Statistics of the parameters; reads the weights.")
    ] = False,
    plan: Annotated[
        bool,
        typer.Option(
            "--plan", rich_help_panel=VIEW, help="The steps of a run, the values that each releases, and the memory."
        ),
    ] = False,
    explain: Annotated[
        Explain, Changed(help="With --plan: show what each rewrite did to each region, or why it did nothing.")
    ] = False,
    engine: Engine = "auto",
    precision: Precision = "float32",
    batch: Batch = None,
    shape: Shapes = None,
    params: ParamsPath = None,
    model_file: ModelFile = None,
    format: Annotated[
        Format,
        typer.Option(
            "--format",
            rich_help_panel=OUTPUT,
            help="text is protobuf text; with --with-details, that of Program.to_string(with_details=True).",
        ),
    ] = Format.TABLE,
    json: Json = False,
) -> None:
    """Show what a model is: version, inputs, outputs, operators, parameters, FLOPs.

    Only --with-params reads the weights. A program can also be inspected without its parameters.
    """
    wanted = {"with-details": with_details, "ops": ops, "vars": variables, "with-params": with_params, "plan": plan}
    views = [name for name, asked in wanted.items() if asked] or ["summary"]
    if len(views) > 1:
        raise UsageError(f"--{views[0]} and --{views[1]} are two views of a model; choose one")
    if explain and not plan:
        raise UsageError("--explain shows what the rewrites of each region did; give --plan too")
    opened = open_model(
        model, model_file, params, engine=engine, precision=precision, need_parameters=False, validate=False
    )
    shapes = _shapes(shape, opened) if shape else {}
    if batch is not None:
        from fluidtool.cli.terminal import TERMINAL
        from fluidtool.workflows.batch import require_batch

        require_batch(opened, batch, [name for name in opened.feeds if name not in shapes], TERMINAL)
    if opened.files.fault is not None:
        say(f"note: {text_of(opened.files.fault)}")
    if format is Format.TEXT:
        sys.stdout.writelines(map(printable, program_pieces(opened.program, with_details=with_details)))
        return
    from fluidtool.cli.views.inspect import VIEWS

    with nullcontext() if with_params else progress("inspecting"):  # reading parameters has a bar of its own
        view = VIEWS["plan, explained" if explain else views[0]](opened, batch or 1, shapes)
    if json or format is Format.JSON:
        show_json(view.data())
    else:
        show(*view.tables())


def _shapes(options: Sequence[str], opened: Model) -> dict[str, tuple[int, ...]]:
    from fluidtool.workflows.inputs import parse_shapes

    return parse_shapes(options, opened.feeds)
