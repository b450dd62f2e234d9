"""The profiler's table and file, with the arguments of Paddle 1.8.5."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import DeviceError, OutputError, UsageError
from fluidtool.fluid import profiler
from fluidtool.proto import profiler_pb2
from fluidtool.runtime.profile import Row, report


@pytest.fixture
def run() -> Iterator[Any]:
    """A function that runs a program with mul and elementwise_add once."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        out = fluid.layers.fc(fluid.layers.data("x", [2]), 3)
        executor = fluid.Executor()
        executor.run(startup)
        yield lambda program=main: executor.run(program, feed={"x": np.ones((4, 2), "float32")}, fetch_list=[out])


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "profile")


def events(file: str) -> list[Any]:
    return list(profiler_pb2.Profile.FromString(Path(file).read_bytes()).events)


def test_the_table_counts_every_operator(run: Any, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    with profiler.profiler("CPU", "total", file):
        for _ in range(3):
            run()
    table = capsys.readouterr().out
    assert "Profiling Report" in table
    assert "Sorted by total time in descending order in the same thread" in table
    rows = {line.split()[0]: line.split()[1] for line in table.splitlines() if line.startswith("thread0::")}
    assert rows == {"thread0::mul": "3", "thread0::elementwise_add": "3"}


def test_the_file_has_an_event_for_every_run(run: Any, file: str) -> None:
    with profiler.profiler("All", profile_path=file):
        run()
    assert [event.name for event in events(file)] == ["mul", "elementwise_add"]
    assert all(event.end_ns > event.start_ns for event in events(file))
    assert [(event.device_id, event.sub_device_id) for event in events(file)] == [(0, 0)] * 2


def test_runs_outside_are_not_measured(run: Any, file: str) -> None:
    run()
    profiler.start_profiler("CPU")
    profiler.stop_profiler(profile_path=file)
    run()
    assert events(file) == []


def test_reset_forgets_what_came_before(run: Any, file: str) -> None:
    profiler.start_profiler("CPU")
    run()
    profiler.reset_profiler()
    profiler.stop_profiler("calls", file)
    assert events(file) == []


def test_devices_have_threads_of_their_own(run: Any, file: str) -> None:
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(places=[fluid.CPUPlace()] * 2)
    with profiler.profiler("CPU", profile_path=file):
        run(program)
    assert sorted(event.name for event in events(file)) == ["elementwise_add"] * 2 + ["mul"] * 2


def test_the_table_comes_even_when_the_block_raises(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError), profiler.profiler("CPU", profile_path=file):
        raise KeyError("lost")
    assert "Profiling Report" in capsys.readouterr().out


def test_a_second_start_and_a_second_stop_do_nothing(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    profiler.start_profiler("CPU")
    profiler.start_profiler("nosuch")
    profiler.stop_profiler(profile_path=file)
    profiler.stop_profiler("nosuch")
    assert capsys.readouterr().out.count("Profiling Report") == 1


ROWS = [Row("a", 1, 5.0, 5.0, 5.0, 2.0), Row("b", 3, 3.0, 0.5, 2.0, 1.0)]


@pytest.mark.parametrize(
    ("key", "first"), [("default", "b"), ("calls", "b"), ("total", "a"), ("max", "a"), ("min", "a"), ("ave", "a")]
)
def test_rows_are_sorted_by_what_is_asked_for(key: str, first: str) -> None:
    lines = report(ROWS, "CPU", key).splitlines()
    assert lines[-2].split()[0] == first


def test_a_row_tells_calls_total_extremes_average_and_ratio() -> None:
    assert report(ROWS, "CPU", "total").splitlines()[-1].split() == ["b", "3", "3", "0.5", "2", "1", "0.375"]


def test_the_state_is_one_of_three() -> None:
    with pytest.raises(UsageError, match="The state must be 'CPU' or 'GPU' or 'All', found 'TPU'"):
        profiler.start_profiler("TPU")


def test_the_tracer_option_is_one_of_three() -> None:
    with pytest.raises(UsageError, match="tracer option must be 'Default', 'OpDetail', 'AllOpDetail'"):
        profiler.start_profiler("CPU", "nosuch")


def test_the_sorting_key_is_checked_before_anything_runs() -> None:
    with pytest.raises(UsageError, match="The sorted_key must be None or in"), profiler.profiler("CPU", "nosuch"):
        pytest.fail("the block ran")


def test_a_wrong_sorting_key_leaves_the_profiler_on(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    profiler.start_profiler("CPU")
    with pytest.raises(UsageError, match="The sorted_key must be None or in"):
        profiler.stop_profiler("nosuch", file)
    profiler.stop_profiler(None, file)
    assert "Sorted by event first end time in the same thread" in capsys.readouterr().out


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    profiler.start_profiler("CPU")
    with pytest.raises(OutputError, match="cannot write the profile to"):
        profiler.stop_profiler(profile_path=str(tmp_path / "nosuch" / "profile"))


def test_the_cuda_profilers_output_mode_is_one_of_two(file: str) -> None:
    with pytest.raises(UsageError, match="The output mode must be 'kvp' or 'csv'"), profiler.cuda_profiler(file, "xml"):
        pytest.fail("the block ran")


@pytest.mark.skipif(fluid.is_compiled_with_cuda(), reason="there is a GPU here")
def test_the_cuda_profiler_needs_a_gpu(file: str) -> None:
    with pytest.raises(DeviceError, match="cuda_profiler needs a GPU"), profiler.cuda_profiler(file):
        pytest.fail("the block ran")
