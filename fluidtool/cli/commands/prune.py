"""`fluidtool prune`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fluidtool.cli.failures import say
from fluidtool.cli.opening import open_model
from fluidtool.cli.options.changed import Changed
from fluidtool.cli.options.inputs import InputNames
from fluidtool.cli.options.model import ModelFile, ModelPath, ParamsPath
from fluidtool.cli.options.outputs import Force, Json, RequiredOutput, RequiredTargets
from fluidtool.cli.options.panels import NO_PANEL
from fluidtool.cli.progress import progress
from fluidtool.cli.render import show, show_json, size, table
from fluidtool.errors import ProgramError
from fluidtool.workflows.names import did_you_mean

if TYPE_CHECKING:
    from fluidtool.ir import Program


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
    from fluidtool.io.parameters import persistables
    from fluidtool.io.saving import layout_like, save_model
    from fluidtool.passes.cut import cut_to

    opened = open_model(model, model_file, params, need_parameters=not program_only)
    for name in (*targets, *(inputs or ())):
        _must_exist(opened.program, name)
    store = opened.files.parameters
    with progress("cutting"):
        cut = cut_to(opened.program, targets, inputs, opened.feeds)
        values = {} if program_only else {var.name: store[var.name] for var in persistables(cut)}
        layout = layout_like(opened.files, model, output, bool(store) and not program_only)
        written = save_model(cut, values, layout, overwrite=force)

    before = _fields(opened.program, len(store), sum(store.info(name).nbytes for name in store))
    after = _fields(cut, len(values), sum(store.info(name).nbytes for name in values))
    if json:
        show_json({"files": [str(path) for path in written], "before": before, "after": after})
    else:
        out = table("", "", ">before", ">after")
        for field in before:
            shown = [size(side[field]) if field == "bytes" else side[field] for side in (before, after)]
            out.add(field, *shown)
        show(out)
    say(f"{len(written)} file{'s' if len(written) != 1 else ''} saved to {output}")


def _must_exist(program: Program, name: str) -> None:
    names = program.global_block().vars
    if name not in names:
        hint = did_you_mean(name, list(names)) or "'fluidtool inspect --vars' lists what there is"
        raise ProgramError(f"the program has no variable {name!r} in block 0; {hint}")


def _fields(program: Program, parameters: int, nbytes: int) -> dict[str, Any]:
    operators = sum(len(block.ops) for block in program.blocks)
    variables = sum(len(block.vars) for block in program.blocks)
    return {"operators": operators, "variables": variables, "parameters": parameters, "bytes": nbytes}
