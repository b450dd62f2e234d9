"""The profiler: how long every operator takes, as a table on stdout and in a file (Paddle 1.8.5 profiler.py)."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fluidtool.errors import DeviceError, OutputError, UsageError
from fluidtool.fluid.flags import checks_finite
from fluidtool.fluid.offers import refuse_other_names
from fluidtool.fluid.places import is_compiled_with_cuda
from fluidtool.runtime.executor import Observer
from fluidtool.runtime.finite import FiniteCheck
from fluidtool.runtime.profile import SORTING, Profile, report

__all__ = ["cuda_profiler", "profiler", "reset_profiler", "start_profiler", "stop_profiler"]

PROFILE_PATH = str(Path(tempfile.gettempdir()) / "profile")


class _Current:
    profile: Profile | None = None
    place = ""


def active_observer() -> Observer | None:
    """The observer of runs: the profiler while it is on, else the check for NaN if a flag requests it."""
    profile = _Current.profile
    if profile is not None:
        return profile.observe
    return FiniteCheck() if checks_finite() else None


def start_profiler(state: str, tracer_option: str = "Default") -> None:
    """Measure every operator from now on; no effect if already on.

    state: 'CPU', 'GPU' or 'All'; the last two wait for the GPU after each operator, so that its time is counted.
    """
    if _Current.profile is not None:
        return
    if state not in ("CPU", "GPU", "All"):
        raise UsageError(f"The state must be 'CPU' or 'GPU' or 'All', found {state!r}.")
    if tracer_option not in ("Default", "OpDetail", "AllOpDetail"):
        raise UsageError(f"tracer option must be 'Default', 'OpDetail', 'AllOpDetail', found {tracer_option!r}.")
    _Current.profile, _Current.place = Profile(wait=state != "CPU"), state


def stop_profiler(sorted_key: str | None = None, profile_path: str = PROFILE_PATH) -> None:
    """Print the table and write the events to profile_path, as Paddle does; no effect if the profiler is off.

    Paddle's tools/timeline.py makes a Chrome trace of the file. Its devices are blocks, their parts threads.
    sorted_key: None, 'calls', 'total', 'max', 'min' or 'ave'. Raises OutputError if the file cannot be written.
    """
    profile = _Current.profile
    if profile is None:
        return
    key = "default" if sorted_key is None else sorted_key
    if key not in SORTING:
        raise UsageError(
            f"The sorted_key must be None or in 'calls', 'total', 'max', 'min' and 'ave', found {sorted_key!r}"
        )
    _Current.profile = None
    sys.stdout.write(report(profile.rows(), _Current.place, key))
    try:
        Path(profile_path).write_bytes(profile.message())
    except OSError as error:
        raise OutputError(f"cannot write the profile to {profile_path}: {error.strerror or error}") from error


def reset_profiler() -> None:
    """Drop all measurements so far."""
    if _Current.profile is not None:
        _Current.profile.reset()


@contextmanager
def profiler(
    state: str, sorted_key: str | None = None, profile_path: str = PROFILE_PATH, tracer_option: str = "Default"
) -> Iterator[None]:
    """Profile the block (arguments of start_profiler and stop_profiler); the table is printed even if the block raises."""
    if sorted_key is not None and sorted_key not in SORTING:
        raise UsageError(
            f"The sorted_key must be None or in 'calls', 'total', 'max', 'min' and 'ave', found {sorted_key!r}"
        )
    start_profiler(state, tracer_option)
    try:
        yield
    finally:
        stop_profiler(sorted_key, profile_path)


@contextmanager
def cuda_profiler(
    output_file: str, output_mode: str | None = None, config: Sequence[str] | None = None
) -> Iterator[None]:
    """Let CUDA's profiler collect within the block only; the tool that started the process writes the results.

    The file and the settings are arguments of that tool today (nsys, ncu). Raises DeviceError without a GPU.
    """
    if output_mode not in (None, "kvp", "csv"):
        raise UsageError(f"The output mode must be 'kvp' or 'csv', found {output_mode!r}.")
    if not is_compiled_with_cuda():
        raise DeviceError("cuda_profiler needs a GPU and cupy; use profiler('CPU') here")
    import cupy

    cupy.cuda.profiler.start()
    try:
        yield
    finally:
        cupy.cuda.profiler.stop()


__getattr__ = refuse_other_names("paddle.fluid.profiler", __all__)
