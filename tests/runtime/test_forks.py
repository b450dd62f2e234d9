"""Children of a fork compute what their parent computes, whatever the parent's threads were doing at that moment.

But for products of large matrices by numpy: OpenBLAS itself can hang in a fork that happens while another thread multiplies.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool
from fluidtool.distribute.rpc.client import Client
from fluidtool.model import Model
from fluidtool.profiling.recorder import Recorder
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor, Scope
from fluidtool.runtime.partition import Region
from fluidtool.runtime.profile import Profile
from fluidtool.runtime.remote import Connections
from tests.runtime.native.checking import Net

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
needs_native = pytest.mark.usefixtures("native")

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
PATIENCE = 30  # seconds that a child may take before it counts as hanging


def in_child(work: Callable[[], bool]) -> bool:
    """Whether `work` says yes in the child of a fork; a child that hangs is ended, and says no."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(PATIENCE)
            code = 0 if work() else 3
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


@contextmanager
def busy(*work: Callable[[], Any]) -> Iterator[None]:
    """Threads that do their work again and again, each at least once before the body."""
    stop, begun = threading.Event(), threading.Barrier(len(work) + 1)

    def run(one: Callable[[], Any]) -> None:
        one()
        begun.wait()
        while not stop.is_set():
            one()

    threads = [threading.Thread(target=run, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    begun.wait()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def feed_of(model: Model, rows: int = 50) -> dict[str, Any]:
    block = model.program.global_block()
    shapes = {name: [rows if size < 0 else size for size in block.vars[name].shape] for name in model.feeds}
    return {name: np.random.default_rng(0).random(shape, np.float32) for name, shape in shapes.items()}


def digits() -> tuple[Model, Callable[[], Any]]:
    """A model, and a run of it."""
    model = fluidtool.load(SAMPLES / "digits", engine="native")
    feed = feed_of(model)
    return model, lambda: np.asarray(next(iter(model.run(feed).values())))


def scaling() -> Callable[[], Any]:
    """A run of a program of single operators on numpy."""
    net = Net()
    value = net.data(50, 40)
    for _ in range(20):
        value = net.op("scale", "Out", {"X": value}, scale=1.5, bias=0.5, bias_after_scale=True)
    executor = Executor(engine="numpy")

    def run() -> Any:
        return executor.run(net.program, net.feeds, [value], net.scope)[0].numpy()

    return run


@needs_native
def test_a_child_runs_what_threads_of_its_parent_run() -> None:
    compare_in_children(digits()[1])


def test_a_child_runs_on_numpy_what_threads_of_its_parent_run() -> None:
    compare_in_children(scaling())


def compare_in_children(run: Callable[[], Any]) -> None:
    """Children of a process whose threads run a model run it to the same bits."""
    run()
    want = run()
    with busy(run, run, run):
        for _ in range(20):
            assert in_child(lambda: np.array_equal(run(), want))


@needs_native
def test_a_child_runs_several_models_that_its_parent_runs() -> None:
    runs = [digits()[1], scaling(), digits()[1]]
    wants = [[run(), run()][-1] for run in runs]
    with busy(*runs):
        for _ in range(10):
            assert in_child(lambda: all(np.array_equal(run(), want) for run, want in zip(runs, wants, strict=True)))


@needs_native
def test_a_child_has_threads_that_run_the_model() -> None:
    _, run = digits()
    want = [run(), run()][-1]
    found: list[bool] = []

    def work() -> bool:
        threads = [threading.Thread(target=lambda: found.append(np.array_equal(run(), want))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found == [True] * 4

    with busy(run, run):
        assert all(in_child(work) for _ in range(10))


@needs_native
def test_a_child_of_a_child_runs_the_model() -> None:
    _, run = digits()
    want = [run(), run()][-1]

    def work() -> bool:
        with busy(run):
            return in_child(lambda: np.array_equal(run(), want))

    with busy(run, run):
        assert in_child(work)


@needs_native
def test_a_child_loads_a_model_of_its_own() -> None:
    _, run = digits()
    want = [run(), run()][-1]
    with busy(run, run):
        assert in_child(lambda: np.array_equal([(own := digits()[1])(), own()][-1], want))


@needs_native
def test_a_child_goes_on_where_a_thread_was_making_the_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    model, run = digits()
    want = digits()[1]()
    holding, go_on = threading.Event(), threading.Event()
    put, caller = Scope.hold, threading.get_ident()

    def slow(self: Scope, variable: Any) -> None:
        put(self, variable)
        if threading.get_ident() != caller:
            holding.set()
            go_on.wait()

    monkeypatch.setattr(Scope, "hold", slow)
    filling = threading.Thread(target=lambda: model.executor)
    filling.start()
    holding.wait()
    try:
        assert in_child(lambda: np.allclose(run(), want, rtol=0, atol=1e-6))
    finally:
        go_on.set()
        filling.join()


@needs_native
def test_a_child_goes_on_where_a_thread_was_compiling_for_other_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()
    out = net.op("mul", "Out", {"X": net.data(3, 8), "Y": net.parameter(8, 4)})
    executor = Executor(engine="native")

    def run() -> Any:
        return executor.run(net.program, net.feeds, [out], net.scope)[0].numpy()

    run()
    (region,) = executor.plan(net.program, [out]).block(0).work
    assert isinstance(region, Region)
    weights = net.scope.find_var("parameter1")
    assert weights is not None
    weights.value = type(weights.value)(weights.value.array * 2)
    want = net.run("numpy", out)[0]
    compiling, go_on = threading.Event(), threading.Event()
    assert executor.engine is not None
    compile, caller = type(executor.engine).compile, threading.get_ident()

    def slow(*arguments: Any) -> Any:
        if threading.get_ident() != caller:
            compiling.set()
            go_on.wait()
        return compile(*arguments)

    monkeypatch.setattr(type(executor.engine), "compile", slow)
    thread = threading.Thread(target=run)
    thread.start()
    compiling.wait()
    try:
        assert region.specializations.lock.locked()
        assert in_child(lambda: np.allclose(run(), want, rtol=0, atol=1e-5))
    finally:
        go_on.set()
        thread.join()


@needs_native
def test_the_mark_of_a_run_that_was_broken_off_is_not_taken_for_a_fault() -> None:
    net = Net()
    net.program.global_block().create_var(name="ids", shape=[3, 1], dtype=VarType.INT64)
    net.feeds["ids"] = np.array([[0], [2], [1]])
    rows = net.op("lookup_table", "Out", {"W": net.parameter(4, 8), "Ids": "ids"}, padding_idx=-1)
    out = net.op("mul", "Out", {"X": rows, "Y": net.parameter(8, 2)})
    executor = Executor(engine="native")
    (want,) = executor.run(net.program, net.feeds, [out], net.scope)
    (region,) = executor.plan(net.program, [out]).block(0).work
    (specialization,) = region.specializations.kept.values()  # type: ignore[union-attr]
    for place in specialization.tables:  # type: ignore[union-attr]
        specialization.frames[0].steps[place] = 1  # type: ignore[union-attr]
    (got,) = executor.run(net.program, net.feeds, [out], net.scope)
    np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_a_child_profiles_while_its_parent_profiles() -> None:
    for observer in (Profile(), Recorder({})):
        lock = observer._lock
        taken, free = threading.Event(), threading.Event()

        def hold() -> None:
            with lock:  # noqa: B023
                taken.set()  # noqa: B023
                free.wait()  # noqa: B023

        thread = threading.Thread(target=hold)
        thread.start()
        taken.wait()
        try:
            assert in_child(lambda: lock.acquire(blocking=False))  # noqa: B023
        finally:
            free.set()
            thread.join()


def test_connections_of_the_parent_are_not_those_of_the_child() -> None:
    """A child that ends says nothing to the servers of its parent, and waits for none."""
    connections = Connections()
    mine: Any = object.__new__(Client)
    mine._transport = None
    connections._clients["server", 0] = mine
    connections.leave_to_parent()
    assert connections.open({("server", 0)}) == [] and connections.trainers() == set()
    connections.drain()


# ---------------------------------------------------------------- processes by multiprocessing
def spawned(path: str, results: Any) -> None:
    """In a process of its own: run the model once."""
    model = fluidtool.load(path, engine="native")
    results.put(np.asarray(next(iter(model.run(feed_of(model)).values()))))


@needs_native
@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_processes_of_every_kind_run_a_model_beside_threads(method: str) -> None:
    _, run = digits()
    want = [run(), run()][-1]
    context: Any = multiprocessing.get_context(method)
    results = context.Queue()
    with busy(run, run):
        processes = [context.Process(target=spawned, args=(str(SAMPLES / "digits"), results))]
        for process in processes:
            process.start()
        for _ in processes:
            np.testing.assert_allclose(results.get(timeout=PATIENCE), want, rtol=0, atol=1e-6)
        for process in processes:
            process.join(PATIENCE)
            assert process.exitcode == 0


@needs_native
def test_threads_that_start_before_between_and_after_forks_all_compute() -> None:
    _, run = digits()
    want = [run(), run()][-1]

    def thread() -> bool:
        found: list[bool] = []
        one = threading.Thread(target=lambda: found.append(np.array_equal(run(), want)))
        one.start()
        one.join()
        return found == [True]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for order in ("tft", "ftf", "fft", "ttf"):
            assert all(thread() if kind == "t" else in_child(thread) for kind in order)
    finally:
        sys.setswitchinterval(interval)
