"""`fluidtool prune`."""

from __future__ import annotations

from typing import Annotated

from fluidtool.cli.failures import say
from fluidtool.cli.opening import source_of
from fluidtool.cli.options.changed import Changed
from fluidtool.cli.options.inputs import InputNames
from fluidtool.cli.options.model import ModelFile, ModelPath, ParamsPath, ProgramOnly
from fluidtool.cli.options.outputs import Force, Json, RequiredOutput, RequiredTargets
from fluidtool.cli.options.panels import NO_PANEL
from fluidtool.cli.render import counted, show, show_json
from fluidtool.cli.terminal import TERMINAL


def prune(
    model: ModelPath,
    targets: Annotated[
        RequiredTargets,
        Changed(
            panel=NO_PANEL,
            help="The variables that the pruned model computes: its outputs; or a pattern such as 'fc_*'.",
        ),
    ],
    output: Annotated[
        RequiredOutput,
        Changed(
            panel=NO_PANEL,
            help="Where to save the pruned model: a folder, or a prefix for a .pdmodel with .pdiparams.",
        ),
    ],
    inputs: Annotated[
        InputNames,
        Changed(
            panel=NO_PANEL,
            help="The inputs of the pruned model (default: those inputs of MODEL that the targets need).",
        ),
    ] = None,
    program_only: Annotated[
        ProgramOnly, Changed(panel=NO_PANEL, help="Prune and save only the program, without parameters.")
    ] = False,
    params: ParamsPath = None,
    model_file: ModelFile = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Reduce a model to what the given variables need, and save it.

    The result has the layout of MODEL: a folder with one file per parameter or one combined file, or a .pdmodel with
    .pdiparams. Parameters that are no longer needed are dropped. The result is written completely or not at all.
    """
    from fluidtool.cli.views.prune import document, figures_table
    from fluidtool.workflows.prune import prune as prune_model

    result = prune_model(
        source_of(model),
        targets,
        output,
        inputs=inputs,
        program_only=program_only,
        overwrite=force,
        params=params,
        model_filename=model_file,
        watcher=TERMINAL,
    )
    show_json(document(result)) if json else show(figures_table(result.before, result.after))
    say(f"{counted(len(result.files), 'file')} saved to {output}")
