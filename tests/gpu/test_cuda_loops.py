"""Loops whose number of steps is known are part of a training step's graph on a GPU. The numbers are the CPU's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import OperatorError
from fluidtool.fluid import layers as L
from fluidtool.runtime import training_regions
from fluidtool.runtime.engines.cuda.calls import Product
from fluidtool.runtime.engines.cuda.training import loops
from fluidtool.runtime.engines.cuda.training.compiled import CudaStep
from fluidtool.runtime.partition import Region
from fluidtool.runtime.training_regions import TrainingRegion
from fluidtool.tensor import CUDAPlace
from fluidtool.workflows.engine_use import engine_used
from tests.gpu import cases
from tests.gpu.standin import EVENTS
from tests.gpu.test_cuda_recurrent_steps import both, sgd
from tests.gpu.test_training_steps import Job, same
from tests.runtime.native.test_loops import NEXT_STATES, READ, WIDTH, WRITTEN, NextState, decoded, greedy, project
from tests.support.golden import names_in

pytestmark = pytest.mark.usefixtures("cupy")
Build = Callable[[], Any]
TIMES, ROWS = 4, 3


def random(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def sequences(seed: int, lengths: list[int], width: int = WIDTH) -> Any:
    return fluid.create_lod_tensor(random(seed, sum(lengths), width), [lengths], fluid.CPUPlace())


def loss_of(value: Any) -> Any:
    return L.mean(L.square(value - 0.3))


def parts_of(job: Job) -> list[Any]:
    return list(job.plan().block(0).work)


def is_one_graph(job: Job) -> bool:
    """Whether the whole program is one region, and nothing was refused."""
    parts = parts_of(job)
    return len(parts) == 1 and isinstance(parts[0], TrainingRegion) and not parts[0].reasons


# ---------------------------------------------------------------- static RNNs
def static(step: Callable[[Any, Any, Any], Any], has_start: bool = True) -> Build:
    """A StaticRNN over an input [TIMES, ROWS, WIDTH] that has gradients itself; `step` gives the next state."""

    def build() -> Any:
        x = L.fc(L.data("x", [TIMES, ROWS, WIDTH], append_batch_size=False), WIDTH, num_flatten_dims=2)
        start = L.fc(L.data("start", [ROWS, WIDTH], append_batch_size=False), WIDTH)
        rnn = L.StaticRNN()
        with rnn.step():
            word = rnn.step_input(x)
            state = (
                rnn.memory(init=start) if has_start else rnn.memory(shape=[ROWS, WIDTH], batch_ref=word, init_value=0.5)
            )
            after = step(rnn, word, state)
            rnn.update_memory(state, after)
            rnn.step_output(after)
        return loss_of(rnn())

    return build


def given(seed: int, times: int = TIMES) -> dict[str, Any]:
    return {"x": random(seed, times, ROWS, WIDTH), "start": random(seed + 50, ROWS, WIDTH)}


STATIC: dict[str, Build] = {
    "simple": static(lambda rnn, word, state: L.fc([word, state], WIDTH, act="tanh")),
    "gru": static(lambda rnn, word, state: L.gru_unit(project(word, 3 * WIDTH), state, 3 * WIDTH)[0]),
    "states of one value": static(lambda rnn, word, state: L.fc([word, state], WIDTH, act="relu"), has_start=False),
    "a product of a matrix and its own": static(
        lambda rnn, word, state: L.matmul(word, L.matmul(state, word, transpose_x=True))
    ),
    "dropout": static(lambda rnn, word, state: L.dropout(L.fc([word, state], WIDTH), 0.3)),
    "normalization": static(lambda rnn, word, state: L.layer_norm(L.fc([word, state], WIDTH))),
    "a bias for each element": static(
        lambda rnn, word, state: L.tanh(word + state + L.create_parameter([ROWS, WIDTH], "float32", name="each"))
    ),
    "one weight, used twice": static(
        lambda rnn, word, state: L.fc(
            L.fc([word, state], WIDTH, act="tanh", param_attr=["u", "w"]), WIDTH, param_attr="w"
        )
    ),
}


@pytest.mark.parametrize("name", STATIC)
def test_a_static_rnn_is_part_of_the_graph(name: str, compiled: list[CudaStep]) -> None:
    job = both(STATIC[name], [given(seed) for seed in range(3)])
    assert is_one_graph(job) and len(compiled) == 3
    with EVENTS.counted() as counts:
        job.step(given(3))
    assert counts["launches"] <= 6


def test_a_static_rnn_has_several_inputs_states_and_outputs() -> None:
    def build() -> Any:
        x, y = (L.fc(L.data(name, [TIMES, ROWS, WIDTH], append_batch_size=False), WIDTH, 2) for name in "xy")
        start = L.fc(L.data("start", [ROWS, WIDTH], append_batch_size=False), WIDTH)
        rnn = L.StaticRNN()
        with rnn.step():
            a, b = rnn.step_input(x), rnn.step_input(y)
            first, second = rnn.memory(init=start), rnn.memory(init=start)
            after = L.tanh(a + b * first)
            rnn.update_memory(first, after)
            rnn.update_memory(second, project(second) + after)
            rnn.output(after, second, a)
        one, other, _ = rnn()
        return loss_of(one) + loss_of(other)

    job = both(build, [{**given(seed), "y": random(seed + 9, TIMES, ROWS, WIDTH)} for seed in range(3)])
    assert is_one_graph(job)


def test_another_number_of_steps_is_another_graph() -> None:
    def build() -> Any:
        x = L.fc(L.data("x", [ROWS, WIDTH]), WIDTH, 2)
        start = L.fc(L.data("start", [ROWS, WIDTH], append_batch_size=False), WIDTH)
        rnn = L.StaticRNN()
        with rnn.step():
            word, state = rnn.step_input(x), rnn.memory(init=start)
            after = L.fc([word, state], WIDTH, act="tanh")
            rnn.update_memory(state, after)
            rnn.step_output(after)
        return loss_of(rnn())

    job = both(build, [given(seed, times) for seed, times in enumerate([2, 4, 2, 1, 4])])
    assert is_one_graph(job) and len(job.region()._memo.compiled) == 3


def test_a_weight_of_all_steps_has_one_product_for_its_gradient(compiled: list[CudaStep]) -> None:
    Job(STATIC["simple"], lambda: fluid.optimizer.SGD(0.1)).step(given(0))
    products = [call for call in compiled[-1].calls if isinstance(call, Product)]
    forward, backward = 2 + 2 * TIMES, 2 * TIMES - 0
    weights_within, weights_around = 2, 2
    assert len(products) == forward + backward + weights_within + weights_around


# ---------------------------------------------------------------- dynamic RNNs
def decoder(next_state: NextState) -> Build:
    """A DynamicRNN whose steps get a row of `target`, all of `source`, and the state."""

    def build() -> Any:
        source = L.fc(L.data("source", [WIDTH], lod_level=1), WIDTH)
        target = L.fc(L.data("target", [WIDTH], lod_level=1), WIDTH)
        start = L.fc(L.data("start", [WIDTH]), WIDTH)
        return loss_of(decoded(source, target, start, next_state))

    return build


def sentences(seed: int, read: list[int] = READ, written: list[int] = WRITTEN) -> dict[str, Any]:
    start = random(seed + 50, len(written), WIDTH)
    return {"source": sequences(seed, read), "target": sequences(seed + 9, written), "start": start}


@pytest.mark.parametrize("name", NEXT_STATES)
def test_a_dynamic_rnn_is_part_of_the_graph(name: str, compiled: list[CudaStep]) -> None:
    job = both(decoder(NEXT_STATES[name]), [sentences(seed) for seed in range(3)], rtol=1e-4)
    assert is_one_graph(job) and len(compiled) == 3
    with EVENTS.counted() as counts:
        job.step(sentences(3))
    assert counts["launches"] <= 7


def test_other_lengths_are_another_graph(compiled: list[CudaStep]) -> None:
    lengths = [WRITTEN, [1, 1, 1], [5, 1, 2], WRITTEN]
    job = both(
        decoder(NEXT_STATES["attention"]), [sentences(n, READ[::-1], each) for n, each in enumerate(lengths)], rtol=1e-4
    )
    assert is_one_graph(job) and len(job.region()._memo.compiled) == 3 and len(compiled) == 4


def test_a_state_without_a_gradient_of_its_own_begins_with_zeros() -> None:
    def build() -> Any:
        target, rnn = L.fc(L.data("target", [WIDTH], lod_level=1), WIDTH), L.DynamicRNN()
        with rnn.block():
            word, state = rnn.step_input(target), rnn.memory(shape=[WIDTH])
            after = L.fc([word, state], WIDTH, act="relu")
            rnn.update_memory(state, after)
            rnn.output(after)
        return loss_of(L.sequence_last_step(rnn()))

    assert is_one_graph(both(build, [{"target": sequences(seed, WRITTEN)} for seed in range(3)]))


# ---------------------------------------------------------------- while
def counted(change: Callable[[Any], Any], steps: int = 3) -> Build:
    """Some steps of a state around the loop, which `change` changes."""

    def build() -> Any:
        state = L.fc(L.data("start", [WIDTH]), WIDTH)
        i, n = L.zeros([1], "int64"), L.fill_constant([1], "int64", steps)
        states = L.array_write(state, i)
        more = L.less_than(i, n)
        loop = L.While(more)
        with loop.block():
            after = change(L.array_read(states, i))
            L.increment(i, 1, in_place=True)
            L.array_write(after, i, array=states)
            L.less_than(i, n, cond=more)
        return loss_of(L.array_read(states, n))

    return build


def start(seed: int) -> dict[str, Any]:
    return {"start": random(seed, ROWS, WIDTH)}


def test_a_loop_of_a_known_number_of_steps_is_part_of_the_graph() -> None:
    assert is_one_graph(both(counted(lambda state: L.fc(state, WIDTH, act="tanh")), [start(seed) for seed in range(3)]))


def test_a_tensor_that_steps_replace_hands_its_gradient_on() -> None:
    def build() -> Any:
        state, i, n = L.fc(L.data("start", [WIDTH]), WIDTH), L.zeros([1], "int64"), L.fill_constant([1], "int64", 3)
        more = L.less_than(i, n)
        loop = L.While(more)
        with loop.block():
            L.assign(L.fc(state, WIDTH, act="tanh"), state)
            L.increment(i, 1, in_place=True)
            L.less_than(i, n, cond=more)
        return loss_of(state)

    assert is_one_graph(both(build, [start(seed) for seed in range(3)]))


def test_many_steps_of_elementwise_operators_are_several_kernels(compiled: list[CudaStep]) -> None:
    parts = inferred(counted(lambda state: L.tanh(state * 0.9 + 0.1), 400), [start(0)])
    assert any(isinstance(part, TrainingRegion) for part in parts) and not training_regions.reasons_of(parts)
    assert 10 < len(compiled[0].calls) < 30


def test_what_a_step_reads_of_earlier_ones_gets_their_gradients() -> None:
    def build() -> Any:
        state, i, n = L.fc(L.data("start", [WIDTH]), WIDTH), L.zeros([1], "int64"), L.fill_constant([1], "int64", 3)
        first, states = L.zeros([1], "int64"), L.array_write(state, i)
        more = L.less_than(i, n)
        loop = L.While(more)
        with loop.block():
            after = L.tanh(project(L.array_read(states, i)) + state)
            L.increment(i, 1, in_place=True)
            L.array_write(after, i, array=states)
            L.less_than(i, n, cond=more)
        return loss_of(L.array_read(states, n)) + loss_of(L.array_read(states, first))

    assert is_one_graph(both(build, [start(seed) for seed in range(3)]))


# ---------------------------------------------------------------- real Paddle's numbers
PACKED = [
    name for name in names_in("optest")
    if name.partition("/")[0] in ("array_to_lod_tensor", "recurrent", "reorder_lod_tensor_by_rank", "shrink_rnn_memory", "while")
]  # fmt: skip


@pytest.mark.parametrize("name", PACKED)
def test_packed_loops(name: str) -> None:
    cases.operator_in_a_step(name)


# ---------------------------------------------------------------- what stays outside
def outside(build: Build, batches: list[dict[str, Any]]) -> tuple[set[str], str]:
    """The operators of a job that run one by one, with the numbers of the CPU, and why its loop does."""
    job = both(build, batches, rtol=1e-4)
    used = engine_used(job.executor._runtime, job.plan(), "")
    found = {part.op.type for part in parts_of(job) if not isinstance(part, TrainingRegion)}
    return found, " ".join(used.get("left_to_numpy", {}).values()) or used.get("reason", "")


def test_a_number_of_steps_that_is_fed_is_not_known() -> None:
    def build() -> Any:
        state, i, n = (
            L.fc(L.data("start", [WIDTH]), WIDTH),
            L.zeros([1], "int64"),
            L.data("n", [1], dtype="int64", append_batch_size=False),
        )
        states = L.array_write(state, i)
        more = L.less_than(i, n)
        loop = L.While(more)
        with loop.block():
            after = L.fc(L.array_read(states, i), WIDTH, act="tanh")
            L.increment(i, 1, in_place=True)
            L.array_write(after, i, array=states)
            L.less_than(i, n, cond=more)
        return loss_of(L.array_read(states, i))

    found, why = outside(build, [{**start(seed), "n": np.array([2 + seed], np.int64)} for seed in range(3)])
    assert {"while", "while_grad", "less_than"} <= found
    assert "less_than_0.tmp_0 is only known when the program runs" in why


def test_an_operator_without_a_place_keeps_its_loop_outside() -> None:
    found, why = outside(counted(lambda state: L.elu(L.fc(state, WIDTH)) * state), [start(seed) for seed in range(3)])
    assert {"while", "while_grad", "write_to_array"} <= found
    assert "elu within its steps has no place in a graph" in why


# ---------------------------------------------------------------- whole numbers
WORDS = 11


def dynamic_words(is_sparse: bool = False, padding: int | None = None) -> Any:
    """Sentences whose words are looked up within the loop."""
    ids, start = L.data("ids", [1], dtype="int64", lod_level=1), L.fc(L.data("start", [WIDTH]), WIDTH)
    rnn = L.DynamicRNN()
    with rnn.block():
        word, state = rnn.step_input(ids), rnn.memory(init=start, need_reorder=True)
        row = L.embedding(word, [WORDS, WIDTH], is_sparse=is_sparse, padding_idx=padding, param_attr="table")
        after = L.fc([row, state], WIDTH, act="tanh")
        rnn.update_memory(state, after)
        rnn.output(after)
    return loss_of(L.sequence_last_step(rnn()))


def dynamic_scores() -> Any:
    """Sentences, each word of which is looked up, also as the class of a loss, within the loop."""
    ids, start = L.data("ids", [1], dtype="int64", lod_level=1), L.fc(L.data("start", [WIDTH]), WIDTH)
    rnn = L.DynamicRNN()
    with rnn.block():
        word, state = rnn.step_input(ids), rnn.memory(init=start, need_reorder=True)
        after = L.fc([L.one_hot(word, WORDS), state], WIDTH, act="tanh")
        rnn.update_memory(state, after)
        rnn.output(L.softmax_with_cross_entropy(L.fc(after, WORDS), word))
    return L.mean(rnn())


def static_words(is_sparse: bool = False, dtype: str = "int64", computed: bool = False) -> Any:
    ids = L.data("ids", [TIMES, ROWS, 1], dtype=dtype, append_batch_size=False)
    ids = L.elementwise_mod(L.elementwise_add(ids, ids), L.fill_constant([1], dtype, WORDS)) if computed else ids
    start = L.fc(L.data("start", [ROWS, WIDTH], append_batch_size=False), WIDTH)
    rnn = L.StaticRNN()
    with rnn.step():
        word, state = rnn.step_input(ids), rnn.memory(init=start)
        row = L.embedding(L.cast(word, "int64"), [WORDS, WIDTH], is_sparse=is_sparse, param_attr="table")
        after = L.fc([row, state], WIDTH, act="tanh")
        rnn.update_memory(state, after)
        rnn.step_output(after)
    return loss_of(rnn())


OF_WORDS: dict[str, Build] = {
    "a dynamic RNN": dynamic_words,
    "a dynamic RNN with padding": lambda: dynamic_words(padding=3),
    "a dynamic RNN with rows as gradients": lambda: dynamic_words(is_sparse=True),
    "a dynamic RNN with a loss of classes": dynamic_scores,
    "a static RNN": static_words,
    "a static RNN with rows as gradients": lambda: static_words(is_sparse=True),
    "a static RNN over computed words": lambda: static_words(computed=True),
}


def words(seed: int, name: str = "a dynamic RNN", high: int = WORDS) -> dict[str, Any]:
    choose = np.random.default_rng(seed)
    if "static" in name:
        return {"ids": choose.integers(0, high, (TIMES, ROWS, 1)), "start": random(seed, ROWS, WIDTH)}
    lengths = [3, 1, 4]
    ids = fluid.create_lod_tensor(choose.integers(0, high, (sum(lengths), 1)), [lengths], fluid.CPUPlace())
    return {"ids": ids, "start": random(seed, ROWS, WIDTH)}


@pytest.mark.parametrize("name", OF_WORDS)
def test_steps_look_up_words_in_the_graph(name: str, compiled: list[CudaStep]) -> None:
    job = both(OF_WORDS[name], [words(seed, name) for seed in range(3)])
    assert is_one_graph(job) and len(compiled) == 3
    with EVENTS.counted() as counts:
        job.step(words(3, name))
    assert counts["launches"] <= 7


def test_rows_as_gradients_are_updated_by_a_rule_with_states() -> None:
    job = both(
        lambda: dynamic_words(is_sparse=True), [words(seed) for seed in range(3)], lambda: fluid.optimizer.Adam(0.05)
    )
    assert is_one_graph(job)


def test_a_table_of_all_steps_has_one_sum_for_its_gradient(compiled: list[CudaStep]) -> None:
    """Not one as tall as the table for each step."""
    both(dynamic_words, [words(0)])
    kernels = [getattr(call, "name", "").partition("_")[0] for call in compiled[0].calls]
    assert kernels.count("scatter") == 1


def test_nobody_waits_for_words_that_are_fed() -> None:
    job = Job(dynamic_words, sgd)
    for seed in range(3):
        job.step(words(seed))
    with EVENTS.counted() as counts:
        job.step(words(3))
    assert counts.get("synchronizations", 0) == 0 and counts["copies to the host"] == 1  # the loss


@pytest.mark.parametrize("name", ["a dynamic RNN", "a static RNN", "a static RNN over computed words"])
def test_words_beyond_the_table_are_the_error_of_the_cpu(name: str) -> None:
    wrong = words(1, name)
    array = wrong["ids"] if isinstance(wrong["ids"], np.ndarray) else wrong["ids"].numpy()
    array[1] = -3
    if not isinstance(wrong["ids"], np.ndarray):
        wrong["ids"].set(array, fluid.CPUPlace())
    said, states = [], []
    for place in (fluid.CPUPlace(), None):
        job = Job(OF_WORDS[name], sgd, place)
        job.step(words(0, name))
        before = job.values()
        with pytest.raises(OperatorError) as error:
            job.step(wrong)
        said.append(str(error.value).partition(" [")[0])
        states.append(all(np.array_equal(value, before[key]) for key, value in job.values().items()))
        job.step(words(0, name))
    assert said[0] == said[1] and states == [True, True]


def test_too_many_operators_in_all_steps_run_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "MOST", 20)
    job = both(STATIC["simple"], [given(seed) for seed in range(3)])
    (region, *_) = (part for part in parts_of(job) if isinstance(part, TrainingRegion))
    assert any("more than 20 operators" in why for why in training_regions.reasons_of([region]).values())


def test_a_loop_that_is_refused_leaves_arrays_for_the_operators_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "MOST", 20)
    job = both(decoder(NEXT_STATES["attention"]), [sentences(seed) for seed in range(4)], rtol=1e-4)
    assert training_regions.reasons_of(parts_of(job))


def test_a_counter_that_is_fetched_keeps_its_loop_outside() -> None:
    want, job = (Job(counted(project), lambda: fluid.optimizer.SGD(0.1), place) for place in (fluid.CPUPlace(), None))
    (counter,) = {op.input("X")[0] for op in job.main.block(1).ops if op.type == "increment"}
    for seed in range(3):
        for each in (want, job):
            assert each.step(start(seed), counter)[1].tolist() == [0]  # the gradient has counted back
    same(want, job)


def test_sequences_that_are_empty_are_the_error_of_the_operator_or_run_one_by_one() -> None:
    both(decoder(NEXT_STATES["sum"]), [sentences(0, written=[2, 0, 3])], rtol=1e-4)


# ---------------------------------------------------------------- inference
def inferred(build: Build, batches: list[dict[str, Any]]) -> list[Any]:
    """The parts of a program that is not trained; its results on the GPU are the CPU's."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = build()
    scopes = [fluid.Scope(), fluid.Scope()]
    executors = [fluid.Executor(place) for place in (fluid.CPUPlace(), CUDAPlace(0))]
    for scope in scopes:
        fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
    for feed in batches:
        want, found = (
            each.run(main, feed, [loss], scope=scope)[0] for each, scope in zip(executors, scopes, strict=True)
        )
        np.testing.assert_allclose(found, want, rtol=2e-5)
    (plan,) = (plan for plans in executors[1]._runtime._plans.values() for plan in plans.values())
    return list(plan.block(0).work)


