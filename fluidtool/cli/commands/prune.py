"""`fluidtool prune`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fluidtool.cli.failures import say
from fluidtool.cli.options.changed import Changed
from fluidtool.cli.options.inputs import InputNames
from fluidtool.cli.options.model import ModelFile, ModelPath, ParamsPath
from fluidtool.cli.options.outputs import Force, Json, RequiredOutput, RequiredTargets
from fluidtool.cli.options.panels import NO_PANEL
from fluidtool.cli.render import counted, show, show_json, size, table
from fluidtool.cli.terminal import TERMINAL

if TYPE_CHECKING:
    from fluidtool.workflows.figures import ProgramFigures


def prune(
    model: ModelPath,
    targets: Annotated[
        RequiredTargets,
        Changed(panel=NO_PANEL, help="The variables that the cut model computes, its outputs."),
    ],
    output: Annotated[
        RequiredOutput,
        Changed(
            panel=NO_PANEL,
            help="Where the cut model goes: a folder for a folder, a prefix for a .pdmodel with .pdiparams.",
        ),
    ],
    inputs: Annotated[
        InputNames,
        Changed(
            panel=NO_PANEL,
            help="The variables that the cut model is fed (default: those inputs of MODEL that the targets need).",
        ),
    ] = None,
    program_only: Annotated[
        bool, typer.Option("--program-only", help="Cut and save the program alone, without parameters.")
    ] = False,
    params: ParamsPath = None,
    model_file: ModelFile = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Cut a model down to what some variables need, and save it.

    The result is laid out like MODEL: a folder with a file for each parameter or with one combined file, or a .pdmodel
    with .pdiparams beside it. Parameters that are no longer needed are dropped. It is written in one step or not at all.
    """
    from fluidtool.workflows.prune import prune as prune_model

    result = prune_model(
        model,
        targets,
        output,
        inputs=inputs,
        program_only=program_only,
        overwrite=force,
        params=params,
        model_filename=model_file,
        watcher=TERMINAL,
    )
    before, after = _fields(result.before), _fields(result.after)
    if json:
        show_json({"files": [str(path) for path in result.files], "before": before, "after": after})
    else:
        out = table("", "", ">before", ">after")
        for field in before:
            shown = [size(side[field]) if field == "bytes" else side[field] for side in (before, after)]
            out.add(field, *shown)
        show(out)
    say(f"{counted(len(result.files), 'file')} saved to {output}")


def _fields(figures: ProgramFigures) -> dict[str, int]:
    return {
        "operators": figures.operators,
        "variables": figures.variables,
        "parameters": figures.parameters,
        "bytes": figures.parameter_bytes,
    }
