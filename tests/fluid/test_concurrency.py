"""Go, channels and Select: the programs of Fluid 0.14's own tests, the rules of channels, deadlocks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import ArgumentTypeError, OperatorError, ProgramError, UsageError
from fluidtool.fluid.concurrency import Go, Select, channel_close, channel_recv, channel_send, make_channel
from fluidtool.fluid.layers.control_flow.while_loop import While
from fluidtool.ir import unique_name
from fluidtool.ir.dataflow import operator_effects
from fluidtool.ops.concurrency.goroutines import DeadlockError
from fluidtool.proto.enums import VarType

TENSOR = VarType.LOD_TENSOR


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()), unique_name.guard():
        yield


def run(*fetches: Any) -> list[Any]:
    return fluid.Executor(fluid.CPUPlace()).run(fluid.default_main_program(), fetch_list=list(fetches))


def constant(value: float, dtype: str = "int32", **options: Any) -> Any:
    return fluid.layers.fill_constant(shape=[1], dtype=dtype, value=value, **options)


def tensor(name: str, dtype: str = "int32", persistable: bool = False) -> Any:
    block = fluid.default_main_program().current_block()
    return block.create_var(name=name, type=TENSOR, dtype=dtype, shape=[1], persistable=persistable)


def persistent(name: str, value: float, dtype: str = "int32") -> Any:
    return constant(value, dtype, out=tensor(name, dtype, persistable=True))


def operators() -> list[str]:
    return [op.type for op in fluid.default_main_program().global_block().ops]


# ---------------------------------------------------------------- the reference programs
def test_a_go_block_sends_and_the_program_receives() -> None:
    channel = make_channel(TENSOR)
    result = tensor("result")
    with Go():
        channel_send(channel, constant(1234))
    channel_recv(channel, result)
    channel_close(channel)
    assert run(result)[0].tolist() == [1234]


def test_a_daisy_chain_of_a_hundred_go_blocks_adds_a_hundred() -> None:
    leftmost = left = right = make_channel(TENSOR)
    for index in range(100):
        right = make_channel(TENSOR)
        with Go():
            one = constant(1)
            received, _ = channel_recv(right, tensor(f"received_{index}"))
            channel_send(left, fluid.layers.elementwise_add(one, received))
        left = right
    with Go():
        channel_send(right, constant(1))
    result, _ = channel_recv(leftmost, tensor("result"))
    assert run(result)[0].tolist() == [101]


def test_select_sends_into_a_buffer_with_room() -> None:
    channel = make_channel(TENSOR, capacity=1)
    ten = constant(10)
    with Select() as select:
        with select.case(channel_send, channel, ten):
            constant(0)
        with select.default():
            constant(0)
    result, _ = channel_recv(channel, tensor("result"))
    channel_close(channel)
    assert run(result)[0].tolist() == [10]


def test_select_drives_fibonacci_numbers() -> None:
    result, quits = persistent("result", 0), persistent("quits", 0)
    x, y, saved = constant(0), constant(1), constant(0)
    condition = constant(True, "bool")
    no = constant(False, "bool")
    numbers, quit_channel = make_channel(TENSOR), make_channel(TENSOR)
    with Go():
        for _ in range(10):
            channel_recv(numbers, result)
        channel_send(quit_channel, quits)
    with While(cond=condition).block():
        ignored = constant(0)
        with Select() as select:
            with select.case(channel_send, numbers, x, is_copy=True):
                fluid.layers.assign(x, saved)
                fluid.layers.assign(y, x)
                fluid.layers.assign(fluid.layers.elementwise_add(saved, y), y)
            with select.case(channel_recv, quit_channel, ignored):
                fluid.layers.assign(no, condition)
    assert run(result)[0].tolist() == [34]


def test_ping_pong_counts_to_nine() -> None:
    """A go block and the program add 1 in turn, four times each, over two buffered channels; the program once more."""
    ping, pong = make_channel(TENSOR, capacity=1), make_channel(TENSOR, capacity=1)
    count = constant(0)
    one = constant(1)
    with Go():
        for index in range(4):
            received, _ = channel_recv(ping, tensor(f"ping_{index}"))
            channel_send(pong, fluid.layers.elementwise_add(received, constant(1)), is_copy=True)
    for _ in range(4):
        channel_send(ping, count, is_copy=True)
        channel_recv(pong, count)
        fluid.layers.assign(fluid.layers.elementwise_add(count, one), count)
    result = fluid.layers.elementwise_add(count, one)
    assert run(result)[0].tolist() == [9]


# ---------------------------------------------------------------- data types as strings
def test_numbers_are_sent_in_the_channels_data_type() -> None:
    channel = make_channel(dtype="int32", capacity=10)
    sent = channel_send(channel, 100)
    received, status = channel_recv(channel, "int32")
    values = run(sent, received, status)
    assert [(value.dtype.name, value.tolist()) for value in values] == [
        ("bool", [True]),
        ("int32", [100]),
        ("bool", [True]),
    ]


def test_a_go_block_receives_what_the_program_sends() -> None:
    channel, back = make_channel(dtype="float32", capacity=1), make_channel(dtype="float32")
    with Go():
        received, _ = channel_recv(channel, "float32")
        channel_send(back, received)
    channel_send(channel, 2.5)
    assert run(channel_recv(back, "float32")[0])[0].tolist() == [2.5]


@pytest.mark.parametrize("dtype", [TENSOR, np.int64, "int64", VarType.INT64])
def test_channels_take_every_form_of_a_type(dtype: Any) -> None:
    channel = make_channel(dtype, capacity=1)
    channel_send(channel, 7)
    assert run(channel_recv(channel, "int64")[0])[0].dtype == np.int64


# ---------------------------------------------------------------- what is built
def test_the_operators_that_channels_append() -> None:
    channel = make_channel("int32", capacity=3)
    channel_send(channel, constant(1), is_copy=True)
    channel_recv(channel, "int32")
    channel_close(channel)
    assert operators() == [
        "channel_create", "fill_constant", "assign", "channel_send", "channel_recv", "channel_close",
    ]  # fmt: skip
    create = fluid.default_main_program().global_block().ops[0]
    assert (create.attr("data_type"), create.attr("capacity")) == (VarType.INT32, 3)
    assert (channel.name, channel.type, channel.persistable) == ("channel_0", VarType.CHANNEL, True)


def test_the_select_operator_lists_its_cases() -> None:
    channel, other, value = make_channel(TENSOR), make_channel(TENSOR), constant(1)
    with Select() as select:
        with select.case(channel_send, channel, value):
            constant(0)
        with select.case(channel_recv, other, value):
            constant(0)
        with select.default():
            constant(0)
    op = fluid.default_main_program().global_block().ops[-1]
    assert op.type == "select"
    assert op.attr("cases") == [f"0,1,channel_0,{value.name}", f"1,2,channel_1,{value.name}", "2,0,,"]
    inside = fluid.default_main_program().block(op.sub_blocks()[0])
    assert [inner.type for inner in inside.ops] == ["fill_constant", "equal", "conditional_block"] * 3


def test_a_program_with_channels_survives_being_saved() -> None:
    channel = make_channel(TENSOR)
    with Go():
        channel_send(channel, constant(5))
    channel_recv(channel, tensor("result"))
    program = fluid.Program.parse_from_string(fluid.default_main_program().serialize_to_string())
    assert fluid.Executor(fluid.CPUPlace()).run(program, fetch_list=["result"])[0].tolist() == [5]


def test_a_body_that_fails_appends_no_go() -> None:
    with pytest.raises(KeyError), Go():
        raise KeyError("body")
    assert operators() == []
    assert fluid.default_main_program().current_block().idx == 0


# ---------------------------------------------------------------- the rules of channels
def test_what_was_sent_is_empty_afterwards() -> None:
    channel, value = make_channel(TENSOR, capacity=2), constant(1)
    channel_send(channel, value)
    channel_send(channel, value)
    with pytest.raises(OperatorError, match="holds no value to send"):
        run()


def test_a_copy_leaves_the_sender_its_value() -> None:
    channel, value = make_channel(TENSOR, capacity=1), constant(3)
    channel_send(channel, value, is_copy=True)
    assert run(value)[0].tolist() == [3]


def test_values_come_out_in_the_order_in_which_they_went_in() -> None:
    channel = make_channel("int32", capacity=3)
    for number in (1, 2, 3):
        channel_send(channel, number)
    received = [channel_recv(channel, "int32")[0] for _ in range(3)]
    assert [value.tolist() for value in run(*received)] == [[1], [2], [3]]


def test_a_closed_channel_gives_what_it_holds_and_then_nothing() -> None:
    channel = make_channel("int32", capacity=1)
    channel_send(channel, 1)
    channel_close(channel)
    channel_close(channel)
    kept = constant(42)
    _, first = channel_recv(channel, "int32")
    _, second = channel_recv(channel, kept)
    assert [value.tolist() for value in run(first, second, kept)] == [[True], [False], [42]]


def test_closing_wakes_a_waiting_receiver() -> None:
    channel, done = make_channel("int32"), make_channel("bool")
    with Go():
        _, status = channel_recv(channel, "int32")
        channel_send(done, status)
    channel_close(channel)
    assert run(channel_recv(done, "bool")[0])[0].tolist() == [False]


def test_sending_on_a_closed_channel_is_refused() -> None:
    channel = make_channel("int32", capacity=1)
    channel_close(channel)
    channel_send(channel, 1)
    with pytest.raises(OperatorError, match="Cannot send on closed channel channel_0"):
        run()


def test_a_select_that_sends_on_a_closed_channel_is_refused() -> None:
    channel = make_channel("int32", capacity=1)
    channel_close(channel)
    with Select() as select:
        with select.case(channel_send, channel, 1):
            constant(0)
        with select.default():
            constant(0)
    with pytest.raises(OperatorError, match="Cannot send on closed channel channel_0"):
        run()


def test_a_channel_of_other_containers_refuses_tensors() -> None:
    channel = make_channel(VarType.SELECTED_ROWS, capacity=1)
    channel_send(channel, constant(1))
    with pytest.raises(OperatorError, match="Channel type is not same as the type of the data being sent"):
        run()


def test_a_select_without_ready_cases_takes_the_default() -> None:
    channel, result = make_channel("int32"), constant(0)
    five = constant(5)
    with Select() as select:
        with select.case(channel_recv, channel, "int32"):
            constant(0)
        with select.default():
            fluid.layers.assign(five, result)
    assert run(result)[0].tolist() == [5]


# ---------------------------------------------------------------- failures in other threads
def test_an_error_in_a_go_block_reaches_the_program() -> None:
    channel, nothing = make_channel("int32"), tensor("nothing", persistable=True)
    with Go():
        channel_send(channel, nothing)
    channel_recv(channel, "int32")
    with pytest.raises(OperatorError, match="nothing holds no value to send"):
        run()


def test_a_go_block_must_not_read_variables_of_the_run() -> None:
    channel, local = make_channel("int32"), constant(1)
    with Go():
        channel_send(channel, local)
    channel_recv(channel, "int32")
    with pytest.raises(OperatorError, match="should be created in the global scope"):
        run()


def test_a_go_block_may_sleep_on_after_the_run() -> None:
    channel = make_channel("int32")
    with Go():
        channel_recv(channel, "int32")
    assert run(constant(1))[0].tolist() == [1]


# ---------------------------------------------------------------- deadlocks
def test_a_send_that_nobody_receives_is_a_deadlock() -> None:
    channel_send(make_channel("int32"), 1)
    with pytest.raises(DeadlockError, match="the program waits in channel_send in block 0 on channel_0"):
        run()


def test_a_receive_that_nobody_sends_is_a_deadlock() -> None:
    channel_recv(make_channel("int32"), "int32")
    with pytest.raises(DeadlockError, match="the program waits in channel_recv in block 0 on channel_0"):
        run()


def test_a_select_over_closed_channels_is_a_deadlock() -> None:
    channel = make_channel("int32")
    channel_close(channel)
    with Select() as select, select.case(channel_recv, channel, "int32"):
        constant(0)
    with pytest.raises(DeadlockError, match="the program waits in select in block 0 on channel_0"):
        run()


def test_a_deadlock_names_all_that_wait_and_ends_them() -> None:
    first, second = make_channel("int32"), make_channel("int32")
    with Go():
        channel_recv(first, "int32")
        channel_send(second, 1)
    channel_recv(second, "int32")
    before = set(threading.enumerate())
    with pytest.raises(DeadlockError) as caught:
        run()
    assert "the program waits in channel_recv in block 0 on channel_1" in str(caught.value)
    assert "a goroutine waits in channel_recv in block 1 on channel_0" in str(caught.value)
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=5)
        assert not thread.is_alive()


# ---------------------------------------------------------------- what building refuses
def test_a_channel_has_no_negative_capacity() -> None:
    with pytest.raises(UsageError, match="at least 0, found -1"):
        make_channel(TENSOR, capacity=-1)


def test_a_channel_carries_no_fetch_lists() -> None:
    with pytest.raises(UsageError, match="cannot carry FETCH_LIST"):
        make_channel(VarType.FETCH_LIST)


def test_a_channel_of_no_known_type_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="is not a data type"):
        make_channel("number")


@pytest.mark.parametrize("use", [lambda v: channel_send(v, 1), lambda v: channel_recv(v, "int32"), channel_close])
def test_a_tensor_is_no_channel(use: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="takes a channel"):
        use(constant(1))


def test_only_variables_and_numbers_are_sent() -> None:
    with pytest.raises(ArgumentTypeError, match="sends Variables and numbers, found str"):
        channel_send(make_channel(TENSOR), "text")


def test_a_case_needs_a_send_or_a_receive() -> None:
    channel = make_channel("int32")
    refused = pytest.raises(UsageError, match="takes channel_send or channel_recv")
    with Select() as select, refused, select.case(channel_close, channel, 1):
        constant(0)


def test_a_case_belongs_into_its_select() -> None:
    channel, select = make_channel("int32"), Select()
    with pytest.raises(UsageError, match="must be in the `with` block"), select.case(channel_send, channel, 1):
        constant(0)


def test_a_select_has_one_default() -> None:
    with Select() as select:
        with select.default():
            constant(0)
        with pytest.raises(UsageError, match="only contain one default"), select.default():
            constant(0)


def test_a_go_block_reads_only_what_is_declared_around_it() -> None:
    with pytest.raises(ProgramError, match="inside"), Go():
        channel_send(make_channel("int32"), tensor("inside"))


# ---------------------------------------------------------------- errors of go blocks
def wait_for_go_blocks() -> None:
    """Append an operator that waits until the go blocks started from now on have ended."""
    before = set(threading.enumerate())

    def wait() -> None:
        for thread in set(threading.enumerate()) - before:
            thread.join(timeout=10)

    fluid.layers.py_func(wait, x=None, out=None)


def test_an_error_in_a_go_block_is_raised_at_the_end_of_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    """The program touches no channel after it: it waits, so that the go block has failed before the run ends."""
    channel = make_channel(TENSOR, capacity=1)
    channel_close(channel)
    with Go():
        channel_send(channel, constant(1))
    wait_for_go_blocks()
    with pytest.raises(OperatorError, match="Cannot send on closed channel"):
        run()
    assert "the go block 1 failed" in capsys.readouterr().err


def test_an_error_in_a_go_block_is_raised_once() -> None:
    channel = make_channel(TENSOR, capacity=1)
    channel_close(channel)
    with Go():
        channel_send(channel, constant(1))
    wait_for_go_blocks()
    with pytest.raises(OperatorError):
        run()
    other = fluid.Program()
    with fluid.program_guard(other):
        seven = constant(7)
    assert fluid.Executor(fluid.CPUPlace()).run(other, fetch_list=[seven])[0].tolist() == [7]


# ---------------------------------------------------------------- select of 0.14: names in `cases` alone
def select_of_0_14() -> tuple[Any, Any]:
    """A program whose select names what it sends and receives in its attribute only; (the operator, what is received)."""
    sends, receives = make_channel(TENSOR, capacity=1), make_channel(TENSOR, capacity=1)
    sent, received = constant(3), tensor("received", persistable=False)
    channel_send(receives, constant(4))
    with Select() as select:
        with select.case(channel_recv, receives, received):
            constant(0)
        with select.case(channel_send, sends, sent):
            constant(0)
    (op,) = [op for op in fluid.default_main_program().global_block().ops if op.type == "select"]
    op.set_input("X", [])
    op.set_output("Out", [])
    return op, received


def test_dataflow_knows_the_names_in_the_cases() -> None:
    op, received = select_of_0_14()
    effects = operator_effects(fluid.default_main_program(), op)
    channels = {"channel_0", "channel_1"}
    assert effects.reads >= channels | {"fill_constant_0.tmp_0"}
    assert effects.writes >= {"fill_constant_0.tmp_0", received.name} and not effects.writes & channels


def test_what_the_cases_receive_can_be_fetched() -> None:
    channel, received = make_channel(TENSOR, capacity=1), persistent("received", 0)
    channel_send(channel, constant(4))
    with Select() as select, select.case(channel_recv, channel, received):
        constant(0)
    (op,) = [op for op in fluid.default_main_program().global_block().ops if op.type == "select"]
    op.set_input("X", [])
    op.set_output("Out", [])
    assert run(received)[0].tolist() == [4]


def test_what_the_cases_send_is_kept_until_then() -> None:
    """The value is computed before the select and named by nothing else."""
    channel = make_channel(TENSOR, capacity=1)
    value = constant(5)
    with Select() as select, select.case(channel_send, channel, value):
        constant(0)
    (op,) = [op for op in fluid.default_main_program().global_block().ops if op.type == "select"]
    op.set_input("X", [])
    op.set_output("Out", [])
    result, _ = channel_recv(channel, tensor("result"))
    assert run(result)[0].tolist() == [5]


def test_pruning_keeps_what_the_cases_name() -> None:
    op, received = select_of_0_14()
    pruned = fluid.default_main_program().prune([op])
    assert {"channel_0", "channel_1", "fill_constant_0.tmp_0", received.name} <= set(pruned.global_block().vars)
    assert [op.type for op in pruned.global_block().ops].count("fill_constant") == 2  # what is sent, and the case
