"""What `run` does once its options are understood."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import typer

from fluidtool.cli.engines import engine_used, used_text
from fluidtool.cli.failures import say, say_error
from fluidtool.cli.feeds import gather
from fluidtool.cli.fetches import Fetches, chosen
from fluidtool.cli.opening import open_model
from fluidtool.cli.progress import progress
from fluidtool.cli.render import fields, number, show, show_json
from fluidtool.cli.views.run import compare_all, differences_table, outputs_data, outputs_table, read_expected
from fluidtool.cli.views.times import shown, statistics
from fluidtool.errors import EXIT_FINDING, FetchError, OperatorError, OutputExistsError, UsageError
from fluidtool.io.arrays import archive_bytes, arrays_of, npy_bytes, write_archive, write_folder
from fluidtool.io.atomic import held_names, write_file
from fluidtool.model import Model
from fluidtool.runtime.executor import Observer
from fluidtool.runtime.finite import FiniteCheck
from fluidtool.runtime.step import BoundStep
from fluidtool.tensor import LoDTensor
from fluidtool.tensor.compare import Comparison

STDOUT = Path("-")


@dataclass(frozen=True, slots=True)
class Request:
    """The options of `run`."""

    model: str
    params: str | None
    model_file: str | None
    feeds: Sequence[str]
    lods: Sequence[str]
    random: bool
    seed: int
    batch: int
    shapes: Sequence[str]
    fetch: Sequence[str]
    fetch_all: bool
    output: Path | None
    json: bool
    force: bool
    expect: Path | None
    rtol: float
    atol: float
    check_nan: bool
    device: str
    engine: str
    precision: str
    repeat: int
    warmup: int
    allow_files: Sequence[Path]
    allow_network: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run gave: values by name, the expected ones among them, the time of each counted run, the engine."""

    outputs: Mapping[str, Any]
    comparisons: Sequence[Comparison]
    seconds: Sequence[float]
    engine: Mapping[str, Any]


def execute(request: Request) -> None:
    """Run, then save, compare and show; raises typer.Exit with code 1 when the outputs differ from --expect."""
    if request.output == STDOUT and request.json:
        raise UsageError("--output - and --json both write to standard output; choose one of them")
    if min(request.rtol, request.atol) < 0:
        raise UsageError("--rtol and --atol must not be negative")
    _check_output(request)
    model = open_model(
        request.model,
        request.model_file,
        request.params,
        device=request.device,
        engine=request.engine,
        precision=request.precision,
        seed=request.seed,
        allow_files=request.allow_files,
        allow_network=request.allow_network,
    )
    outcome = _run(model, request)
    _save(outcome.outputs, request)
    _show(outcome, request)
    _judge(outcome.comparisons, request)


def _check_output(request: Request) -> None:
    """Refuse to overwrite before anything is computed."""
    path = request.output
    if path is None or path == STDOUT or request.force or not path.exists():
        return
    if path.is_dir() and not held_names(path):
        return
    raise OutputExistsError(f"{path} exists already; choose another name, or allow overwriting it with --force")


def _run(model: Model, request: Request) -> Outcome:
    fetches = chosen(model, request.fetch, request.fetch_all)
    expected = {}
    if request.expect is not None:
        known = list(dict.fromkeys([*fetches.names, *model.program.global_block().vars]))
        expected = read_expected(request.expect, fetches.names, known)
    _ = model.executor  # looks for the device, before anything is said
    feed = gather(
        model,
        request.feeds,
        request.lods,
        request.shapes,
        random=request.random,
        batch=request.batch,
        seed=request.seed,
    )
    wanted = list(dict.fromkeys([*fetches.names, *expected]))
    outputs: dict[str, Any] = {}
    seconds = []
    runs = request.warmup + request.repeat
    plan = model.executor.plan(model.program, wanted, True)
    counts_steps = runs == 1 and model.executor.engine is None and sys.stderr.isatty()
    with progress("running", len(plan.block(0).steps) if counts_steps else runs) as advance:
        observer: Observer | None = FiniteCheck() if request.check_nan else None
        if counts_steps:
            observer = _Counting(observer, advance)
        for number_of_run in range(runs):
            begin = perf_counter()
            # Taking the values to the host also waits for a GPU to finish.
            with _sequences_hinted(model, feed):
                found = model.run(feed, wanted, optional=fetches.optional, observer=observer)
            outputs = {name: on_host(value) for name, value in found.items() if _filled(name, value, fetches)}
            if number_of_run >= request.warmup:
                seconds.append(perf_counter() - begin)
            if not counts_steps:
                advance()
    used = engine_used(model.executor, plan, "--check-nan" if request.check_nan else "")
    asked = request.engine not in ("auto", "numpy") and used["name"] != request.engine
    if asked or (request.precision != "float32" and used["name"] != "native"):
        say(f"note: numpy computed everything: {used['reason']}")
    comparisons = compare_all(outputs, expected, request.rtol, request.atol)
    return Outcome({name: outputs[name] for name in fetches.names if name in outputs}, comparisons, seconds, used)