@pytest.mark.parametrize("name", ["simple", "gru"])
def test_a_static_rnn_of_inference_is_a_graph(name: str, compiled: list[CudaStep]) -> None:
    parts = inferred(STATIC[name], [given(seed) for seed in range(3)])
    assert [type(part) for part in parts[:2]] == [Region, TrainingRegion] and len(compiled) == 3
    assert len(set(compiled)) == 1


@pytest.mark.parametrize("name", ["attention", "relu"])
def test_a_dynamic_rnn_of_inference_is_a_graph(name: str, compiled: list[CudaStep]) -> None:
    parts = inferred(decoder(NEXT_STATES[name]), [sentences(0), sentences(1), sentences(2, written=[1, 5, 2])])
    loops_in = [part for part in parts if isinstance(part, TrainingRegion)]
    assert len(loops_in) == 1 and not loops_in[0].reasons and len(compiled) == 3


def test_a_weight_that_a_loop_and_a_region_share_stays_where_it_is(compiled: list[CudaStep]) -> None:
    def build() -> Any:
        x = L.fc(L.data("x", [TIMES, ROWS, WIDTH], append_batch_size=False), WIDTH, 2, param_attr="w")
        rnn = L.StaticRNN()
        with rnn.step():
            word = rnn.step_input(x)
            rnn.step_output(L.tanh(L.fc(word, WIDTH, param_attr="w")))
        return loss_of(L.fc(rnn(), WIDTH, 2, param_attr="w"))

    inferred(build, [{"x": given(seed)["x"]} for seed in range(4)])
    assert len(compiled) == 4 and len(set(compiled)) == 1


def test_a_greedy_decoder_is_not_unrolled(compiled: list[CudaStep]) -> None:
    main, startup, last = greedy(4)
    scope, executor = fluid.Scope(), fluid.Executor(CUDAPlace(0))
    fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
    want = fluid.Executor(fluid.CPUPlace()).run(main, start(0), [last], scope=scope)[0]
    np.testing.assert_allclose(executor.run(main, start(0), [last], scope=scope)[0], want, rtol=1e-5, atol=1e-6)
    assert not compiled
