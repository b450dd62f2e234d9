"""Which numbers of loops the host computes, and in which order the steps of a block run on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fluidtool.fluid as fluid
from fluidtool.fluid import layers as L
from fluidtool.ir import Block, Program
from fluidtool.ops.registry import get_op
from fluidtool.runtime.inner_regions import brought_together, names_elsewhere
from fluidtool.runtime.loop_numbers import loop_numbers
from fluidtool.runtime.step import Step, kernel_attrs


def loop(step: Callable[[Any, Any], Any], limit: Callable[[], Any]) -> tuple[Program, Any, Any, Any]:
    """A loop that counts up to a limit: the program, the counter, the limit and the condition."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        i, n = L.zeros([1], "int64"), limit()
        more = L.less_than(i, n)
        with L.While(more).block():
            step(i, n)
            L.less_than(i, n, cond=more)
    return main, i, n, more


def constant() -> Any:
    return L.fill_constant([1], "int64", 3)


def fed() -> Any:
    return L.data("n", [1], dtype="int64", append_batch_size=False)


# ---------------------------------------------------------------- which
@pytest.mark.parametrize("limit", [constant, fed])
def test_a_counter_its_limit_and_the_condition(limit: Callable[[], Any]) -> None:
    main, *names = loop(lambda i, n: L.increment(i, 1, in_place=True), limit)
    assert loop_numbers(main) == {each.name for each in names}


def test_what_others_compute_is_not_among_them_but_what_is_made_of_it_is() -> None:
    def total() -> Any:
        return L.cast(L.reduce_sum(L.data("x", [4])), "int64")

    main, i, n, more = loop(lambda i, n: L.increment(i, 1, in_place=True), total)
    assert loop_numbers(main) == {i.name, n.name, more.name}


def test_a_counter_that_another_operator_writes_is_not_among_them() -> None:
    main, i, n, more = loop(lambda i, n: L.assign(L.elementwise_mul(i, n), i), constant)
    assert loop_numbers(main) == {i.name, n.name, more.name}
    sums, i, n, more = loop(lambda i, n: L.sums([i, n], out=i), constant)
    assert loop_numbers(sums) == {n.name, more.name}


def test_numbers_that_no_loop_reads_and_those_of_more_elements_are_not() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        L.increment(L.zeros([1], "int64"), 1)
        many = L.data("many", [3], dtype="bool", append_batch_size=False)
        L.logical_not(many)
    assert loop_numbers(main) == set()


def test_a_counter_that_stays_in_the_scope_is_not_among_them() -> None:
    main, i, n, more = loop(lambda i, n: L.increment(i, 1, in_place=True), constant)
    i.persistable = True
    assert loop_numbers(main) == {n.name, more.name}


# ---------------------------------------------------------------- the order
def steps_of(block: Block) -> list[Step]:
    return [Step(op, info := get_op(op.type), kernel_attrs(op, info)) for op in block.ops]


NAMES = "abcde"
OPERATORS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=14)


@settings(deadline=None)
@given(OPERATORS, st.sets(st.integers(0, 13)))
def test_the_order_changes_no_result(operators: list[tuple[str, str, str]], together: set[int]) -> None:
    main = Program()
    block = main.global_block()
    for name in NAMES:
        block.create_var(name=name, shape=(1,), dtype=5)
    for x, y, out in operators:
        block.append_op(type="elementwise_sub", inputs={"X": [x], "Y": [y]}, outputs={"Out": [out]}, attrs={"axis": -1})

    def results(steps: list[Step]) -> dict[str, Any]:
        values: dict[str, Any] = dict(zip(NAMES, NAMES, strict=True))
        for step in steps:
            (x,), (y,), (out,) = step.op.input("X"), step.op.input("Y"), step.op.output("Out")
            values[out] = (values[x], values[y])
        return values

    steps = steps_of(block)
    found = brought_together(block, steps, together)
    assert sorted(map(id, found)) == sorted(map(id, steps))
    assert results(found) == results(steps)


def test_steps_between_others_move_out_of_their_way() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x, i = L.data("x", [4]), L.zeros([1], "int64")
        states = L.array_write(x, i)
        before = L.tanh(L.array_read(states, i))
        L.array_write(before, L.increment(i, 1, in_place=True), array=states)
        L.tanh(before)
    block = main.global_block()
    found = brought_together(block, steps_of(block), {n for n, op in enumerate(block.ops) if op.type == "tanh"})
    assert [step.op.type for step in found] == [
        "fill_constant", "write_to_array", "read_from_array", "increment", "tanh", "tanh", "write_to_array",
    ]  # fmt: skip


def test_what_is_printed_and_drawn_stays_in_order() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        L.gaussian_random([2])
        L.Print(L.data("x", [4]))
        L.uniform_random([2])
    block = main.global_block()
    found = brought_together(block, steps_of(block), {1})
    assert [step.op.type for step in found] == ["gaussian_random", "print", "uniform_random"]


def test_what_deletes_comes_after_all_that_read() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = L.data("x", [4])
        L.tanh(x)
        main.global_block().append_op(type="delete_var", inputs={"X": [x]})
        L.tanh(L.tanh(x))
    block = main.global_block()
    found = brought_together(block, steps_of(block), {0, 2, 3})
    assert [step.op.type for step in found] == ["tanh", "delete_var", "tanh", "tanh"]


def test_names_that_are_read_elsewhere() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        rnn = L.StaticRNN()
        with rnn.step():
            word = rnn.step_input(L.data("x", [3, 2, 4], append_batch_size=False))
            state = rnn.memory(shape=[-1, 4], batch_ref=word)
            within = L.tanh(L.elementwise_add(word, state))
            rnn.update_memory(state, L.tanh(within))
            rnn.output(within)
    (op,) = (op for op in main.global_block().ops if op.type == "recurrent")
    wanted = {
        *op.attr("states"),
        *op.attr("ex_states"),
        *op.output("outputs"),
        *op.input("inputs"),
        *op.input("initial_states"),
    }
    assert wanted.intersection(main.block(1).vars) == names_elsewhere(main.block(1)).intersection(main.block(1).vars)
