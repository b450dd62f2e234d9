"""Loops that the native engine runs in one call leave what their operators leave, run one by one by numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from fluidtool import fluid
from fluidtool.errors import OperatorError
from fluidtool.ir import Program
from fluidtool.ir.operator import hooks
from fluidtool.runtime import Executor, Scope
from fluidtool.runtime.engines.native.loops import running
from fluidtool.runtime.engines.native.loops.values import Memory, NoFormError, read_tensor, write_tensor
from fluidtool.tensor import LoDTensor, SelectedRows

L = fluid.layers
WIDTH, WORDS = 5, 11
READ, WRITTEN = [3, 1, 4], [2, 4, 3]
Ran = list[bool]
NextState = Callable[[Any, Any, Any, Any], Any]
RNG = np.random.default_rng(8)


@pytest.fixture(autouse=True)
def operators_as_given() -> None:
    """Unlike the other tests here, these build programs with `fluidtool.fluid`."""
    assert hooks.prepare is not None


@pytest.fixture
def ran(native: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ran]:
    """For each run of a compiled loop whether it was run in one call."""
    found: Ran = []
    run = running.NativeLoop.run

    def watched(self: running.NativeLoop, *arguments: Any) -> Any:
        result = run(self, *arguments)
        found.append(result is not None)
        return result

    monkeypatch.setattr(running.NativeLoop, "run", watched)
    yield found


def sequences(array: Any, lengths: list[int]) -> LoDTensor:
    found = LoDTensor()
    found.set(array)
    found.set_recursive_sequence_lengths([lengths])
    return found


def feeds() -> dict[str, Any]:
    return {
        "source": sequences(RNG.normal(size=(sum(READ), WIDTH)).astype("float32"), READ),
        "target": sequences(RNG.normal(size=(sum(WRITTEN), WIDTH)).astype("float32"), WRITTEN),
        "start": RNG.normal(size=(3, WIDTH)).astype("float32"),
    }


def decoded(source: Any, target: Any, start: Any, next_state: NextState) -> Any:
    """What a DynamicRNN gives whose steps get a row of `target`, all of `source`, the state; `next_state` gives the next state."""
    rnn = L.DynamicRNN()
    with rnn.block():
        word, seen = rnn.step_input(target), rnn.static_input(source)
        state = rnn.memory(init=start, need_reorder=True)
        after = next_state(rnn, word, seen, state)
        rnn.update_memory(state, after)
        rnn.output(after)
    return rnn()


def decoder(next_state: NextState) -> tuple[Program, Program, Any]:
    """Programs of such a DynamicRNN, and its loss."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        source = L.data("source", [WIDTH], lod_level=1)
        target = L.data("target", [WIDTH], lod_level=1)
        start = L.data("start", [WIDTH])
        start.stop_gradient = source.stop_gradient = target.stop_gradient = False
        outputs = decoded(source, target, start, next_state)
        loss = L.mean(L.square(outputs))
        fluid.backward.append_backward(loss)
    return main, startup, loss


def results(engine: str, program: tuple[Program, Program, Any], feed: dict[str, Any], names: list[str]) -> list[Any]:
    """What a run leaves of the names, with the parameters that numpy draws."""
    main, startup, _ = program
    scope = Scope()
    Executor(engine="numpy", seed=3).run(startup, {}, [], scope)
    return Executor(engine=engine, seed=3).run(main, feed, names, scope)


def gradients(main: Program) -> list[str]:
    """The gradients of parameters and of what is fed."""
    block = main.global_block()
    wanted = [name for name, var in block.vars.items() if var.persistable or name in ("source", "target", "start")]
    return [f"{name}@GRAD" for name in wanted if f"{name}@GRAD" in block.vars]


def check_decoder(next_state: NextState, ran: Ran) -> None:
    program = decoder(next_state)
    names, feed = [program[2].name, *gradients(program[0])], feeds()
    assert len(names) > 2
    expected, found = (results(engine, program, feed, names) for engine in ("numpy", "native"))
    assert ran == [True, True]
    for name, one, other in zip(names, expected, found, strict=True):
        scale = max(1e-3, float(np.abs(one.array).max()))
        assert one.offsets == other.offsets, name
        np.testing.assert_allclose(other.array, one.array, rtol=2e-4, atol=2e-6 * scale, err_msg=name)


def project(x: Any, size: int = WIDTH) -> Any:
    return L.fc(x, size, bias_attr=False)


def attention(rnn: Any, word: Any, seen: Any, state: Any) -> Any:
    """Scores by a product of one column, weights by sequence, the sum of the rows."""
    query = L.sequence_expand(project(state), seen)
    scores = project(L.tanh(L.elementwise_add(seen, query)), 1)
    weights = L.reshape(L.sequence_softmax(scores), [-1])
    context = L.sequence_pool(L.elementwise_mul(seen, weights, axis=0), "sum")
    return L.gru_unit(L.fc([context, word], 3 * WIDTH, bias_attr=False), state, 3 * WIDTH)[0]


