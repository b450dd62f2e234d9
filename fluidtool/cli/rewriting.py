"""What `transpile` does with passes once its options are understood."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer

from fluidtool.cli.failures import say, say_error
from fluidtool.cli.opening import open_model
from fluidtool.cli.progress import progress
from fluidtool.cli.render import Table, number, show, show_json
from fluidtool.cli.terminal import TERMINAL
from fluidtool.cli.views.transpile import (
    comparisons_table,
    decisions_table,
    fields_table,
    how_to_ask,
    left_out_table,
    passes_table,
)
from fluidtool.errors import EXIT_FINDING, OutputExistsError, ParameterFileError, ProgramError, UsageError
from fluidtool.io.atomic import held_names
from fluidtool.io.layout import read_program
from fluidtool.io.parameters import Value, persistables
from fluidtool.io.saving import layout_like, save_model
from fluidtool.ir import Program
from fluidtool.model import Model
from fluidtool.passes.comparison import RTOL, Runnable, compare_runs, compare_times
from fluidtool.passes.peak import estimates
from fluidtool.passes.pipeline import Outcome, PassPlan, Stage, plan_passes, trains
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor, Scope
from fluidtool.tensor import LoDTensor, SelectedRows
from fluidtool.tensor.compare import Comparison
from fluidtool.workflows.inputs import Inputs, gather
from fluidtool.workflows.names import did_you_mean

REPEAT = 9


@dataclass(frozen=True, slots=True)
class Request:
    """The options of `transpile` that are about passes."""

    model: str
    params: str | None
    model_file: str | None
    passes: Sequence[str]
    level: int
    skip: Sequence[str]
    output: Path | None
    explain: bool
    json: bool
    force: bool
    verify: bool
    rtol: float | None
    measure: bool
    feeds: Sequence[str]
    lods: Sequence[str]
    random: bool
    seed: int
    batch: int
    shapes: Sequence[str]
    startup: Path | None
    allow_files: Sequence[Path]
    allow_network: bool

    @property
    def runs(self) -> bool:
        """Whether the programs are run."""
        return self.verify or self.measure


def rewrite(request: Request) -> None:
    """Run the passes, check, save, show; raises typer.Exit with code 1, nothing written, when --verify finds a difference."""
    _check(request)
    plan = plan_passes(request.passes, level=request.level, skip=request.skip)
    model = _open(request, plan)
    scope = _scope(model, request)
    keep = list(dict.fromkeys([*model.fetches, *request.skip]))
    with progress("rewriting"):
        outcome = plan.run(model.program, scope, keep)
    before, after = Runnable(model.program, scope), Runnable(outcome.program, outcome.scope)
    feed = _feed(model, request) if request.runs else {}
    tolerance = (0.0 if plan.exact else RTOL) if request.rtol is None else request.rtol
    comparisons = _verify(model, before, after, feed, keep, tolerance) if request.verify else ()
    sides = [_fields(side, feed, request) for side in (before, after)]
    if request.measure:
        with progress("measuring"):
            seconds = compare_times(before, after, feed, model.fetches, REPEAT, model.policy)
        for fields, value in zip(sides, seconds, strict=True):
            fields["seconds"] = value
    wrong = [item for item in comparisons if not item.agrees]
    written = [] if wrong or request.output is None else _save(model, outcome, request)
    _show(request, tolerance, outcome, sides, comparisons, keep, written)
    if wrong:
        names = ", ".join(item.name for item in wrong[:5])
        hint = "" if plan.exact else f"; where rounding alone differs by more than {tolerance:g}, allow it: --rtol"
        say_error(f"{len(wrong)} of {len(comparisons)} values differ ({names}); nothing was written{hint}")
        raise typer.Exit(EXIT_FINDING)
    _talk(request, tolerance, outcome, comparisons, written)


# ---------------------------------------------------------------- before
def _check(request: Request) -> None:
    """Refuse what cannot work before anything is computed."""
    if not request.passes:
        raise UsageError(
            "say what to do: --fuse-bn, --fuse PASS, --all-inference, --memory-optimize, --release-memory or --distribute"
        )
    given = {"--feed": request.feeds, "--lod": request.lods, "--random": request.random, "--shape": request.shapes}
    if not request.runs:
        for option, value in given.items():
            if value:
                raise UsageError(f"{option} says what to run the programs with; give --verify or --measure too")
        if request.rtol is not None:
            raise UsageError("--rtol is about --verify; give that too")
        if request.startup is not None:
            raise UsageError("--startup initializes parameters for a run; give --verify, --measure or --distribute too")
    path = request.output
    if path is not None and not request.force and path.exists() and not (path.is_dir() and not held_names(path)):
        raise OutputExistsError(f"{path} exists already; choose another name, or allow overwriting it with --force")


def _open(request: Request, plan: PassPlan) -> Model:
    """The model; parameters are needed where their values are read, run with, or belong to the folder to be written."""
    model = open_model(
        request.model,
        request.model_file,
        request.params,
        seed=request.seed,
        allow_files=request.allow_files,
        allow_network=request.allow_network,
        need_parameters=False,
    )
    plan.check(model.program)
    need = plan.for_inference or Path(request.model).is_dir() or (request.runs and request.startup is None)
    if need and model.files.fault is not None:
        hint = "; or give --startup FILE, the program that makes them" if trains(model.program) else ""
        raise ParameterFileError(f"{model.files.fault}{hint}")
    known = model.program.global_block().vars
    for name in request.skip:
        if name not in known:
            hint = did_you_mean(name, known) or "'fluidtool inspect --vars' lists what there is"
            raise ProgramError(f"--skip {name}: the program has no such variable; {hint}")
    return model


def _scope(model: Model, request: Request) -> Scope:
    """The parameters, or what the startup program makes of them."""
    scope = Scope()
    if request.startup is not None:
        executor = Executor(seed=request.seed or 1, policy=model.policy)
        executor.run(read_program(request.startup), {}, [], scope)
    for name, value in model.files.parameters.items():
        scope.var(name).value = value
    return scope


def _feed(model: Model, request: Request) -> dict[str, LoDTensor]:
    inputs = Inputs(
        request.feeds,
        request.lods,
        request.random or not request.feeds,
        request.shapes,
        request.batch,
        request.seed,
    )
    fed = gather(model, inputs, TERMINAL)
    model.check_feed(fed)
    return fed


# ---------------------------------------------------------------- after
def _verify(
    model: Model, before: Runnable, after: Runnable, feed: Mapping[str, Any], keep: Sequence[str], tolerance: float
) -> tuple[Comparison, ...]:
    names = [name for name in keep if _is_value(before.program, name)]
    with progress("comparing"):
        found = compare_runs(before, after, feed, names, exact=not tolerance, rtol=tolerance, policy=model.policy)
    if not found:
        raise UsageError("the model has no outputs to compare; name what it computes with --skip NAME")
    return found


def _is_value(program: Program, name: str) -> bool:
    var = program.global_block().vars.get(name)
    return var is not None and var.type in (VarType.LOD_TENSOR, VarType.SELECTED_ROWS, VarType.LOD_TENSOR_ARRAY)


def _fields(side: Runnable, feed: Mapping[str, LoDTensor], request: Request) -> dict[str, Any]:
    program = side.program
    values = _parameters(program, side.scope)
    fields: dict[str, Any] = {
        "operators": sum(len(block.ops) for block in program.blocks),
        "variables": sum(len(block.vars) for block in program.blocks),
        "parameters": len(values),
        "parameter_bytes": sum(_nbytes(value) for value in values.values()),
    }
    if request.measure:
        shapes = {name: value.shape() for name, value in feed.items()}
        use, kept = estimates(program, shapes, request.batch)
        fields["activation_bytes_kept"] = kept
        fields["activation_bytes_live"] = use.at_once
    return fields


def _parameters(program: Program, scope: Scope) -> dict[str, Value]:
    """What the scope has of the program's persistable variables."""
    found = {}
    for var in persistables(program):
        holder = scope.find_var(var.name)
        if holder is not None and isinstance(holder.value, (LoDTensor, SelectedRows)):
            found[var.name] = holder.value
    return found


