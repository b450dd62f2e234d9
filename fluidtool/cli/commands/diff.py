"""`fluidtool diff`."""

from __future__ import annotations

from typing import Annotated

import typer

from fluidtool.cli.failures import say
from fluidtool.cli.opening import open_model
from fluidtool.cli.options.changed import Changed
from fluidtool.cli.options.model import ModelFile, WithParams
from fluidtool.cli.options.outputs import Json
from fluidtool.cli.render import show, show_json
from fluidtool.cli.terminal import TERMINAL
from fluidtool.errors import EXIT_FINDING

HELP = "A folder, a program file, or the prefix of .pdmodel and .pdiparams."
A = Annotated[str, typer.Argument(metavar="A", help=HELP)]
B = Annotated[str, typer.Argument(metavar="B", help="The model to compare A with.")]


def diff(
    a: A,
    b: B,
    with_params: Annotated[
        WithParams, Changed(help="Also compare the parameters; reads the weights of both models.")
    ] = False,
    callstack: Annotated[
        bool, typer.Option("--callstack", help="Also compare the recorded call stacks of operators.")
    ] = False,
    model_file: ModelFile = None,
    json: Json = False,
) -> None:
    """Show the differences between two programs; exit code 1 if there are any.

    Operators are aligned by type and outputs, variables by name, sub-blocks by the operators that contain them. Items only
    in A are marked -, items only in B +, and items that differ ~, with the differing fields below.
    """
    from fluidtool.cli.views.diff import count_text, document, parameters_table, tables
    from fluidtool.workflows.diff import diff as compare

    left, right = (open_model(path, model_file, need_parameters=with_params, validate=False) for path in (a, b))
    found = compare(left, right, params=with_params, callstack=callstack, watcher=TERMINAL)
    weights = found.parameters or ()
    if json:
        show_json(document(found))
    else:
        single = left.program.num_blocks == right.program.num_blocks == 1
        show(*tables(found.program, single), *([parameters_table(weights)] if weights else []))
    say(f"{a} and {b}: {count_text(found.program, weights, len(left.files.parameters) if with_params else None)}")
    if not found.equal:
        raise typer.Exit(EXIT_FINDING)
