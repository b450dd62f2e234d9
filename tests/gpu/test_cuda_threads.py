"""Threads that share a GPU: one captures or calls a library, while another computes."""

from __future__ import annotations

from threading import Thread
from time import sleep
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.runtime import Executor, Scope
from fluidtool.runtime.engines.cuda.region import Libraries
from fluidtool.runtime.engines.cupy import CupyDevice
from fluidtool.tensor import CUDAPlace
from tests.gpu.standin.devices import CUDARuntimeError, Stream


def in_another_thread(work: Any) -> list[Exception]:
    """What a thread raised that did this work meanwhile."""
    raised: list[Exception] = []

    def guarded() -> None:
        try:
            work()
        except Exception as error:
            raised.append(error)

    thread = Thread(target=guarded)
    thread.start()
    thread.join()
    return raised


def test_the_usual_stream_is_not_to_be_used_while_a_blocking_one_is_captured(cupy: Any) -> None:
    x = cupy.zeros(3)
    with cupy.cuda.Stream() as stream:
        stream.begin_capture()
        (raised,) = in_another_thread(lambda: x + 1)
        elsewhere = in_another_thread(lambda: cupy.cuda.Device(1).use() or cupy.zeros(3) + 1)
        stream.end_capture()
    assert isinstance(raised, CUDARuntimeError) and raised.status == 906 and not elsewhere
    assert not in_another_thread(lambda: x + 1)


def test_a_thread_computes_while_another_captures(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    main = fluid.Program()
    with fluid.program_guard(main), fluid.unique_name.guard():
        y = fluid.layers.softmax(fluid.layers.relu(fluid.layers.data("x", [6])))
    x, begin = cupy.zeros(3), Stream.begin_capture
    raised: list[list[Exception]] = []

    def meanwhile(self: Stream, mode: Any = None) -> None:
        begin(self, mode)
        raised.append(in_another_thread(lambda: x + 1))

    monkeypatch.setattr(Stream, "begin_capture", meanwhile)
    executor, scope = Executor(CUDAPlace(0)), Scope()
    for _ in range(3):
        executor.run(main, {"x": np.ones((2, 6), "float32")}, [y.name], scope)
    assert raised == [[]]


def test_threads_call_a_library_one_at_a_time(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, most = [], []

    def run(call: Any, address: Any) -> None:
        inside.append(call)
        sleep(0.001)
        most.append(len(inside))
        inside.remove(call)

    monkeypatch.setattr(Libraries, "_library", lambda self, call: SimpleNamespace(run=run))
    libraries = Libraries(CupyDevice(0))
    threads = [Thread(target=lambda call=call: [libraries.run(call, int) for _ in range(5)]) for call in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 20