def _nbytes(value: Value) -> int:
    return int((value.tensor if isinstance(value, SelectedRows) else value).numpy().nbytes)


def _save(model: Model, outcome: Outcome, request: Request) -> list[Path]:
    assert request.output is not None
    store = model.files.parameters
    values = _parameters(outcome.program, outcome.scope) if store else {}
    layout = layout_like(model.files, request.model, request.output, bool(store))
    return save_model(outcome.program, values, layout, overwrite=request.force)


# ---------------------------------------------------------------- showing
def _show(
    request: Request,
    tolerance: float,
    outcome: Outcome,
    sides: Sequence[dict[str, Any]],
    comparisons: Sequence[Comparison],
    keep: Collection[str],
    written: Sequence[Path],
) -> None:
    if request.json:
        data: dict[str, Any] = {
            "files": [str(path) for path in written],
            "passes": [_stage_data(stage) for stage in outcome.stages],
            "before": sides[0],
            "after": sides[1],
        }
        if request.verify:
            agree = all(item.agrees for item in comparisons)
            data["verification"] = {
                "agrees": agree,
                "rtol": tolerance,
                "outputs": [asdict(item) for item in comparisons],
            }
        show_json(data)
        return
    tables = [table for stage in outcome.stages for table in _explanation(stage)] if request.explain else []
    tables += [passes_table(outcome.stages), fields_table(*sides)]
    if request.verify:
        tables.append(comparisons_table(comparisons, keep))
    show(*tables)


def _explanation(stage: Stage) -> list[Table]:
    """What a pass did with its candidates, and the rewrites that it left out, if any."""
    return [decisions_table(stage), *([left_out_table(stage)] if stage.left_out else [])]


def _stage_data(stage: Stage) -> dict[str, Any]:
    return {
        "name": stage.name,
        "operators": [stage.before, stage.after],
        "decisions": [asdict(decision) for decision in stage.result.decisions],
        "left_out": [
            {"name": known.name, "reason": known.not_saved, "ask": how_to_ask(known)} for known in stage.left_out
        ],
    }


def _talk(
    request: Request, tolerance: float, outcome: Outcome, comparisons: Sequence[Comparison], written: Sequence[Path]
) -> None:
    if request.verify:
        largest = max((item.largest_error for item in comparisons), default=0.0)
        how = "bit by bit" if not tolerance else f"within {tolerance:g}; largest difference {number(largest, 3)}"
        say(f"both programs compute the same ({how})")
    if not any(stage.result.changed for stage in outcome.stages):
        say("no pass found anything to do")
    if written:
        say(f"{len(written)} file{'s' if len(written) != 1 else ''} saved to {request.output}")
    else:
        say("nothing was written; -o OUT saves the result")
