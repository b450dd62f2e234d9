"""`fluidtool.transpile(model, passes)`: rewrites a model, checks that it computes the same, and saves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fluidtool.errors import LIST_VARIABLES, Hint, Location, ParameterFileError, ProgramError, UsageError
from fluidtool.io.atomic import write_file
from fluidtool.io.layout import read_program
from fluidtool.io.parameters import Value, persistables
from fluidtool.io.saving import layout_like, save_model
from fluidtool.ir import Program
from fluidtool.model import Model
from fluidtool.passes.comparison import RTOL, Runnable, compare_runs, compare_times
from fluidtool.passes.peak import estimates, memory_steps
from fluidtool.passes.pipeline import Stage, plan_passes, trains
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass
from fluidtool.runtime import Executor, Policy, Scope
from fluidtool.shapes import shape_text
from fluidtool.tensor import LoDTensor, SelectedRows
from fluidtool.tensor.compare import Comparison
from fluidtool.workflows.figures import ProgramFigures, figures
from fluidtool.workflows.inputs import Inputs, gather
from fluidtool.workflows.names import did_you_mean
from fluidtool.workflows.outputs import require_free, require_picture
from fluidtool.workflows.sources import Source, opened
from fluidtool.workflows.watcher import SILENT, Watcher

REPEAT = 9  # runs that a time is the median of
VALUES = (VarType.LOD_TENSOR, VarType.SELECTED_ROWS, VarType.LOD_TENSOR_ARRAY)


@dataclass(frozen=True, slots=True)
class TranspileResult:
    """A rewritten program, its parameters, and what was found out on the way.

    stages: what each pass did. kept: the variables that had to keep their values. comparisons: those values, and the
    persistable ones that a run changes, of both programs; empty unless verified. tolerance: what they might differ by,
    relative to each element and to the largest. exact: whether every pass keeps every bit. files: what was written, nothing
    if values differ; picture: the drawing.
    """

    program: Program
    scope: Scope
    stages: tuple[Stage, ...]
    kept: tuple[str, ...]
    before: ProgramFigures
    after: ProgramFigures
    comparisons: tuple[Comparison, ...]
    tolerance: float
    exact: bool
    files: tuple[Path, ...]
    picture: Path | None = None

    @property
    def differing(self) -> list[Comparison]:
        """The comparisons that do not agree."""
        return [item for item in self.comparisons if not item.agrees]


def transpile(
    model: Source,
    passes: Sequence[str],
    *,
    level: int = 0,
    skip: Sequence[str] = (),
    output: str | Path | None = None,
    draw: Path | None = None,
    overwrite: bool = False,
    verify: bool = False,
    measure: bool = False,
    rtol: float | None = None,
    inputs: Inputs | None = None,
    startup: Path | None = None,
    params: Any = None,
    model_filename: str | None = None,
    policy: Policy | None = None,
    watcher: Watcher = SILENT,
) -> TranspileResult:
    """Run passes over a model, in order, and save the result at `output`, in the model's layout.

    draw: an SVG file for the memory of activations over the operators, before and after.
    passes, level, skip: as of `fluidtool.passes.pipeline.plan_passes`. verify: run both programs on `inputs` (default:
    random ones) and write nothing if they differ by more than `rtol` (default: 1e-5; 0 where every pass keeps every bit).
    measure: the memory of activations and the time of a run too. startup: the program that makes the parameters of a
    training program. Raises OutputExistsError, ProgramError, ParameterFileError, and what `load` and `gather` raise.
    """
    inputs = inputs or Inputs(random=True)
    if output is not None:
        require_free(Path(output), overwrite=overwrite)
    if draw is not None:
        require_picture(draw, overwrite=overwrite)
    plan = plan_passes(passes, level=level, skip=skip)
    model = opened(
        model,
        model_filename=model_filename,
        params=params,
        policy=policy,
        seed=inputs.seed,
        need_parameters=False,
    )
    runs = verify or measure
    plan.check(model.program)
    _require_parameters(model, plan.for_inference or model.files.given == "folder" or (runs and startup is None))
    _require_known(model, skip)
    scope = _scope(model, startup, inputs.seed)
    kept = tuple(dict.fromkeys([*model.fetches, *skip]))
    with watcher.progress("rewriting"):
        outcome = plan.run(model.program, scope, kept)
    sides = Runnable(model.program, scope), Runnable(outcome.program, outcome.scope)
    feed = _feed(model, inputs, watcher) if runs else {}
    tolerance = (0.0 if plan.exact else RTOL) if rtol is None else rtol
    comparisons = _verified(model, *sides, feed, kept, tolerance, watcher) if verify else ()
    before, after = (_figures(side) for side in sides)
    if measure:
        before, after = _measured(model, sides, (before, after), feed, inputs.batch or 1, watcher)
    result = TranspileResult(
        outcome.program, outcome.scope, outcome.stages, kept, before, after, comparisons, tolerance, plan.exact, ()
    )
    if result.differing:
        return result
    if draw is not None:
        shapes = {name: value.shape() for name, value in feed.items()}
        _draw_memory(sides, shapes, inputs.batch or 1, draw, Path(model.files.program_source).name, overwrite)
        result = replace(result, picture=draw)
    return result if output is None else replace(result, files=tuple(_save(model, result, Path(output), overwrite)))


# ---------------------------------------------------------------- before
def _require_parameters(model: Model, needed: bool) -> None:
    """Parameters are needed where their values are read, run with, or belong to the folder to be written."""
    if needed and model.files.fault is not None:
        raise _with_startup(model.files.fault) if trains(model.program) else model.files.fault


def _require_known(model: Model, skip: Sequence[str]) -> None:
    known = model.program.global_block().vars
    for name in skip:
        if name not in known:
            hint = did_you_mean(name, known) or LIST_VARIABLES
            text = f"the program has no variable {name!r} to skip"
            raise ProgramError(text, hint=hint, location=Location(variable=name))


def _with_startup(fault: ParameterFileError) -> ParameterFileError:
    """The fault of a training program's parameters, which the startup program could make."""
    either = Hint(
        *(
            f"{hint + ', or ' if hint else ''}give {argument}, the program that makes them"
            for hint, argument in zip(fault.hint, ("startup=FILE", "--startup FILE"), strict=True)
        )
    )
    return ParameterFileError(fault.message, kind=fault.kind, variable=fault.variable, faults=fault.faults, hint=either)


