"""Twice the program takes twice the work: each command, and each step of building, by lines that run (not by clocks)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fluidtool.distribute.appending import control_variable
from fluidtool.ir import Program
from fluidtool.profiling import recorder
from fluidtool.profiling.recorder import Recorder
from fluidtool.runtime import Executor
from fluidtool.runtime.engines.native.layouts import Buffer
from tests.fuzz import growth as campaign
from tests.fuzz._growth import API, COMMANDS, commands_on
from tests.support.counted_work import LIMIT, Work, growth
from tests.support.large_programs import staying

pytestmark = pytest.mark.slow

SMALLEST, SIZE = 14, 42  # operators of a program, and in what Python builds
SMALLEST_BUILT, SIZE_BUILT = 22, 66
KINDS = {  # what grows in programs of each kind, beside what grows in all
    "chain": tuple(COMMANDS),
    "staying": (
        "inspect --plan",
        "run",
        "transpile --memory-optimize",
        "transpile --level 1",
        "transpile --release-memory",
    ),
    "fan": ("inspect --plan", "check", "transpile --all-inference"),
    "layers": ("run", "transpile --all-inference", "prune", "inspect --params"),
    "images": ("run", "transpile --fuse-bn", "inspect --plan"),
    "identities": ("transpile --all-inference",),
    "shared_weight": ("transpile --all-inference", "run"),
    "in_place": ("transpile --all-inference", "transpile --memory-optimize"),
    "many_outputs": ("check", "prune", "run", "inspect"),
    "branches": ("check", "diff", "prune", "run", "transpile --all-inference", "transpile --release-memory"),
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in KINDS.items() for name in names])
def test_a_command_takes_twice_as_long_for_twice_the_program(kind: str, name: str, tmp_path: Path) -> None:
    assert growth(commands_on(tmp_path, kind, name), SIZE, SMALLEST) < LIMIT


@pytest.mark.parametrize("name", API)
def test_building_takes_twice_as_long_for_twice_the_program(name: str) -> None:
    assert growth(API[name], SIZE_BUILT, SMALLEST_BUILT) < LIMIT


def test_the_next_control_variable_is_found_without_a_look_at_each_before() -> None:
    def work_of(size: int) -> Work:
        block = Program().global_block()
        return lambda: [control_variable(block) for _ in range(size)]

    assert growth(work_of, 4 * SIZE, SMALLEST) < LIMIT


# ---------------------------------------------------------------- what a profile adds up
def test_what_is_alive_is_not_added_up_anew_for_every_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bytes(int):
        """A number of bytes; they count how often any of them is added or taken off."""

        sums = 0

        def __radd__(self, other: int) -> int:
            Bytes.sums += 1
            return Bytes(int(self) + other)

        def __sub__(self, other: int) -> int:
            Bytes.sums += 1
            return Bytes(int(self) - other)

    def sums(size: int) -> int:
        large, Bytes.sums = staying(size), 0
        Executor(engine="numpy").run(
            large.program, large.feeds, list(large.fetches), large.scope(), observer=Recorder(large.feeds)
        )
        return Bytes.sums

    size_of = recorder._size
    monkeypatch.setattr(recorder, "_size", lambda value: Bytes(size_of(value)))
    assert 0 < sums(2 * SIZE) < LIMIT * sums(SIZE)


def test_what_is_alive_in_an_arena_is_not_added_up_anew_for_every_step() -> None:
    def work_of(size: int) -> Work:
        down = [Buffer(1) for _ in range(size // 2)]
        kernel_calls = [SimpleNamespace(buffers=lambda buffer=buffer: (buffer,)) for buffer in (*down, *reversed(down))]
        call: Any = SimpleNamespace(kernel_calls=kernel_calls)
        return lambda: recorder._alive_in_arena(call)

    assert growth(work_of, SIZE, SMALLEST) < LIMIT


# ---------------------------------------------------------------- what finds it
@pytest.fixture
def quadratic(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Work]]:
    """Work of fluidtool's own that grows with the square of the size."""

    def work_of(size: int) -> Work:
        program = Program()
        for number in range(size):
            program.global_block().create_var(name=f"v{number}")
        return lambda: [program.all_parameters() for _ in range(size)]

    yield work_of


def test_the_count_tells_the_square_of_the_size(quadratic: Callable[[int], Work]) -> None:
    assert growth(quadratic, 60, 10) > LIMIT


def test_the_campaign_reports_what_fails() -> None:
    def failing(size: int) -> Work:
        def work() -> None:
            raise MemoryError("no room")

        return work

    (found,) = campaign.follow("failing", failing, 10, 20)
    assert str(found) == "failing, size 10: MemoryError: no room"


def test_the_campaign_reports_the_square_of_the_size(
    quadratic: Callable[[int], Work], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "apart", lambda work_of, size: (size**2 / 100, 0, ""))
    (found,) = campaign.follow("square", quadratic, 20, 80)
    assert found.fault == "takes 16.0 s, half of it 4.0 s"


def test_the_campaign_finds_nothing_in_a_small_program() -> None:
    assert list(campaign.follow("clone", API["clone"], 50, 100)) == []