class _Counting:
    """An observer that counts the steps of block 0 for the progress on a terminal."""

    def __init__(self, inner: Observer | None, advance: Callable[[], None]) -> None:
        self.inner, self.advance = inner, advance

    def __call__(self, step: BoundStep, block: int) -> None:
        if self.inner is None:
            step.run()
        else:
            self.inner(step, block)
        if block == 0:
            self.advance()


def _filled(name: str, value: Any, fetches: Fetches) -> bool:
    """Whether a value holds anything; raises FetchError for one that was asked for by its name."""
    if not isinstance(value, LoDTensor) or value.is_initialized():
        return True
    if name in fetches.optional:
        return False
    raise FetchError(f"cannot fetch {name}: its operator leaves it without a value in this run")


@contextmanager
def _sequences_hinted(model: Model, feed: Mapping[str, LoDTensor]) -> Iterator[None]:
    """An operator that misses sequences is most often fed by an input whose lengths were left out: say so."""
    try:
        yield
    except OperatorError as error:
        variables = model.program.global_block().vars
        bare = [name for name, value in feed.items() if variables[name].lod_level and not value.offsets]
        if bare:
            hint = f"the input {bare[0]} is declared to hold sequences: give their lengths, --lod {bare[0]}=[[2,3]]"
            error.args = (f"{error}; {hint}", *error.args[1:])
        raise


def on_host(value: Any) -> Any:
    """A LoDTensor with its array in the host's memory; other values as they are."""
    if isinstance(value, LoDTensor) and value.is_initialized():
        return LoDTensor(value.numpy(), value.lod())
    return value


# ---------------------------------------------------------------- afterwards
def _save(outputs: Mapping[str, Any], request: Request) -> None:
    path = request.output
    if path is None:
        return
    if path == STDOUT:
        sys.stdout.buffer.write(archive_bytes(outputs))
        return
    if path.suffix == ".npy":
        arrays = arrays_of(outputs)
        if len(arrays) != 1:
            raise UsageError(f"{path} can hold one array, but there are {len(arrays)}: {', '.join(arrays)}; use .npz")
        write_file(path, [npy_bytes(next(iter(arrays.values())))], overwrite=request.force)
    elif path.suffix == ".npz":
        write_archive(path, outputs, overwrite=request.force)
    else:
        write_folder(path, outputs, overwrite=request.force)
    say(f"{len(outputs)} output{'s' if len(outputs) != 1 else ''} saved to {path}")


def _show(outcome: Outcome, request: Request) -> None:
    times = statistics(outcome.seconds) if request.repeat > 1 else None
    if times:
        say(f"{request.repeat} runs by {used_text(outcome.engine)}")
    if request.json:
        data: dict[str, Any] = {"outputs": outputs_data(outcome.outputs)}
        if times:
            data["seconds"] = times
            data["engine"] = outcome.engine
        if request.expect is not None:
            agree = all(item.agrees for item in outcome.comparisons)
            data["comparison"] = {
                "agrees": agree,
                "rtol": request.rtol,
                "atol": request.atol,
                "outputs": [asdict(item) for item in outcome.comparisons],
            }
        show_json(data)
        return
    tables = [] if request.output else [outputs_table(outcome.outputs)]
    if times:
        tables.append(fields("", shown(times)))
    if not all(item.agrees for item in outcome.comparisons):
        tables.append(differences_table(outcome.comparisons))
    if request.output != STDOUT:
        show(*tables)


def _judge(comparisons: Sequence[Comparison], request: Request) -> None:
    if request.expect is None:
        return
    wrong = [item for item in comparisons if not item.agrees]
    tolerance = f"rtol {request.rtol:g}, atol {request.atol:g}"
    if wrong:
        count = f"{len(wrong)} of {len(comparisons)} outputs"
        say_error(f"{count} differ from {request.expect} ({tolerance}): {', '.join(item.name for item in wrong)}")
        raise typer.Exit(EXIT_FINDING)
    largest = max((item.largest_error for item in comparisons), default=0.0)
    say(
        f"{len(comparisons)} output{'s' if len(comparisons) != 1 else ''} as in {request.expect} "
        f"({tolerance}; largest difference {number(largest, 3)})"
    )