def _scope(model: Model, startup: Path | None, seed: int) -> Scope:
    """The parameters, or what the startup program makes of them."""
    scope = Scope()
    if startup is not None:
        executor = Executor(seed=seed or 1, policy=model.policy)
        executor.run(read_program(startup), {}, [], scope)
    for name, value in model.files.parameters.items():
        scope.var(name).value = value
    return scope


def _feed(model: Model, inputs: Inputs, watcher: Watcher) -> dict[str, LoDTensor]:
    """What both programs are run on; random values unless something is fed."""
    fed = gather(model, replace(inputs, random=inputs.random or not inputs.feeds), watcher)
    model.check_feed(fed)
    return fed


# ---------------------------------------------------------------- after
def _verified(
    model: Model,
    before: Runnable,
    after: Runnable,
    feed: Mapping[str, Any],
    kept: Sequence[str],
    tolerance: float,
    watcher: Watcher,
) -> tuple[Comparison, ...]:
    names = [name for name in kept if _is_value(before.program, name)]
    with watcher.progress("comparing"):
        found = compare_runs(before, after, feed, names, exact=not tolerance, rtol=tolerance, policy=model.policy)
    if not found:
        hint = Hint("name computed variables: skip=[NAME]", "name computed variables with --skip NAME")
        raise UsageError("the model has no outputs to compare", hint=hint)
    return found


def _is_value(program: Program, name: str) -> bool:
    var = program.global_block().vars.get(name)
    return var is not None and var.type in VALUES


def _figures(side: Runnable) -> ProgramFigures:
    values = _parameters(side.program, side.scope)
    return figures(side.program, {name: _nbytes(value) for name, value in values.items()})


def _measured(
    model: Model,
    sides: tuple[Runnable, Runnable],
    sizes: tuple[ProgramFigures, ProgramFigures],
    feed: Mapping[str, LoDTensor],
    batch: int,
    watcher: Watcher,
) -> tuple[ProgramFigures, ProgramFigures]:
    """The figures with memory and time of a run."""
    shapes = {name: value.shape() for name, value in feed.items()}
    memory = [estimates(side.program, shapes, batch) for side in sides]
    with watcher.progress("measuring"):
        seconds = compare_times(*sides, feed, model.fetches, REPEAT, model.policy)
    before, after = (
        replace(each, activation_bytes_kept=kept, activation_bytes_live=use.at_once, seconds=taken)
        for each, (use, kept), taken in zip(sizes, memory, seconds, strict=True)
    )
    return before, after


def _draw_memory(
    sides: tuple[Runnable, Runnable], shapes: Mapping[str, Any], batch: int, path: Path, title: str, overwrite: bool
) -> None:
    """The memory of activations over the operators, before and after."""
    from fluidtool.drawing.charts import Curve, memory_chart

    before, after = (memory_steps(side.program, shapes, batch) for side in sides)
    curves = [
        Curve("before", "before", before.held),
        Curve("after", "after", after.held),
        Curve("needed at once", "least", after.in_use),
    ]
    said = f"activations that are alive if only delete_var frees them, for {_sizes(shapes, batch)}"
    write_file(path, [memory_chart(curves, f"Memory of {title}", said).encode()], overwrite=overwrite)


def _sizes(shapes: Mapping[str, Any], batch: int) -> str:
    from fluidtool.drawing.text import shortened

    listed = ", ".join(f"{name} {shape_text(shape)}" for name, shape in shapes.items())
    return shortened(listed, 100) or f"a batch of {batch}"


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


def _save(model: Model, result: TranspileResult, output: Path, overwrite: bool) -> list[Path]:
    store = model.files.parameters
    values = _parameters(result.program, result.scope) if store else {}
    layout = layout_like(model.files, output, bool(store))
    return save_model(result.program, values, layout, overwrite=overwrite)
