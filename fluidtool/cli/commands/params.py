"""`fluidtool params`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fluidtool.cli.failures import say
from fluidtool.cli.opening import source_of
from fluidtool.cli.options.changed import Changed
from fluidtool.cli.options.model import ModelFile, ParamsPath
from fluidtool.cli.options.outputs import Force, Json, Output
from fluidtool.cli.options.panels import NO_PANEL
from fluidtool.cli.progress import progress
from fluidtool.cli.render import counted, show, show_json
from fluidtool.errors import EXIT_FINDING, UsageError

SETS = {"list": 1, "stats": 1, "diff": 2, "split": 1, "rename": 1, "merge": None}  # how many an action takes
WRITING = ("merge", "split", "rename")


def params(
    action: Annotated[str, typer.Argument(metavar="ACTION", help="list, stats, diff, merge, split or rename.")],
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="A model, a .pdparams, .npz or .safetensors file, or a folder with one file per parameter; for rename, "
            "OLD=NEW for each name after it.",
        ),
    ],
    output: Annotated[
        Output,
        Changed(
            panel=NO_PANEL,
            help="Where to save the result: for merge a file (.pdparams, .npz, .safetensors, else a combined file), for split "
            "a folder, for rename the layout of SOURCE.",
        ),
    ] = None,
    params: ParamsPath = None,
    model_file: ModelFile = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """List, merge, split, rename or compare parameters, in models or in files of their own; show statistics.

    diff has exit code 1 if there are differences. merge refuses two parameters of the same name with different values.
    """
    from fluidtool.workflows.parameter_sets import open_parameters

    renamed = _names(sources[1:]) if action == "rename" else {}
    paths = sources[:1] if action == "rename" else sources
    _check(action, paths, renamed, output is not None)
    sets = [open_parameters(source_of(path), params=params, model_filename=model_file) for path in paths]
    if output is None:
        _show(action, sets, json)
        return
    with progress("writing"):
        files = _write(action, sets, renamed, output, force)
    if json:
        from fluidtool.cli.views.parameters import written_document

        show_json(written_document(action, files))
    say(f"{counted(len(files), 'file')} saved to {output}")


def _names(words: list[str]) -> dict[str, str]:
    pairs = [word.partition("=") for word in words]
    if not all(old and equals and new for old, equals, new in pairs) or len({pair[0] for pair in pairs}) < len(pairs):
        raise UsageError("rename takes OLD=NEW after the source, each name once, such as fc_0.w_0=weight")
    return {old: new for old, _, new in pairs}


def _check(action: str, paths: list[str], renamed: dict[str, str], writes: bool) -> None:
    from fluidtool.workflows.names import did_you_mean

    if action not in SETS:
        raise UsageError(
            f"there is no action {action!r}; {did_you_mean(action, SETS) or 'expected one of ' + ', '.join(SETS)}"
        )
    if SETS[action] not in (None, len(paths)):
        raise UsageError(f"{action} takes {counted(SETS[action] or 0, 'source')}, found {len(paths)}")
    if action == "rename" and not renamed:
        raise UsageError("rename takes OLD=NEW after the source, such as fc_0.w_0=weight")
    if writes is not (action in WRITING):
        raise UsageError(f"{action} writes nothing; omit --output" if writes else f"{action} needs --output OUT")


def _show(action: str, sets: list[Any], json: bool) -> None:
    from fluidtool.cli.views import parameters as views
    from fluidtool.cli.views.diff import difference_document, parameters_table
    from fluidtool.io.difference import parameter_differences

    store = sets[0].store
    if action == "list":
        infos = [store.info(name) for name in sorted(store)]
        show_json(views.list_document(infos)) if json else show(views.list_table(infos))
    elif action == "stats":
        rows = views.statistics_rows(store)
        show_json(views.statistics_document(rows)) if json else show(views.statistics_table(rows))
    else:
        with progress("comparing"):
            found = parameter_differences(store, sets[1].store)
        show_json(difference_document(found)) if json else show(parameters_table(found))
        say(f"{sets[0].source} and {sets[1].source}: {counted(len(found), 'parameter')} differ")
        if found:
            raise typer.Exit(EXIT_FINDING)


def _write(action: str, sets: list[Any], renamed: dict[str, str], output: Any, force: bool) -> Any:
    from fluidtool.workflows import parameter_sets

    if action == "merge":
        return parameter_sets.merge_parameters(sets, output, overwrite=force)
    if action == "split":
        return parameter_sets.split_parameters(sets[0], output, overwrite=force)
    return parameter_sets.rename_parameters(sets[0], renamed, output, overwrite=force)
