"""`fluidtool.profile(model, inputs)`: how long each operator and kernel call takes, and which engine computed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fluidtool.errors import OVERWRITE, Location, OutputExistsError
from fluidtool.io.atomic import write_file
from fluidtool.profiling import Item, Profile
from fluidtool.profiling import profile as profile_runs
from fluidtool.profiling.trace import chrome_trace
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text
from fluidtool.workflows.engine_use import engine_used
from fluidtool.workflows.fetches import chosen
from fluidtool.workflows.inputs import Inputs, gather
from fluidtool.workflows.sources import Source, opened
from fluidtool.workflows.watcher import SILENT, Watcher

if TYPE_CHECKING:
    from fluidtool.report.common import EngineUse


@dataclass(frozen=True, slots=True)
class ProfileResult:
    """The profile, and the engine that computed (as of `RunResult`)."""

    profile: Profile
    engine: EngineUse


def profile(
    model: Source,
    inputs: Inputs,
    fetch: Sequence[str] = (),
    *,
    repeat: int = 10,
    warmup: int = 1,
    watcher: Watcher = SILENT,
) -> ProfileResult:
    """Profile a model on files or random values; `fluidtool.profiling.profile` takes values in memory.

    fetch: as of `fluidtool.run`. Raises what that raises.
    """
    model = opened(model)
    names = list(chosen(model, fetch).names)
    feed = gather(model, inputs, watcher)
    with watcher.progress("profiling"):
        found = profile_runs(model, feed, names, repeat=repeat, warmup=warmup)
    return ProfileResult(found, engine_used(model.executor, model.executor.plan(model.program, names, True), ""))


def draw_times(found: Profile, path: Path, title: str, *, overwrite: bool = False) -> None:
    """Draw how long each operator and kernel call takes as bars, in SVG. Raises OutputExistsError, OutputError."""
    from statistics import median

    from fluidtool.drawing.charts import Bar, time_chart
    from fluidtool.drawing.coloring import duration

    middle = median(found.plain)
    bars = [Bar(item.name, _worked_on(item), item.seconds) for item in found.items]
    said = f"one run takes {duration(middle)} (median of {len(found.plain)})"
    write_file(path, [time_chart(bars, f"Time of {title}", said).encode()], overwrite=overwrite)


def _worked_on(item: Item) -> str:
    return f"{item.result} {shape_text(item.shape)}" if item.result else ""


def require_free_trace(path: Path, *, overwrite: bool) -> None:
    """Raise OutputExistsError where `save_trace` would."""
    if path.exists() and not overwrite:
        raise OutputExistsError(f"{path} already exists", hint=OVERWRITE, location=Location(str(path)))


def save_trace(found: Profile, path: Path, title: str, *, overwrite: bool = False) -> None:
    """Write the last run as a Chrome trace, for chrome://tracing or Perfetto. Raises OutputExistsError, OutputError."""
    write_file(path, [chrome_trace(found, title).encode()], overwrite=overwrite)