def pooled(how: str) -> NextState:
    return lambda rnn, word, seen, state: L.tanh(L.elementwise_add(project(state), L.sequence_pool(seen, how)))


def cell(**attrs: Any) -> NextState:
    return lambda rnn, word, seen, state: L.gru_unit(project(word, 3 * WIDTH), state, 3 * WIDTH, **attrs)[0]


NEXT_STATES: dict[str, NextState] = {
    "attention": attention,
    "relu": lambda rnn, word, seen, state: L.elementwise_add(L.relu(project(state)), word),
    "sigmoid": lambda rnn, word, seen, state: L.elementwise_sub(L.sigmoid(project(state)), word),
    "product": lambda rnn, word, seen, state: L.elementwise_mul(L.tanh(project(state)), word),
    "softmax": lambda rnn, word, seen, state: L.softmax(L.elementwise_add(project(state), word)),
    "scale": lambda rnn, word, seen, state: L.scale(L.sums([project(state), word, word]), 0.5, 0.25),
    "scale first": lambda rnn, word, seen, state: L.scale(project(state), 0.5, 0.25, bias_after_scale=False),
    "sum": pooled("sum"),
    "average": pooled("average"),
    "sqrt": pooled("sqrt"),
    "gru": cell(),
    "gru in origin mode": cell(origin_mode=True),
    "gru of relu": cell(activation="relu", gate_activation="sigmoid"),
    "gru without bias": cell(bias_attr=False),
}


@pytest.mark.parametrize("next_state", NEXT_STATES.values(), ids=NEXT_STATES)
def test_a_decoder_and_its_gradient_run_in_one_call_each(next_state: NextState, ran: Ran) -> None:
    check_decoder(next_state, ran)


def test_memory_is_asked_for_as_it_is_needed(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "LEAST_CHUNK", 128)
    monkeypatch.setattr(running, "MOST_CHUNK", 256)
    monkeypatch.setattr(running, "ROOM", 1)
    check_decoder(attention, ran)


def test_an_operator_without_instructions_leaves_the_loop_to_its_operators(ran: Ran) -> None:
    program = decoder(lambda rnn, word, seen, state: L.elementwise_add(L.softsign(project(state)), word))
    feed = feeds()
    expected, found = (results(engine, program, feed, [program[2].name]) for engine in ("numpy", "native"))
    assert ran == []
    np.testing.assert_allclose(found[0].array, expected[0].array, rtol=1e-5)


def test_a_loop_that_does_not_change_its_condition_is_left_to_its_operators(ran: Ran) -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        count = L.fill_constant([1], "int64", 3)
        loop = L.While(L.less_than(count, L.fill_constant([1], "int64", 2)))
        with loop.block():
            L.increment(count)
    [found] = results("native", (main, startup, count), {}, [count.name])
    assert ran == [] and found.array.tolist() == [3]


