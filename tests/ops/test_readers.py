"""Readers and queues, assert, get_places."""

from __future__ import annotations

from threading import Thread
from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from fluidtool.ir import Program
from fluidtool.ops.control_flow.readers import EndOfDataError, TensorQueue
from fluidtool.proto.enums import AttrType, VarType
from fluidtool.runtime import Executor, Scope
from fluidtool.tensor import CPUPlace, LoDTensor
from tests.support.operators import lod_tensor, run_op


class Feeding:
    """A startup program that makes a reader over `queue`, and a program that reads x [-1, 2] float32 and y int64."""

    def __init__(self, throw_eof_exp: bool = True) -> None:
        self.queue, self.scope, self.executor = TensorQueue(2), Scope(), Executor()
        self.scope.var("queue").value = self.queue
        self.startup, self.main = Program(), Program()
        for program in (self.startup, self.main):
            for name in ("reader", "double"):
                program.global_block().create_var(name=name, type=VarType.READER, persistable=True)
        attrs = {
            "shape_concat": [-1, 2, -1],
            "ranks": [2, 1],
            "lod_levels": [1, 0],
            "dtypes": [int(VarType.FP32), int(VarType.INT64)],
            "need_check_feed": [1, 1],
        }
        block = self.startup.global_block()
        block.append_op(
            type="create_py_reader", inputs={"blocking_queue": "queue"}, outputs={"Out": "reader"}, attrs=attrs
        )
        block.append_op(
            type="create_double_buffer_reader", inputs={"UnderlyingReader": "reader"}, outputs={"Out": "double"}
        )
        for name in ("x", "y"):
            self.main.global_block().create_var(name=name)
        read = self.main.global_block().append_op(
            type="read", inputs={"Reader": "double"}, outputs={"Out": ["x", "y"]}, attrs={}
        )
        read.set_attr("throw_eof_exp", throw_eof_exp, AttrType.BOOLEAN)
        self.executor.run(self.startup, {}, [], self.scope)

    def read(self) -> list[Any]:
        return self.executor.run(self.main, {}, ["x", "y"], self.scope)


def batch(rows: int) -> list[LoDTensor]:
    return [lod_tensor(np.full((rows, 2), rows, np.float32), [[rows]]), LoDTensor(np.arange(rows))]


def test_read_takes_the_batches_in_order_with_their_lod() -> None:
    feeding = Feeding()

    def produce() -> None:
        for rows in (1, 2, 3):
            feeding.queue.push(batch(rows))
        feeding.queue.close()

    thread = Thread(target=produce)
    thread.start()
    for rows in (1, 2, 3):
        x, y = feeding.read()
        assert x.numpy().tolist() == [[rows, rows]] * rows and x.lod() == [[0, rows]]
        assert y.numpy().tolist() == list(range(rows))
    thread.join()


def test_the_end_of_the_data_is_an_error_of_its_own() -> None:
    feeding = Feeding()
    feeding.queue.close()
    with pytest.raises(EndOfDataError, match="operator read: there is no next batch"):
        feeding.read()
    feeding.queue.reopen()
    feeding.queue.push(batch(1))
    assert feeding.read()[1].numpy().tolist() == [0]


def test_the_end_of_the_data_may_be_empty_tensors() -> None:
    feeding = Feeding(throw_eof_exp=False)
    feeding.queue.close()
    feeding.executor.run(feeding.main, {}, [], feeding.scope)


def test_a_closed_queue_takes_nothing_but_gives_what_it_has() -> None:
    queue = TensorQueue(3)
    assert queue.push(batch(1)) and queue.size() == 1
    queue.close()
    assert not queue.push(batch(2))
    assert queue.pop() is not None and queue.pop() is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (batch(1)[:1], "a batch must have 2 tensors"),
        (
            [LoDTensor(np.ones((1, 3), np.float32)), LoDTensor(np.arange(1))],
            r"does not fit x: expected shape \(-1, 2\)",
        ),
        ([batch(1)[0], LoDTensor(np.ones(1, np.float32))], r"does not fit y: .* found \(1,\) and float32"),
        ([LoDTensor(), LoDTensor(np.arange(1))], "the batch holds no value for x"),
    ],
)
def test_a_batch_that_does_not_fit_is_named(wrong: list[LoDTensor], message: str) -> None:
    feeding = Feeding()
    feeding.queue.push(wrong)
    with pytest.raises(OperatorError, match=f"operator read: .*{message}"):
        feeding.read()


def test_a_reader_needs_a_queue() -> None:
    feeding = Feeding()
    feeding.scope.var("queue").value = LoDTensor(np.ones(1))
    with pytest.raises(OperatorError, match="blocking_queue must hold a queue, found LoDTensor"):
        feeding.executor.run(feeding.startup, {}, [], feeding.scope)


def test_assert_shows_the_data_when_the_condition_does_not_hold() -> None:
    run_op("assert", {"Cond": np.array([True]), "Data": [np.arange(4)]})
    with pytest.raises(OperatorError, match=r"assert: the condition Cond0 is false: Data0 \(4,\) = \[0, 1, …\]"):
        run_op("assert", {"Cond": np.array([False]), "Data": [np.arange(4)]}, {"summarize": 2})


def test_get_places_lists_places_of_the_run() -> None:
    assert run_op("get_places", {}, {"device_count": 2})["Out"] == [CPUPlace(), CPUPlace()]
    with pytest.raises(OperatorError, match="device_type is CUDA, but this run is on CPUPlace"):
        run_op("get_places", {}, {"device_type": "CUDA"})
