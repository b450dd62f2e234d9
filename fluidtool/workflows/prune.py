"""`fluidtool.prune(model, targets, output)`: cuts a model down to what some variables need, and saves it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fluidtool.errors import LIST_VARIABLES, Location, ProgramError
from fluidtool.io.parameters import persistables
from fluidtool.io.saving import layout_like, save_model
from fluidtool.ir import Program
from fluidtool.passes.cut import cut_to
from fluidtool.records import dataclass
from fluidtool.runtime import Policy
from fluidtool.workflows.fetches import is_pattern, matching
from fluidtool.workflows.figures import ProgramFigures, figures
from fluidtool.workflows.names import did_you_mean
from fluidtool.workflows.sources import Source, opened
from fluidtool.workflows.watcher import SILENT, Watcher


@dataclass(frozen=True, slots=True)
class PruneResult:
    """The cut program, the files that were written, and how large both programs are."""

    program: Program
    files: tuple[Path, ...]
    before: ProgramFigures
    after: ProgramFigures


def prune(
    model: Source,
    targets: Sequence[str],
    output: str | Path,
    *,
    inputs: Sequence[str] | None = None,
    program_only: bool = False,
    overwrite: bool = False,
    params: Any = None,
    model_filename: str | None = None,
    policy: Policy | None = None,
    watcher: Watcher = SILENT,
) -> PruneResult:
    """Save the part that computes `targets` from `inputs` (default: the model's inputs that it needs), in the model's layout.

    targets: names, or patterns such as 'fc_*' of computed variables. program_only: without parameters. Raises ProgramError
    for an unknown variable or a target that depends on more, OutputExistsError, OutputError, and what `load` raises.
    """
    model = opened(model, model_filename=model_filename, params=params, policy=policy, need_parameters=not program_only)
    targets = _expanded(model.program, targets)
    for name in (*targets, *(inputs or ())):
        _must_exist(model.program, name)
    store = model.files.parameters
    with watcher.progress("cutting"):
        cut = cut_to(model.program, targets, inputs, model.feeds)
        values = {} if program_only else {var.name: store[var.name] for var in persistables(cut)}
        layout = layout_like(model.files, Path(output), bool(store) and not program_only)
        written = save_model(cut, values, layout, overwrite=overwrite)
    sizes = {name: store.info(name).nbytes for name in store}
    return PruneResult(
        cut, tuple(written), figures(model.program, sizes), figures(cut, {name: sizes[name] for name in values})
    )


def _expanded(program: Program, targets: Sequence[str]) -> list[str]:
    """The targets with each pattern replaced by the variables that match it, no name twice."""
    names: dict[str, None] = {}
    for target in targets:
        if program.global_block().has_var(target) or not is_pattern(target):
            names[target] = None
            continue
        found = matching(program, target)
        if not found:
            raise ProgramError(f"no computed variable matches the pattern {target!r}", hint=LIST_VARIABLES)
        names.update(dict.fromkeys(found))
    return list(names)


def _must_exist(program: Program, name: str) -> None:
    names = program.global_block().vars
    if name not in names:
        hint = did_you_mean(name, list(names)) or LIST_VARIABLES
        text = f"the program has no variable {name!r} in block 0"
        raise ProgramError(text, hint=hint, location=Location(variable=name))