# ---------------------------------------------------------------- inference
def greedy(steps: int, shift: int = 0) -> tuple[Program, Program, Any]:
    """A decoder that goes on with the best word; `shift` is added to it."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        start = L.data("start", [WIDTH])
        n, i = L.fill_constant([1], "int64", steps), L.zeros([1], "int64")
        states, ids = L.create_array("float32"), L.create_array("int64")
        L.array_write(L.fc(start, WIDTH, act="tanh"), i, array=states)
        L.array_write(L.fill_constant_batch_size_like(start, [-1, 1], "int64", 1 + shift), i, array=ids)
        go_on = L.less_than(i, n)
        loop = L.While(go_on)
        with loop.block():
            state, word = L.array_read(states, i), L.array_read(ids, i)
            gates = project(L.embedding(word, [WORDS, WIDTH]), 3 * WIDTH)
            after = L.gru_unit(gates, state, 3 * WIDTH)[0]
            best = L.topk(L.fc(after, WORDS, act="softmax"), 1)[1]
            L.increment(i, 1, in_place=True)
            L.array_write(after, i, array=states)
            L.array_write(best, i, array=ids)
            L.less_than(i, n, cond=go_on)
        last = L.concat([L.array_read(states, n), L.cast(L.array_read(ids, n), "float32")], 1)
    return main, startup, last


@pytest.mark.parametrize("steps", [0, 1, 7, 70])
def test_a_greedy_decoder_runs_in_one_call(steps: int, ran: Ran) -> None:
    program, feed = greedy(steps), {"start": RNG.normal(size=(4, WIDTH)).astype("float32")}
    expected, found = (results(engine, program, feed, [program[2].name])[0].array for engine in ("numpy", "native"))
    assert ran == [True]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_releasing_memory_within_steps_changes_no_bit(ran: Ran) -> None:
    program, feed = greedy(7), {"start": RNG.normal(size=(4, WIDTH)).astype("float32")}
    before = results("native", program, feed, [program[2].name])[0].array
    fluid.release_memory(program[0], {program[2].name})
    assert any(op.type == "delete_var" for op in program[0].block(1).ops)
    np.testing.assert_array_equal(results("native", program, feed, [program[2].name])[0].array, before)
    assert ran == [True, True]


def test_an_id_outside_the_table_is_the_error_of_the_operator(ran: Ran) -> None:
    program, feed = greedy(3, shift=WORDS), {"start": np.zeros((2, WIDTH), "float32")}
    with pytest.raises(OperatorError, match=r"lookup_table.*12"):
        results("native", program, feed, [program[2].name])
    assert ran == [False]


def test_python_is_asked_now_and_then_in_a_loop_of_many_steps(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "STEPS_AT_ONCE", 3)
    program, feed = greedy(10), {"start": RNG.normal(size=(4, WIDTH)).astype("float32")}
    expected, found = (results(engine, program, feed, [program[2].name])[0].array for engine in ("numpy", "native"))
    assert ran == [True]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)

    def interrupt(self: Any, lacking: int, wanted: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(running._Run, "_provide", interrupt)
    with pytest.raises(KeyboardInterrupt):
        results("native", program, feed, [program[2].name])


def test_memory_that_is_not_there_leaves_the_loop_to_its_operators(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(self: Any, lacking: int, wanted: int) -> None:
        raise MemoryError

    monkeypatch.setattr(running, "STEPS_AT_ONCE", 3)
    monkeypatch.setattr(running._Run, "_provide", lacking)
    program, feed = greedy(10), {"start": RNG.normal(size=(4, WIDTH)).astype("float32")}
    expected, found = (results(engine, program, feed, [program[2].name])[0].array for engine in ("numpy", "native"))
    assert ran == [False]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def counted(change: Callable[[Any, Any], Any]) -> tuple[Program, Program, Any]:
    """Three steps of a state that `change` changes, given the state and the number of the step."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        start = L.data("start", [WIDTH])
        state, i, n = L.scale(start, 1.0), L.zeros([1], "int64"), L.fill_constant([1], "int64", 3)
        go_on = L.less_than(i, n)
        loop = L.While(go_on)
        with loop.block():
            L.assign(change(state, i), state)
            L.increment(i, 1, in_place=True)
            L.less_than(i, n, cond=go_on)
    return main, startup, state


def reshaped(state: Any, shape: list[int]) -> Any:
    """As a file may ask for it."""
    found = L.reshape(state, [-1, WIDTH])
    found.block.ops[-1]._set_attr("shape", shape)
    return found


@pytest.mark.parametrize("shape", [[2**16] * 4, [2**30, 2**30, 16, 1], [-1, 4]])
def test_a_shape_that_does_not_fit_is_the_error_of_the_operator(shape: list[int], ran: Ran) -> None:
    main, startup, state = counted(lambda state, i: reshaped(state, shape))
    feed = {"start": np.zeros((2, WIDTH), "float32")}
    for engine in ("numpy", "native"):
        with pytest.raises(OperatorError, match="reshape2"):
            results(engine, (main, startup, state), feed, [state.name])
    assert ran == [False]


def test_what_steps_hand_on_outside_arrays_is_kept_from_step_to_step(ran: Ran) -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        start = L.data("start", [WIDTH])
        state, i, n = L.scale(start, 1.0), L.zeros([1], "int64"), L.fill_constant([1], "int64", 9)
        unchanged = L.scale(start, 2.0)
        go_on = L.less_than(i, n)
        loop = L.While(go_on)
        with loop.block():
            L.assign(L.tanh(L.elementwise_add(project(state), unchanged)), state)
            L.increment(i, 1, in_place=True)
            L.less_than(i, n, cond=go_on)
    feed = {"start": RNG.normal(size=(2, WIDTH)).astype("float32")}
    names = [state.name, i.name, unchanged.name]
    expected, found = (results(engine, (main, startup, state), feed, names) for engine in ("numpy", "native"))
    assert ran == [True]
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other.array, one.array, rtol=1e-5)
    assert found[1].array.tolist() == [9]


def test_who_looks_at_every_step_sees_them_run_one_by_one(ran: Ran) -> None:
    main, startup, last = greedy(3)
    seen: list[str] = []

    def observer(step: Any, block: int) -> None:
        seen.append(step.context.op.type)
        step.run()

    scope, feed = Scope(), {"start": np.zeros((2, WIDTH), "float32")}
    Executor(engine="numpy").run(startup, {}, [], scope)
    Executor(engine="native").run(main, feed, [last.name], scope, observer=observer)
    assert ran == [] and seen.count("gru_unit") == 3


