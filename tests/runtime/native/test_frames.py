"""Threads that run a region at the same moment have memory of their own: they do not wait, and get what one alone gets."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from fluidtool.errors import FluidError
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor
from fluidtool.runtime.engines.native import kept, region
from fluidtool.runtime.engines.native.region import NativeRegion
from fluidtool.runtime.partition import Region
from tests.runtime.native.checking import Array, Net

pytestmark = pytest.mark.usefixtures("native")
MOMENT = 0.2  # seconds in which a thread that does not wait has long run


@pytest.fixture(autouse=True)
def many_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region, "processors", lambda: 4)


class Layers:
    """Rows that are looked up, and two products behind them."""

    def __init__(self) -> None:
        net = self.net = Net()
        net.program.global_block().create_var(name="ids", shape=[-1, 1], dtype=VarType.INT64)
        rows = net.op("lookup_table", "Out", {"W": net.parameter(8, 32), "Ids": "ids"}, padding_idx=-1)
        between = net.op("mul", "Out", {"X": rows, "Y": net.parameter(32, 64)})
        self.out = net.op("mul", "Out", {"X": net.op("tanh", "Out", {"X": between}), "Y": net.parameter(64, 16)})
        self.executor = Executor(engine="native")
        self.run(0, 0)

    def run(self, *ids: int) -> Array:
        feed = {"ids": np.array(ids)[:, None]}
        (got,) = self.executor.run(self.net.program, feed, [self.out], self.net.scope)
        return got.numpy()

    @property
    def compiled(self) -> NativeRegion:
        (found,) = self.executor.plan(self.net.program, [self.out]).block(0).work
        assert isinstance(found, Region)
        (only,) = found.specializations.kept.values()
        assert isinstance(only, NativeRegion)
        return only


def while_another_runs(layers: Layers, run: Callable[[], Any]) -> Any:
    """What `run` gives while every frame that there is so far is taken."""
    taken = list(layers.compiled.frames)
    for frame in taken:
        frame.lock.acquire()
    try:
        return run()
    finally:
        for frame in taken:
            frame.lock.release()


def test_runs_one_after_the_other_have_one_frame() -> None:
    layers = Layers()
    for number in range(4):
        layers.run(number, number)
    assert len(layers.compiled.frames) == 1


def test_a_run_beside_another_has_a_frame_of_its_own_and_the_same_bits() -> None:
    layers = Layers()
    want, memory = layers.run(3, 5), layers.compiled.memory
    got = while_another_runs(layers, lambda: layers.run(3, 5))
    np.testing.assert_array_equal(got, want)
    one, other = layers.compiled.frames
    assert not np.shares_memory(one.arena, other.arena) and not np.shares_memory(one.steps, other.steps)
    assert layers.compiled.memory == 2 * memory


def test_a_frame_that_is_free_again_is_used_again() -> None:
    layers = Layers()
    for _ in range(3):
        while_another_runs(layers, lambda: layers.run(1, 2))
        layers.run(1, 2)
    assert len(layers.compiled.frames) == 4  # while all of those that there were are taken


def test_there_are_no_more_frames_than_processors_and_a_run_waits_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region, "processors", lambda: 1)
    layers = Layers()
    want, found = layers.run(3, 5), []
    waiting = threading.Thread(target=lambda: found.append(layers.run(3, 5)))

    def start() -> None:
        waiting.start()
        waiting.join(MOMENT)
        assert waiting.is_alive() and not found

    while_another_runs(layers, start)
    waiting.join()
    np.testing.assert_array_equal(found[0], want)
    assert len(layers.compiled.frames) == 1


def test_an_id_out_of_range_is_a_fault_of_the_run_that_has_it() -> None:
    layers = Layers()
    want = layers.run(3, 5)

    def faulty() -> None:
        with pytest.raises(FluidError, match="9"):
            layers.run(3, 9)

    while_another_runs(layers, faulty)
    np.testing.assert_array_equal(while_another_runs(layers, lambda: layers.run(3, 5)), want)
    np.testing.assert_array_equal(layers.run(3, 5), want)


def test_a_fault_leaves_the_frame_free() -> None:
    layers = Layers()
    with pytest.raises(FluidError, match="9"):
        layers.run(3, 9)
    assert not any(frame.lock.locked() for frame in layers.compiled.frames)


def test_what_comes_from_the_cache_gets_frames_as_well() -> None:
    layers = Layers()
    want = layers.run(3, 5)
    compiled = layers.compiled
    packed = kept.packed_up(compiled, lambda array: "")
    assert packed is not None
    again = kept.unpacked(memoryview(packed), compiled.library, None)
    assert again is not None
    given = {"ids": np.array([[3], [5]])}
    with again.frames[0].lock:
        (got,) = again.run(given).values()
    np.testing.assert_array_equal(got, want)
    assert len(again.frames) == 2


def test_many_threads_get_the_bits_of_one() -> None:
    layers = Layers()
    feeds = [(number % 8, (3 * number) % 8) for number in range(200)]
    want = [layers.run(*ids) for ids in feeds]
    with ThreadPoolExecutor(6) as threads:
        got = list(threads.map(lambda ids: layers.run(*ids), feeds))
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(layers.compiled.frames) <= 5  # two threads may make the last one at the same moment
