"""`Go`, `make_channel`, `channel_send`, `channel_recv`, `channel_close` and `Select` as documented."""

from __future__ import annotations

from typing import Any

import pytest

import fluidtool.fluid as fluid

VarType = fluid.core.VarDesc.VarType


def run(*fetches: Any) -> list[Any]:
    return [value.tolist() for value in fluid.Executor(fluid.CPUPlace()).run(fetch_list=list(fetches))]


def test_the_example_of_make_channel_and_channel_close() -> None:
    ch = fluid.make_channel(dtype="int32", capacity=10)
    with fluid.Go():
        pass
    # Code to execute in a Go block, which receives the channel data.
    status = fluid.channel_send(ch, 100)
    assert fluid.channel_close(ch) is None  # type: ignore[func-returns-value]
    value, received = fluid.channel_recv(ch, "int32")
    _, again = fluid.channel_recv(ch, "int32")
    assert run(status, value, received, again) == [[True], [100], [True], [False]]
    assert value.dtype == VarType.INT32 and status.dtype == VarType.BOOL


def test_the_example_of_channel_recv() -> None:
    ch = fluid.make_channel(dtype="int32", capacity=10)
    done = fluid.make_channel(dtype="int32")
    with fluid.Go():
        returned_value, return_status = fluid.channel_recv(ch, "int32")
        fluid.channel_send(done, returned_value)
    # Code to send data through the channel.
    fluid.channel_send(ch, 7)
    value, _ = fluid.channel_recv(done, "int32")
    assert run(value) == [[7]] and return_status.dtype == VarType.BOOL


def test_channel_recv_into_a_variable_returns_that_variable() -> None:
    ch = fluid.make_channel(dtype=VarType.LOD_TENSOR, capacity=1)
    target = fluid.layers.fill_constant([1], "int64", 0)
    fluid.channel_send(channel=ch, value=fluid.layers.fill_constant([1], "int64", 5))
    value, status = fluid.channel_recv(channel=ch, return_value=target)
    assert value is target
    assert run(value, status) == [[5], [True]]


def test_an_unbuffered_send_waits_for_the_receive() -> None:
    ch = fluid.make_channel("float32")
    with fluid.Go(name="sender"):
        fluid.channel_send(ch, 2.5)
    value, _ = fluid.channel_recv(ch, "float32")
    assert run(value) == [[2.5]]


def test_the_capacity_defaults_to_none() -> None:
    fluid.make_channel("int32")
    assert fluid.default_main_program().global_block().ops[-1].attr("capacity") == 0


def test_a_send_moves_the_value_and_is_copy_copies_it() -> None:
    ch = fluid.make_channel("int32", capacity=2)
    value = fluid.layers.fill_constant([1], "int32", 3)
    fluid.channel_send(ch, value, is_copy=True)
    after_copy = fluid.layers.scale(value, 2.0)
    fluid.channel_send(ch, value, is_copy=False)
    assert run(after_copy) == [[6]]
    fluid.layers.scale(value)
    with pytest.raises(RuntimeError, match=value.name):
        run()


def test_sending_on_a_closed_channel_is_an_error() -> None:
    ch = fluid.make_channel("int32", capacity=1)
    fluid.channel_close(ch)
    fluid.channel_send(ch, 1)
    with pytest.raises(RuntimeError, match="Cannot send on closed channel"):
        run()


@pytest.mark.parametrize("function", ["channel_send", "channel_recv", "channel_close"])
def test_a_channel_is_what_make_channel_makes(function: str) -> None:
    x = fluid.layers.fill_constant([1], "int32", 0)
    arguments = (x,) if function == "channel_close" else (x, x)
    with pytest.raises(TypeError, match="takes a channel from make_channel"):
        getattr(fluid, function)(*arguments)


def test_select_runs_the_case_that_can_happen() -> None:
    ready, quiet = fluid.make_channel("int32", capacity=1), fluid.make_channel("int32")
    result = fluid.layers.fill_constant([1], "int32", 0)
    fluid.channel_send(ready, 9)
    target = fluid.layers.fill_constant([1], "int32", 0)
    other = fluid.layers.fill_constant([1], "int32", 0)
    with fluid.Select(name="choice") as select:
        with select.case(fluid.channel_recv, quiet, other):
            fluid.layers.fill_constant([1], "int32", 1, out=result)
        with select.case(channel_action_fn=fluid.channel_recv, channel=ready, value=target):
            fluid.layers.assign(target, result)
    assert run(result) == [[9]]


def test_select_runs_the_default_when_no_case_can_happen() -> None:
    quiet = fluid.make_channel("int32")
    result = fluid.layers.fill_constant([1], "int32", 0)
    with fluid.Select() as select:
        with select.case(fluid.channel_recv, quiet, fluid.layers.fill_constant([1], "int32", 0)):
            fluid.layers.fill_constant([1], "int32", 1, out=result)
        with select.default():
            fluid.layers.fill_constant([1], "int32", 2, out=result)
    assert run(result) == [[2]]


@pytest.mark.parametrize("is_copy", [False, True])
def test_a_case_that_sends(is_copy: bool) -> None:
    ch = fluid.make_channel("int32", capacity=1)
    value = fluid.layers.fill_constant([1], "int32", 4)
    with fluid.Select() as select:
        with select.case(fluid.channel_send, ch, value, is_copy=is_copy):
            fluid.layers.fill_constant([1], "int32", 0)
        with select.default():
            fluid.layers.fill_constant([1], "int32", 0)
    received, _ = fluid.channel_recv(ch, "int32")
    assert run(received) == [[4]]
    if is_copy:
        assert run(value) == [[4]]


def test_a_body_that_fails_appends_nothing() -> None:
    with pytest.raises(KeyError), fluid.Go():
        raise KeyError
    assert [op.type for op in fluid.default_main_program().global_block().ops] == []
    assert fluid.default_main_program().current_block().idx == 0