def reshaping_loop() -> tuple[Program, Program, Any]:
    """A `while` of as many steps as are fed, whose products read what was reshaped; and its loss."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        start = L.data("start", [WIDTH])
        start.stop_gradient = False
        number, count = L.zeros([1], "int64"), L.data("count", [1], dtype="int64", append_batch_size=False)
        number.stop_gradient = count.stop_gradient = True
        states, more = L.array_write(start, number), L.less_than(number, count)
        loop = L.While(more)
        with loop.block():
            cut = L.reshape(L.fc(L.array_read(states, number), 6), [-1, 3, 2])
            state = L.reshape(L.fc(cut, WIDTH, act="tanh"), [-1, WIDTH])
            L.increment(number, 1, in_place=True)
            L.array_write(state, number, array=states)
            L.less_than(number, count, cond=more)
        loss = L.mean(L.square(L.array_read(states, number)))
        fluid.backward.append_backward(loss)
    return main, startup, loss


def test_products_read_what_steps_have_reshaped(ran: Ran) -> None:
    program = reshaping_loop()
    feed = {"start": RNG.normal(size=(3, WIDTH)).astype("float32"), "count": np.array([4], "int64")}
    names = [program[2].name, *gradients(program[0])]
    expected, found = (results(engine, program, feed, names) for engine in ("numpy", "native"))
    assert ran == [True, True]
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other.array, one.array, rtol=2e-4, atol=2e-6)


# ---------------------------------------------------------------- values
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
def test_an_address_is_found_in_whatever_is_around_it(order: tuple[int, ...]) -> None:
    """Loops begin with values that are parts of what earlier loops have left."""
    whole = np.arange(64, dtype=np.int64)
    arrays, memory = (whole[8:9], whole, whole[8:32]), Memory()
    for number in order:
        memory.add(arrays[number])
    found = memory.view(whole[10:].ctypes.data, (5,), whole.dtype)
    np.testing.assert_array_equal(found, whole[10:15])
    assert np.shares_memory(found, whole)


def test_arrays_beside_each_other_are_kept_apart() -> None:
    memory, whole = Memory(), np.arange(12, dtype=np.int64)
    for part in (whole[6:], whole[:4], whole[4:6]):
        memory.add(part)
    for begin, end in ((0, 4), (4, 6), (6, 12)):
        np.testing.assert_array_equal(
            memory.view(whole[begin:].ctypes.data, (end - begin,), whole.dtype), whole[begin:end]
        )


def row_of(value: Any, memory: Memory) -> Any:
    row = np.zeros(11, np.int64)
    write_tensor(row, value, memory)
    return row


@pytest.mark.parametrize("dtype", ["float32", "int64", "int32", "bool"])
def test_a_tensor_is_read_as_it_was_written(dtype: str) -> None:
    memory, array = Memory(), np.arange(6).reshape(3, 2).astype(dtype)
    found = read_tensor(row_of(LoDTensor(array, [[0, 1, 3]]), memory), memory)
    assert found is not None and found.offsets == [[0, 1, 3]] and found.array.dtype == array.dtype
    assert np.shares_memory(found.array, array) and (found.array == array).all()


def test_a_tensor_without_memory_keeps_its_dimensions() -> None:
    memory, tensor = Memory(), LoDTensor()
    tensor.set_dims((0, 3, 2))
    found = read_tensor(row_of(tensor, memory), memory)
    assert found is not None and found.array is None and found.shape() == [0, 3, 2]


def test_no_value_stays_none() -> None:
    assert read_tensor(row_of(None, Memory()), Memory()) is None


@pytest.mark.parametrize(
    "value",
    [
        LoDTensor(np.zeros(3)),
        LoDTensor(np.zeros((0, 3), "float32")),
        LoDTensor(np.zeros((1, 1, 1, 1, 1), "float32")),
        LoDTensor(np.zeros((2, 1), "float32"), [[0, 1], [0, 2]]),
        SelectedRows([0], 2, np.zeros((1, 2), "float32")),
        5,
    ],
    ids=["float64", "empty", "five dimensions", "two levels", "rows", "number"],
)
def test_what_has_no_form_is_refused(value: Any) -> None:
    with pytest.raises(NoFormError):
        row_of(value, Memory())


@pytest.mark.parametrize("offsets", [[0, 2], [0, 4], [1, 3], [0, 5, 3], []])
def test_a_lod_that_does_not_cover_the_rows_has_no_form(offsets: list[int]) -> None:
    tensor = LoDTensor(np.zeros((3, 2), "float32"))
    tensor.offsets = [offsets]
    with pytest.raises(NoFormError):
        row_of(tensor, Memory())
