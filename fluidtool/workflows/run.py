"""`fluidtool.run(model, inputs)`: runs a model, repeatedly where its time is asked for, and compares its outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from fluidtool.errors import FetchError, Hint, OperatorError
from fluidtool.model import Model
from fluidtool.outputs import Outputs
from fluidtool.records import dataclass
from fluidtool.tensor import LoDTensor
from fluidtool.workflows.fetches import Fetches, chosen
from fluidtool.workflows.inputs import Inputs, gather
from fluidtool.workflows.sources import Source, opened
from fluidtool.workflows.watcher import SILENT, Advance, Watcher

if TYPE_CHECKING:  # a run that starts from the cache needs none of these
    from fluidtool.report.common import EngineUse
    from fluidtool.runtime.executor import Observer
    from fluidtool.runtime.finite import FiniteCheck, NotFinite
    from fluidtool.runtime.step import BoundStep
    from fluidtool.tensor.compare import Comparison
    from fluidtool.workflows.expectation import Tolerance


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run gave: values by name, the comparisons with those that were expected, the seconds of each counted run,
    the engine that computed (name, operators, regions, what was left to numpy and why), and what was not finite.
    """

    outputs: Outputs
    comparisons: Sequence[Comparison]
    seconds: Sequence[float]
    engine: EngineUse
    not_finite: Sequence[NotFinite] = ()

    def _repr_html_(self) -> str:
        return self.outputs._repr_html_()

    @property
    def differing(self) -> list[Comparison]:
        """The comparisons that do not agree."""
        return [item for item in self.comparisons if not item.agrees]


def run(
    model: Source,
    inputs: Inputs | None = None,
    fetch: Sequence[str] = (),
    *,
    everything: bool = False,
    expected: Path | None = None,
    tolerance: Tolerance | None = None,
    check_nan: bool = False,
    check_nan_all: bool = False,
    repeat: int = 1,
    warmup: int = 0,
    watcher: Watcher = SILENT,
) -> RunResult:
    """Run a model on files or random values: `warmup` untimed runs, then `repeat` timed ones.

    fetch: names, or patterns such as 'fc_*' (default: the outputs); everything: all that is computed. expected: a file
    with values by name, or in order. check_nan: stop at the first operator that makes NaN or infinity; check_nan_all: run
    to the end and list all of them in the result. For values in memory, `Model.run` is enough. Raises FeedError,
    FetchError, UnreadableError, OperatorError, NotFiniteError.
    """
    model, inputs = opened(model), inputs or Inputs()
    fetches = chosen(model, fetch, everything)
    wanted_values: Mapping[str, LoDTensor] = {}
    if expected is not None:
        from fluidtool.workflows.expectation import read_expected

        known = list(dict.fromkeys([*fetches.names, *model.program.global_block().vars]))
        wanted_values = read_expected(expected, fetches.names, known)
    if model.start is None:
        _ = model.executor  # looks for the device, before anything is said
    feed = gather(model, inputs, watcher)
    names = list(dict.fromkeys([*fetches.names, *wanted_values]))
    check = _finite_check(check_nan_all) if check_nan or check_nan_all else None
    outputs, seconds = _repeated(model, feed, names, fetches, check, repeat, warmup, watcher)
    engine = _engine_used(model, names, "the check for NaN" if check else "")
    _note_engine(model, engine, watcher)
    comparisons = _compared(outputs, wanted_values, tolerance)
    found = Outputs((name, outputs[name]) for name in fetches.names if name in outputs)
    return RunResult(found, comparisons, seconds, engine, check.found if check else ())


def _finite_check(every: bool) -> FiniteCheck:
    from fluidtool.runtime.finite import FiniteCheck

    return FiniteCheck(every=every)


def _engine_used(model: Model, names: Sequence[str], watched: str) -> EngineUse:
    """What computed the runs of a model. watched: what had every operator run by itself, or ''."""
    if (start := model.start) is not None:
        return start.engine_used()
    from fluidtool.workflows.engine_use import engine_used

    return engine_used(model.executor, model.executor.plan(model.program, names, True), watched)


def _compared(
    outputs: Mapping[str, Any], expected: Mapping[str, LoDTensor], tolerance: Tolerance | None
) -> list[Comparison]:
    """One comparison for each expected value."""
    if not expected:
        return []
    from fluidtool.workflows.expectation import Tolerance, compare_all

    return compare_all(outputs, expected, tolerance or Tolerance())


def _repeated(
    model: Model,
    feed: Mapping[str, LoDTensor],
    names: Sequence[str],
    fetches: Fetches,
    check: FiniteCheck | None,
    repeat: int,
    warmup: int,
    watcher: Watcher,
) -> tuple[dict[str, Any], list[float]]:
    """The outputs of the last run, and the seconds of those that count."""
    runs = warmup + repeat
    outputs: dict[str, Any] = {}
    seconds = []
    steps = None if model.start is not None else model.executor.plan(model.program, list(names), True).block(0).steps
    counts_steps = runs == 1 and steps is not None and model.executor.engine is None and watcher.shows_progress
    with watcher.progress("running", len(steps) if steps is not None and counts_steps else runs) as advance:
        observer: Observer | None = check
        if counts_steps:
            observer = _Counting(observer, advance)
        for number in range(runs):
            begin = perf_counter()
            # Taking the values to the host also waits for a GPU to finish.
            with _sequences_hinted(model, feed):
                found = model.run(feed, names, optional=fetches.optional, observer=observer)
            outputs = {name: on_host(value) for name, value in found.items() if _filled(name, value, fetches)}
            if number >= warmup:
                seconds.append(perf_counter() - begin)
            if not counts_steps:
                advance()
    return outputs, seconds


def _note_engine(model: Model, used: EngineUse, watcher: Watcher) -> None:
    """Tell where an engine that was asked for computed nothing."""
    asked = model.engine not in ("auto", "numpy") and used["name"] != model.engine
    if asked or (model.precision != "float32" and used["name"] != "native"):
        watcher.say(f"note: numpy computed everything: {used['reason']}")


class _Counting:
    """An observer that counts the steps of block 0."""

    def __init__(self, inner: Observer | None, advance: Advance) -> None:
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
    raise FetchError(f"cannot fetch {name}: its operator gave it no value in this run")


@contextmanager
def _sequences_hinted(model: Model, feed: Mapping[str, LoDTensor]) -> Iterator[None]:
    """An operator that misses sequences is most often fed by an input whose lengths were left out: say so."""
    try:
        yield
    except OperatorError as error:
        variables = model.program.global_block().vars
        bare = [name for name, value in feed.items() if variables[name].lod_level and not value.offsets]
        if bare:
            text = f"the input {bare[0]} is declared to contain sequences: give their lengths, "
            error.hint = Hint(f"{text}lods=['{bare[0]}=[[2,3]]']", f"{text}--lod {bare[0]}=[[2,3]]")
        raise


def on_host(value: Any) -> Any:
    """A LoDTensor with its array in the host's memory; other values as they are."""
    if isinstance(value, LoDTensor) and value.is_initialized():
        return LoDTensor(value.numpy(), value.lod())
    return value
