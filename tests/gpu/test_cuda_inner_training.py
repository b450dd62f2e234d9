"""Loops in training whose number of steps is computed: on a GPU their blocks, and those of their gradients, have regions. The
numbers are the CPU's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import OperatorError
from fluidtool.fluid import layers as L
from fluidtool.runtime.engines.cuda.training.compiled import CudaStep
from fluidtool.runtime.training_regions import TrainingRegion
from tests.gpu.standin import EVENTS
from tests.gpu.test_cuda_recurrent_steps import both, sgd
from tests.gpu.test_training_steps import OPTIMIZERS, Job, same
from tests.runtime.native.test_loops import WIDTH

pytestmark = pytest.mark.usefixtures("cupy")
Next = Callable[[Any, Any, Any], Any]  # of a state, what the loop reads from outside, and the counter
ROWS = 3


def random(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def loop(after: Next) -> Callable[[], Any]:
    """As many steps as are fed, from a state that is learned."""

    def build() -> Any:
        state = L.fc(L.data("start", [WIDTH]), WIDTH)
        seen = L.fc(L.data("seen", [WIDTH]), WIDTH, act="tanh")
        i, n = L.zeros([1], "int64"), L.data("n", [1], dtype="int64", append_batch_size=False)
        i.stop_gradient = n.stop_gradient = True
        states, more = L.array_write(state, i), L.less_than(i, n)
        again = L.While(more)
        with again.block():
            found = after(L.array_read(states, i), seen, i)
            L.increment(i, 1, in_place=True)
            L.array_write(found, i, array=states)
            L.less_than(i, n, cond=more)
        return L.mean(L.square(L.array_read(states, i) - 0.3))

    return build


def fed(steps: int, seed: int = 0, rows: int = ROWS) -> dict[str, Any]:
    return {
        "start": random(seed, rows, WIDTH),
        "seen": random(seed + 50, rows, WIDTH),
        "n": np.array([steps], np.int64),
    }


def regions(job: Job, block: int) -> list[TrainingRegion]:
    """Those of a block that have run in one call."""
    return [part for part in parts(job, block) if isinstance(part, TrainingRegion) and part.has_run]


def parts(job: Job, block: int) -> list[Any]:
    """The regions of a block, and the steps between them."""
    inner = job.plan().block(block).inner
    assert inner is not None
    return [part for found in inner._found.values() for part in found]


WORDS = 13


def words(i: Any) -> Any:
    """An id for each row: the number of the step."""
    return L.cast(L.expand(L.reshape(i, [1, 1]), [ROWS, 1]), "int64")


def best(state: Any) -> Any:
    """An id for each row: its largest place."""
    found = L.topk(state, 1)[1]
    found.stop_gradient = True
    return found


def table(state: Any, ids: Any) -> Any:
    return L.fc([state, L.embedding(ids, [WORDS, WIDTH])], WIDTH, act="tanh")


def scored(state: Any, seen: Any, i: Any) -> Any:
    """A state to which the loss of the words is added."""
    found = L.fc([state, seen], WIDTH, act="tanh")
    return L.elementwise_add(found, L.softmax_with_cross_entropy(L.fc(found, WORDS), words(i)), axis=0)


def attended(state: Any, seen: Any, i: Any) -> Any:
    weights = L.dropout(L.softmax(L.fc(state, WIDTH)), 0.4, dropout_implementation="upscale_in_train")
    return L.elementwise_mul(weights, L.fc(seen, WIDTH))


LAYERS: dict[str, Next] = {
    "a table": lambda state, seen, i: table(state, words(i)),
    "a table of computed ids": lambda state, seen, i: table(state, best(state)),
    "rows by number": lambda state, seen, i: L.fc(
        [state, L.gather(seen, L.reshape(words(i), [-1]) % 2)], WIDTH, act="tanh"
    ),
    "places of words": lambda state, seen, i: L.fc([state, L.one_hot(words(i), WORDS)], WIDTH, act="tanh"),
    "slices by place": lambda state, seen, i: L.fc([state, L.gather_nd(seen, words(i) % ROWS)], WIDTH, act="tanh"),
    "elements by place": lambda state, seen, i: L.elementwise_mul(
        L.fc([state, seen], WIDTH, act="tanh"),
        L.gather_nd(seen, L.concat([words(i) % ROWS, words(i) % WIDTH], 1)),
        axis=0,
    ),
    "classes": scored,
    "dropped weights": attended,
    "a layer": lambda state, seen, i: L.fc([state, seen], WIDTH, act="tanh"),
    "two layers": lambda state, seen, i: L.fc(L.fc([state, seen], 7, act="relu"), WIDTH, act="sigmoid"),
    "gru": lambda state, seen, i: L.gru_unit(L.fc(seen, 3 * WIDTH), state, 3 * WIDTH)[0],
    "lstm": lambda state, seen, i: L.elementwise_add(*L.lstm_unit(seen, state, state)),
    "attention": lambda state, seen, i: L.elementwise_mul(L.softmax(L.fc(state, WIDTH)), L.fc(seen, WIDTH)),
    "normalization": lambda state, seen, i: L.layer_norm(L.fc([state, seen], WIDTH)),
    "dropout": lambda state, seen, i: L.dropout(L.fc([state, seen], WIDTH, act="tanh"), 0.3),
    "concat": lambda state, seen, i: L.fc(L.concat([L.scale(state, 0.5), L.relu(seen)], 1), WIDTH, act="tanh"),
    "the counter": lambda state, seen, i: L.fc([state, seen], WIDTH, act="tanh") * L.cast(i, "float32"),
    "an operator without a place": lambda state, seen, i: L.fc(L.elu(L.fc([state, seen], WIDTH)), WIDTH, act="tanh"),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_loop_of_any_number_of_steps_is_trained_in_regions(name: str) -> None:
    job = both(loop(LAYERS[name]), [fed(steps, seed) for seed, steps in enumerate((3, 1, 5, 3))], rtol=2e-6)
    assert regions(job, 1) and (regions(job, 2) or name == "an operator without a place")


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_parameters_of_loops_are_updated(name: str) -> None:
    both(loop(LAYERS["gru"]), [fed(steps, steps) for steps in (2, 4, 3)], OPTIMIZERS[name])


def test_elementwise_steps_have_the_bits_of_the_cpu() -> None:
    """Sums and products by a power of two, which no order and no library rounds otherwise."""

    def after(state: Any, seen: Any, i: Any) -> Any:
        return L.elementwise_add(L.relu(L.elementwise_sub(L.scale(state, 0.5), seen)), L.scale(seen, 0.25))

    def build() -> Any:
        state, seen = (L.create_parameter([4, WIDTH], "float32", name=name) for name in ("state", "seen"))
        i, n = L.zeros([1], "int64"), L.data("n", [1], dtype="int64", append_batch_size=False)
        i.stop_gradient = n.stop_gradient = True
        states, more = L.array_write(state, i), L.less_than(i, n)
        again = L.While(more)
        with again.block():
            found = after(L.array_read(states, i), seen, i)
            L.increment(i, 1, in_place=True)
            L.array_write(found, i, array=states)
            L.less_than(i, n, cond=more)
        return L.reduce_max(L.array_read(states, i))

    def by_a_quarter() -> Any:
        return fluid.optimizer.SGD(0.25)

    want, job = Job(build, by_a_quarter, fluid.CPUPlace()), Job(build, by_a_quarter)
    for steps in (3, 2, 5):
        feed = {"n": np.array([steps], np.int64)}
        np.testing.assert_array_equal(job.step(feed)[0], want.step(feed)[0])
    for name, value in want.values().items():
        np.testing.assert_array_equal(job.values()[name], value, err_msg=name)
    assert regions(job, 1) and regions(job, 2)


def test_a_loop_may_end_by_what_it_computes() -> None:
    def build() -> Any:
        state, i = L.fc(L.data("start", [WIDTH]), WIDTH), L.zeros([1], "int64")
        limit = L.data("limit", [1], append_batch_size=False)
        states = L.array_write(state, i)
        more = L.less_than(L.reduce_sum(L.square(state)), limit)
        i.stop_gradient = more.stop_gradient = True
        again = L.While(more)
        with again.block():
            before = L.array_read(states, i)
            found = L.elementwise_add(L.scale(before, 1.5), L.fc(before, WIDTH, act="sigmoid"))
            L.increment(i, 1, in_place=True)
            L.array_write(found, i, array=states)
            still = L.assign(found)
            still.stop_gradient = True
            L.less_than(L.reduce_sum(L.square(still)), limit, cond=more)
        return L.mean(L.square(L.array_read(states, i)))

    batches = [{"start": random(seed, ROWS, WIDTH), "limit": np.float32([10.0 ** (seed + 1)])} for seed in range(4)]
    job = both(build, batches)
    assert regions(job, 1) and regions(job, 2)


def test_a_loop_within_a_loop_keeps_the_scopes_of_its_steps() -> None:
    def build() -> Any:
        state, i = L.fc(L.data("start", [WIDTH]), WIDTH), L.zeros([1], "int64")
        n = L.data("n", [1], dtype="int64", append_batch_size=False)
        i.stop_gradient = n.stop_gradient = True
        states, more = L.array_write(state, i), L.less_than(i, n)
        outer = L.While(more)
        with outer.block():
            j, two = L.fill_constant([1], "int64", 0), L.fill_constant([1], "int64", 2)
            j.stop_gradient = True
            inside, again = L.array_write(L.array_read(states, i), j), L.less_than(j, two)
            inner = L.While(again)
            with inner.block():
                found = L.fc(L.fc(L.array_read(inside, j), WIDTH, act="tanh"), WIDTH, act="sigmoid")
                L.increment(j, 1, in_place=True)
                L.array_write(found, j, array=inside)
                L.less_than(j, two, cond=again)
            L.increment(i, 1, in_place=True)
            L.array_write(L.array_read(inside, j), i, array=states)
            L.less_than(i, n, cond=more)
        return L.mean(L.square(L.array_read(states, i) - 0.3))

    job = both(build, [{"start": random(seed, ROWS, WIDTH), "n": np.array([3], np.int64)} for seed in range(3)])
    assert any(
        regions(job, block) for block in range(1, len(job.plan().program.blocks)) if job.plan().block(block).inner
    )


def test_no_step_at_all_leaves_the_gradients_zero() -> None:
    both(loop(LAYERS["a layer"]), [fed(steps, steps) for steps in (2, 0, 3)])


def test_batches_of_other_sizes_are_compiled_for_and_found_again(compiled: list[CudaStep]) -> None:
    batches = [fed(2, seed, rows) for seed, rows in enumerate((3, 5, 3, 5, 2))]
    job = both(loop(LAYERS["gru"]), batches)
    known = set(map(id, compiled))
    for feed in batches:
        job.step(feed)
    assert set(map(id, compiled)) == known


def test_parameters_that_a_script_replaces_are_read(compiled: list[CudaStep]) -> None:
    want, job = Job(loop(LAYERS["two layers"]), sgd, fluid.CPUPlace()), Job(loop(LAYERS["two layers"]), sgd)
    for seed in range(5):
        for each in (want, job):
            tensor = each.scope.find_var("fc_2.w_0").get_tensor()
            tensor.set(random(seed, WIDTH, 7), tensor.place())
        a, b = (each.step(fed(3, seed))[0] for each in (want, job))
        np.testing.assert_allclose(b, a, rtol=2e-6)
    same(want, job, 1e-4)
    assert regions(job, 1)


def with_words(state: Any, seen: Any, i: Any) -> Any:
    return table(state, words(i))


def test_an_id_beyond_its_table_is_the_error_of_the_cpu_and_leaves_parameters() -> None:
    """It is found behind the loop, before parameters change."""
    said = []
    for place in (fluid.CPUPlace(), None):
        job = Job(loop(with_words), sgd, place)
        for steps in (2, 3):
            job.step(fed(steps))
        before = job.values()
        with pytest.raises(OperatorError) as error:
            job.step(fed(WORDS + 2))
        said.append(str(error.value).partition(" [")[0])
        for name, value in job.values().items():
            np.testing.assert_array_equal(value, before[name], err_msg=name)
        job.step(fed(3))
    assert said[0] == said[1] and f"expected 0 to {WORDS - 1}" in said[0]


@pytest.mark.parametrize("place", [[-1, 0], [0, WIDTH], [ROWS, 1]])
def test_a_place_beyond_an_axis_is_the_error_of_the_cpu(place: list[int]) -> None:
    def after(state: Any, seen: Any, i: Any) -> Any:
        places = L.elementwise_mul(L.concat([words(i)] * 2, 1), L.assign(np.array(place, np.int64)))
        return L.elementwise_mul(L.fc([state, seen], WIDTH, act="tanh"), L.gather_nd(seen, places), axis=0)

    said = []
    for where in (fluid.CPUPlace(), None):
        with pytest.raises(OperatorError) as error:
            Job(loop(after), sgd, where).step(fed(3))
        said.append(str(error.value).partition(" [")[0])
    assert said[0] == said[1]


def test_a_divisor_that_is_zero_is_the_error_of_the_cpu() -> None:
    def after(state: Any, seen: Any, i: Any) -> Any:
        ids = words(i)
        row = L.gather(seen, L.reshape(L.elementwise_mod(ids, ids), [-1]))
        return L.fc([state, row], WIDTH, act="tanh")

    said = []
    for place in (fluid.CPUPlace(), None):
        with pytest.raises(OperatorError) as error:
            Job(loop(after), sgd, place).step(fed(3))
        said.append(str(error.value).partition(" [")[0])
    assert said[0] == said[1]


def test_gradients_that_are_rows_stay_between_regions() -> None:
    def after(state: Any, seen: Any, i: Any) -> Any:
        rows = L.embedding(words(i), [WORDS, WIDTH], is_sparse=True)
        return L.fc([state, rows], WIDTH, act="tanh")

    job = both(loop(after), [fed(steps, steps) for steps in (3, 5)])
    assert regions(job, 1) and regions(job, 2)


def test_masks_are_those_of_the_cpu_in_order() -> None:
    """Two masks in each step, and one that an operator draws between regions."""

    def after(state: Any, seen: Any, i: Any) -> Any:
        found = L.dropout(L.fc([state, seen], WIDTH, act="tanh"), 0.3)
        found = L.elementwise_add(found, L.uniform_random([ROWS, WIDTH], min=0.0, max=0.1))
        return L.dropout(L.fc(found, WIDTH, act="tanh"), 0.5, dropout_implementation="upscale_in_train")

    job = both(loop(after), [fed(steps, steps) for steps in (3, 1, 5)])
    assert regions(job, 1) and regions(job, 2)


def test_rows_that_do_not_match_are_the_error_of_the_cpu() -> None:
    wrong, said = {**fed(3), "seen": random(1, ROWS + 1, WIDTH)}, []
    for place in (fluid.CPUPlace(), None):
        job = Job(loop(LAYERS["a layer"]), sgd, place)
        job.step(fed(2))
        with pytest.raises(OperatorError) as error:
            job.step(wrong)
        said.append(str(error.value).partition(" [")[0])
    assert said[0] == said[1]


# ---------------------------------------------------------------- what it costs
def counts_of(job: Job, feed: dict[str, Any]) -> dict[str, int]:
    with EVENTS.counted() as counts:
        job.step(feed)
    return dict(counts)


def launches_of_a_step(name: str) -> float:
    """Forward and backward, by what a run of more steps asks beyond one of fewer."""
    job = Job(loop(LAYERS[name]), sgd)
    for seed in range(3):
        job.step(fed(2, seed))
    few, many = (counts_of(job, fed(steps))["launches"] for steps in (2, 12))
    return (many - few) / 10


@pytest.mark.parametrize(
    ("name", "launches", "one_by_one"),
    [
        ("a layer", 9, 16),
        ("two layers", 10, 27),
        ("gru", 8, 47),
        ("attention", 9, 25),
        ("normalization", 11, 40),
        ("a table", 8.1, 23),
        ("a table of computed ids", 8.1, 36),
        ("places of words", 7, 19),
        ("classes", 10.1, 53),
        ("dropped weights", 9, 33),
        ("dropout", 9, 22),
    ],
)
def test_launches_of_a_step(name: str, launches: float, one_by_one: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = launches_of_a_step(name)
    monkeypatch.setenv("FLUIDTOOL_CUDA", "0")
    assert [found, round(launches_of_a_step(name))] == [launches, one_by_one]


@pytest.mark.parametrize("name", ["gru", "dropout", "dropped weights"])
def test_the_host_counts_and_waits_for_no_step(name: str) -> None:
    job, waits = Job(loop(LAYERS[name]), sgd), []
    for seed in range(3):
        job.step(fed(2, seed))
    for steps in (2, 12):
        counts = counts_of(job, fed(steps))
        waits.append([counts.get(kind, 0) for kind in ("synchronizations", "copies to the host")])
    assert waits[0] == waits[1]


@pytest.mark.parametrize("name", ["a table", "a table of computed ids", "classes"])
def test_the_host_looks_at_ids_once_in_sixteen_runs_of_regions(name: str) -> None:
    """Forward and backward, and once more behind the loop."""
    job, waits = Job(loop(LAYERS[name]), sgd), []
    for seed in range(3):
        job.step(fed(2, seed))
    for steps in (2, 10):
        counts = counts_of(job, fed(steps))
        waits.append(counts.get("copies to the host", 0))
    assert waits[1] - waits[0] == 1


def test_parameters_stay_where_they_are() -> None:
    job = Job(loop(LAYERS["two layers"]), sgd)
    places = set()
    for seed in range(6):
        job.step(fed(3, seed))
        places.add(job.scope.find_var("fc_2.w_0").get_tensor().array.data.ptr)
    assert len(places) == 1 and not any(region.memo_of(job.scope).copied for region in regions(job, 1))


def test_small_regions_are_not_worth_the_copies() -> None:
    job = both(loop(lambda state, seen, i: L.tanh(state)), [fed(3, seed) for seed in range(2)])
    assert not regions(job, 1) and not regions(job, 2)
