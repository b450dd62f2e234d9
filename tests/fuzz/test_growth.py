"""Twice the program takes twice the work: each command, and each step of building, by lines that run (not by clocks)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fluidtool.distribute.appending import control_variable
from fluidtool.ir import Program
from fluidtool.passes import cost
from fluidtool.profiling import recorder
from fluidtool.profiling.recorder import Recorder
from fluidtool.runtime import Executor
from fluidtool.runtime.engines.native.layouts import Buffer
from fluidtool.runtime.plan import Plan
from tests.fuzz import growth as campaign
from tests.fuzz._growth import API, COMMANDS, TRAINING_COMMANDS, commands_on
from tests.support.counted_work import LIMIT, Work, growth
from tests.support.large_programs import staying

pytestmark = pytest.mark.slow

SMALLEST, SIZE = 14, 42  # operators of a program, and in what Python builds
SMALLEST_BUILT, SIZE_BUILT = 60, 240
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
    "layers": ("run", "transpile --all-inference", "prune", "inspect --with-params"),
    "files": ("inspect --with-params", "check", "run", "prune", "diff", "transpile --all-inference"),
    "images": ("run", "transpile --fuse-bn", "inspect --plan"),
    "identities": ("transpile --all-inference",),
    "shared_weight": ("transpile --all-inference", "run"),
    "in_place": ("transpile --all-inference", "transpile --memory-optimize"),
    "many_outputs": ("check", "prune", "run", "inspect"),
    "branches": ("check", "diff", "prune", "run", "transpile --all-inference", "transpile --release-memory"),
    "declared": ("inspect --vars", "check", "diff", "prune", "transpile --memory-optimize"),
    "alternating": ("inspect --plan", "run", "profile"),
    "loop": ("inspect --plan", "check", "check --security", "run", "transpile --all-inference"),
    "training": tuple(TRAINING_COMMANDS),
}
SIZES = {
    "training": (22, 66),  # it grows by layers of 11 operators
    "declared": (60, 240),  # of variables, for which less is done than for operators
}
BLOCKS_DEEP = 128, 384  # operators of programs with 32 levels of blocks
LARGE = ("check of chain", "fluid.layers")  # within a minute; the campaign has all


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in KINDS.items() for name in names])
def test_a_command_takes_twice_as_long_for_twice_the_program(kind: str, name: str, tmp_path: Path) -> None:
    smallest, size = SIZES.get(kind, (SMALLEST, SIZE))
    assert growth(commands_on(tmp_path, kind, name), size, smallest) < LIMIT


@pytest.mark.parametrize(
    "name", ["check", "check --security", "run", "transpile --all-inference", "transpile --level 1"]
)
def test_a_command_takes_twice_as_long_for_twice_the_chains_between_nested_blocks(name: str, tmp_path: Path) -> None:
    smallest, size = BLOCKS_DEEP
    assert growth(commands_on(tmp_path, "deep_chains", name), size, smallest) < LIMIT


@pytest.mark.parametrize("name", API)
def test_building_takes_twice_as_long_for_twice_the_program(name: str) -> None:
    assert growth(API[name], SIZE_BUILT, SMALLEST_BUILT) < LIMIT


def test_the_next_control_variable_is_found_without_a_look_at_each_before() -> None:
    def work_of(size: int) -> Work:
        block = Program().global_block()
        return lambda: [control_variable(block) for _ in range(size)]

    assert growth(work_of, 4 * SIZE, SMALLEST) < LIMIT


# ---------------------------------------------------------------- what a profile adds up
class Bytes(int):
    """A number of bytes; they count how often any of them is added or taken off."""

    sums = 0

    def __add__(self, other: int) -> int:
        Bytes.sums += 1
        return Bytes(int(self) + other)

    __radd__ = __add__

    def __sub__(self, other: int) -> int:
        Bytes.sums += 1
        return Bytes(int(self) - other)

    def __rsub__(self, other: int) -> int:
        Bytes.sums += 1
        return Bytes(other - int(self))


def sums_in(work: Work) -> int:
    """How often bytes are added or taken off."""
    Bytes.sums = 0
    work()
    return Bytes.sums


def test_what_is_alive_is_not_added_up_anew_for_every_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    def work_of(size: int) -> Work:
        large = staying(size)
        return lambda: Executor(engine="numpy").run(
            large.program, large.feeds, list(large.fetches), large.scope(), observer=Recorder(large.feeds)
        )

    size_of = recorder._size
    monkeypatch.setattr(recorder, "_size", lambda value: Bytes(size_of(value)))
    assert 0 < sums_in(work_of(2 * SIZE)) < LIMIT * sums_in(work_of(SIZE))


def test_the_footprint_of_a_plan_does_not_add_up_anew_what_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    def work_of(size: int) -> Work:
        large = staying(size)
        plan, inputs = Plan(large.program, tuple(large.fetches), True), cost.input_metas(large.program, large.feeds)
        return lambda: cost.footprint(plan, inputs)

    monkeypatch.setattr(cost, "_nbytes", lambda meta, batch: Bytes(1))
    assert 0 < sums_in(work_of(2 * SIZE)) < LIMIT * sums_in(work_of(SIZE))


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

    found = campaign.measured(campaign.Curve("failing", failing), 70, 80)
    assert list(found.faults()) == ["MemoryError: no room"]


def test_the_campaign_reports_the_square_of_the_size(quadratic: Callable[[int], Work]) -> None:
    (fault,) = campaign.measured(campaign.Curve("square", quadratic), 200, 80).faults()
    assert fault.endswith("times the lines for twice the program")


@pytest.mark.parametrize(
    ("seconds", "megabytes", "fault"),
    [
        ((0, 4, 16), (1, 1, 1), "takes 16.0 s, half of it 4.0 s"),
        ((0, 31, 62), (1, 1, 1), "takes 62.0 s, more than 60"),
        ((0, 1, 2), (100, 300, 700), "takes 700 MiB, half of it 300 MiB"),
        ((0, 1, 2), (100, 1200, 2300), "takes 2,300 MiB, more than 2,048"),
    ],
)
def test_the_campaign_reports_time_and_memory(seconds: tuple[int, ...], megabytes: tuple[int, ...], fault: str) -> None:
    costs = tuple(campaign.Cost(*pair) for pair in zip(seconds, (each << 20 for each in megabytes), strict=True))
    counts = tuple(campaign.Cost(each) for each in (0, 10, 20))
    assert list(campaign.Growth(counts, costs).faults()) == [fault]


def test_the_campaign_finds_nothing_in_a_small_program() -> None:
    found = campaign.measured(campaign.Curve("clone", API["clone"]), 200, 400)
    assert list(found.faults()) == []


# ---------------------------------------------------------------- 100,000 operators
@pytest.mark.parametrize("name", LARGE)
def test_a_hundred_thousand_operators_stay_below_the_limits(name: str, tmp_path: Path) -> None:
    (curve,) = (each for each in campaign.curves(tmp_path) if each.name == name)
    cost = campaign.apart(curve, campaign.LARGEST)
    assert not cost.fault
    assert cost.amount < campaign.SECONDS
    assert cost.memory < campaign.MEMORY
