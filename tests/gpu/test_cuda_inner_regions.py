"""Loops whose steps nobody knows beforehand: on a GPU their blocks have regions, and counters stay on the host. The numbers are
the CPU's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import OperatorError
from fluidtool.fluid import layers as L
from fluidtool.profiling import machine
from fluidtool.records import dataclass
from fluidtool.runtime import training_regions
from fluidtool.runtime.engines.cuda import moving
from fluidtool.runtime.partition import Region
from fluidtool.runtime.plan import Plan
from fluidtool.runtime.step import Step
from fluidtool.tensor import CUDAPlace, LoDTensor
from fluidtool.workflows.engine_use import engine_used
from tests.cli.support import call_json
from tests.gpu.standin import EVENTS
from tests.networks import decoding
from tests.runtime.native.test_loops import WIDTH, WORDS, greedy

pytestmark = pytest.mark.usefixtures("cupy")
Build = Callable[[], Sequence[Any]]
Feed = Mapping[str, Any]
WAITS = ("synchronizations", "copies to the host")


@dataclass(slots=True)
class Job:
    """A program beside itself on the CPU, with the same parameters."""

    main: Any
    fetched: list[Any]
    scopes: list[Any]
    executors: list[Any]

    def run(self, feed: Feed, rtol: float = 2e-5) -> dict[str, int]:
        """Results and LoDs are the CPU's; what the GPU was asked for."""
        found = []
        for executor, scope in zip(self.executors, self.scopes, strict=True):
            with EVENTS.counted() as counts:
                found.append(executor.run(self.main, feed, self.fetched, scope=scope, return_numpy=False))
        for want, have in zip(*found, strict=True):
            assert have.lod() == want.lod()
            assert np.array(have).dtype == np.array(want).dtype
            np.testing.assert_allclose(np.array(have), np.array(want), rtol=rtol, atol=1e-6)
        return dict(counts)

    def error(self, feed: Feed, place: int) -> str:
        """What the operator says that fails on the CPU (0) or on the GPU (1)."""
        with pytest.raises(OperatorError) as error:
            self.executors[place].run(self.main, feed, self.fetched, scope=self.scopes[place])
        return str(error.value)

    @property
    def plan(self) -> Plan:
        """What the GPU runs."""
        (plans,) = self.executors[1]._runtime._plans.values()
        (plan,) = plans.values()
        return plan  # type: ignore[no-any-return]

    def parts(self, block: int = 1) -> list[str]:
        """The operators of a block that run alone, and 'region' for each region."""
        return ["region" if isinstance(part, Region) else part.op.type for part in self.plan.block(block).work]  # type: ignore[union-attr]


def job(build: Build) -> Job:
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = 5
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        fetched = list(build())
    return job_of(main, startup, fetched)


def job_of(main: Any, startup: Any, fetched: list[Any]) -> Job:
    startup.random_seed = 5
    scopes, executors = (
        [fluid.Scope(), fluid.Scope()],
        [fluid.Executor(place) for place in (fluid.CPUPlace(), CUDAPlace(0))],
    )
    for scope in scopes:
        fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
    return Job(main, fetched, scopes, executors)


def numbers(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def start(seed: int = 0, rows: int = 3) -> dict[str, Any]:
    return {"start": numbers(seed, rows, WIDTH)}


def per_step(found: Job, few: Feed, many: Feed, steps: int) -> list[float]:
    """Launches and waits of a step: by what runs of more steps ask beyond those of fewer."""
    for _ in range(3):
        short, long = found.run(few), found.run(many)
    launches = long["launches"] - short["launches"]
    waits = sum(long.get(kind, 0) - short.get(kind, 0) for kind in WAITS)
    return [launches / steps, waits / steps]


# ---------------------------------------------------------------- loops
def until_fed(step: Callable[[Any, Any], Any]) -> Build:
    """As many steps as a number that is fed says; `step` gives the next state of the one before and the counter."""

    def build() -> list[Any]:
        state, i = L.scale(L.data("start", [WIDTH]), 1.0), L.zeros([1], "int64")
        n = L.data("n", [1], dtype="int64", append_batch_size=False)
        more = L.less_than(i, n)
        loop = L.While(more)
        with loop.block():
            L.assign(step(state, i), state)
            L.increment(i, 1, in_place=True)
            L.less_than(i, n, cond=more)
        return [state, i]

    return build


def layer(state: Any, i: Any) -> Any:
    return L.fc(state, WIDTH, act="tanh")


def fed(steps: int, seed: int = 0) -> dict[str, Any]:
    return {**start(seed), "n": np.array([steps], np.int64)}


def test_a_number_of_steps_may_be_fed() -> None:
    found = job(until_fed(layer))
    for steps in (3, 1, 7, 3):
        found.run(fed(steps, seed=steps))
    assert found.parts() == ["increment", "less_than", "region"]


def test_a_step_is_one_graph_and_a_copy_of_what_goes_in_and_out() -> None:
    assert per_step(job(until_fed(layer)), fed(2), fed(12), 10) == [3, 0]


def test_a_region_whose_results_nobody_reads_computes_nothing() -> None:
    def step(state: Any, i: Any) -> Any:
        L.fc(L.cond(L.less_than(i, L.fill_constant([1], "int64", 2)), lambda: state * 2.0, lambda: state), WIDTH)
        return L.scale(state, 0.5)

    found = job(until_fed(step))
    for steps in (3, 4):
        found.run(fed(steps))


def test_no_step_at_all_leaves_everything_as_it_was() -> None:
    found = job(until_fed(layer))
    assert found.run(fed(0))["launches"] == 1  # of the `scale` before the loop


def test_a_loop_ends_when_its_values_say_so() -> None:
    def build() -> list[Any]:
        state = L.scale(L.data("start", [WIDTH]), 1.0)
        limit = L.fill_constant([1], "float32", 100.0)
        more = L.less_than(L.reduce_sum(L.square(state)), limit)
        loop = L.While(more)
        with loop.block():
            L.assign(state * 1.5 + L.fc(state, WIDTH, act="sigmoid"), state)
            L.less_than(L.reduce_sum(L.square(state)), limit, cond=more)
        return [state]

    found = job(build)
    for seed in range(4):
        found.run(start(seed))
    counts = found.run({"start": np.full((3, WIDTH), 1e-3, np.float32)})
    more = found.run({"start": np.full((3, WIDTH), -1e-9, np.float32)})
    assert found.parts() == ["region", "less_than"]
    assert counts["launches"] < 60 and more["launches"] < 60


def test_a_loop_within_a_loop_has_regions_of_its_own() -> None:
    def build() -> list[Any]:
        state, i = L.scale(L.data("start", [WIDTH]), 1.0), L.zeros([1], "int64")
        n = L.data("n", [1], dtype="int64", append_batch_size=False)
        more = L.less_than(i, n)
        outer = L.While(more)
        with outer.block():
            j = L.fill_constant([1], "int64", 0)
            again = L.less_than(j, i)
            inner = L.While(again)
            with inner.block():
                L.assign(L.fc(state, WIDTH, act="tanh"), state)
                L.increment(j, 1, in_place=True)
                L.less_than(j, i, cond=again)
            L.assign(L.fc(state, WIDTH, act="sigmoid"), state)
            L.increment(i, 1, in_place=True)
            L.less_than(i, n, cond=more)
        return [state, i]

    found = job(build)
    for steps in (4, 2, 5):
        found.run(fed(steps, seed=steps))
    assert "region" in found.parts(1) and found.parts(2) == ["increment", "less_than", "region"]


def test_a_branch_within_a_loop_has_regions_of_its_own() -> None:
    def step(state: Any, i: Any) -> Any:
        two = L.fill_constant([1], "int64", 2)
        return L.cond(
            L.less_than(i, two), lambda: L.fc(state, WIDTH, act="tanh"), lambda: L.fc(state, WIDTH, act="sigmoid")
        )

    found = job(until_fed(step))
    for steps in (1, 5, 3):
        counts = found.run(fed(steps, seed=steps))
    assert all("region" in found.parts(block) for block in (2, 3))
    assert sum(counts.get(kind, 0) for kind in WAITS) == 1  # for the number of steps


def test_shapes_may_change_from_step_to_step() -> None:
    def build() -> list[Any]:
        x, i = L.data("start", [WIDTH]), L.zeros([1], "int64")
        n = L.data("n", [1], dtype="int64", append_batch_size=False)
        grown, more = L.scale(x, 1.0), L.less_than(i, n)
        loop = L.While(more)
        with loop.block():
            L.assign(L.concat([L.fc(grown, WIDTH, act="tanh"), x], axis=0), grown)
            L.increment(i, 1, in_place=True)
            L.less_than(i, n, cond=more)
        return [grown]

    found = job(build)
    for steps in (12, 12, 12, 3):
        found.run(fed(steps))
    (region,) = (part for part in found.plan.block(1).work if isinstance(part, Region))
    assert len(region.specializations.kept) == 12


def test_counters_may_be_read_by_what_the_gpu_computes() -> None:
    found = job(until_fed(lambda state, i: L.fc(state, WIDTH) * L.cast(i, "float32") + L.cast(i + 1, "float32")))
    for steps in (3, 5):
        found.run(fed(steps))


def test_counters_may_be_kept_in_arrays() -> None:
    def build() -> list[Any]:
        i, n = L.zeros([1], "int64"), L.data("n", [1], dtype="int64", append_batch_size=False)
        state, seen = L.scale(L.data("start", [WIDTH]), 1.0), L.array_write(i, i)
        more = L.less_than(i, n)
        loop = L.While(more)
        with loop.block():
            L.assign(L.fc(state, WIDTH, act="tanh"), state)
            L.increment(i, 1, in_place=True)
            L.array_write(i, i, array=seen)
            L.less_than(i, n, cond=more)
        last = L.array_read(seen, n)
        return [state, L.cast(last, "float32") * 2.0, L.array_length(seen)]

    found = job(build)
    for steps in (0, 2, 4):
        found.run(fed(steps))


def test_arrays_of_steps_are_read_and_written_around_the_region() -> None:
    def build() -> list[Any]:
        i, n = L.zeros([1], "int64"), L.data("n", [1], dtype="int64", append_batch_size=False)
        states = L.array_write(L.scale(L.data("start", [WIDTH]), 1.0), i)
        more = L.less_than(i, n)
        loop = L.While(more)
        with loop.block():
            before = L.array_read(states, i)
            half = L.fc(before, WIDTH, act="tanh")
            L.increment(i, 1, in_place=True)
            L.array_write(half, i, array=states)
            after = L.fc(half, WIDTH)
            L.array_write(after + before, i, array=states)
            L.less_than(i, n, cond=more)
        return [L.array_read(states, n), L.array_read(states, L.zeros([1], "int64"))]

    found = job(build)
    for steps in (1, 6, 2):
        found.run(fed(steps))
    assert found.parts().count("region") == 1


# ---------------------------------------------------------------- decoders
def greedy_job(steps: int, shift: int = 0) -> Job:
    main, startup, last = greedy(steps, shift)
    return job_of(main, startup, [last])


def test_a_step_of_a_greedy_decoder_is_three_launches_and_waits_for_nothing() -> None:
    short, long = greedy_job(2), greedy_job(12)
    for _ in range(3):
        few, many = short.run(start(), rtol=1e-5), long.run(start(), rtol=1e-5)
    assert many["launches"] - few["launches"] == 10 * 3
    assert all(many.get(kind, 0) == few.get(kind, 0) for kind in WAITS)


def test_the_step_of_a_greedy_decoder_is_one_region() -> None:
    found = greedy_job(7)
    for seed in range(3):
        counts = found.run(start(seed), rtol=1e-5)
    assert found.parts().count("region") == 1
    assert sum(counts.get(kind, 0) for kind in WAITS) == 1


def test_an_id_that_is_out_of_range_is_the_error_of_the_cpu() -> None:
    found = greedy_job(3, shift=WORDS)
    said = [found.error(start(), place) for place in (0, 1, 1, 1)]
    assert len(set(said)) == 1
    assert "lookup_table: input Ids holds 12, expected 0 to 10" in said[0] and "[block 1, " in said[0]


def test_an_id_that_a_late_step_computes_is_the_error_of_the_cpu() -> None:
    def step(state: Any, i: Any) -> Any:
        words = L.cast(L.reduce_sum(L.abs(state), dim=1, keep_dim=True) * 1e3, "int64")
        return L.elementwise_add(L.embedding(words, [WORDS, WIDTH]), L.scale(L.fc(state, WIDTH), 1e4))

    found = job(until_fed(step))
    feed = {"start": np.zeros((2, WIDTH), np.float32), "n": np.array([40], np.int64)}
    said = [found.error(feed, place) for place in (0, 1, 1, 1)]
    assert len(set(said)) == 1 and "expected 0 to 10" in said[0]
    found.run({**feed, "n": np.array([1], np.int64)})


def shuffled(by: int) -> Callable[[Any, Any], Any]:
    """Steps that gather rows by the place of their largest number and the counter, `by` times, of 32 bits in between."""

    def step(state: Any, i: Any) -> Any:
        places = L.cast(L.cast(L.argmax(state, axis=1), "int32"), "int64")
        first = L.elementwise_mod(places, L.fill_constant([1], "int64", 3))
        return L.gather(L.fc(state, WIDTH, act="tanh"), L.elementwise_add(first, L.scale(i, float(by))))

    return step


def test_steps_may_gather_rows_by_what_they_compute() -> None:
    found = job(until_fed(shuffled(0)))
    for steps in (3, 7, 2, 7):
        found.run(fed(steps, seed=steps))
    assert sorted(found.parts()) == ["increment", "less_than", "region"]


def test_a_row_that_a_step_gathers_from_nowhere_is_the_error_of_the_cpu() -> None:
    found = job(until_fed(shuffled(10)))
    said = [found.error(fed(5), place) for place in (0, 1, 1, 1)]
    assert len(set(said)) == 1
    assert "gather: Index must lie in [0, 3), the size of axis 0 of X, found 1" in said[0] and "[block 1, " in said[0]
    found.run(fed(1))


@pytest.mark.parametrize("kind", ["GRUCell", "LSTMCell"])
@pytest.mark.parametrize(
    "settings", [{"max_step_num": 6}, {"max_step_num": 4, "impute_finished": True, "return_length": True}]
)
def test_a_decoder_that_ends_by_itself_is_one_region(kind: str, settings: dict[str, Any]) -> None:
    def build() -> list[Any]:
        cell, states = decoding._cell_and_states(fluid, kind)
        tokens = L.data("tokens", [-1], dtype="int64", append_batch_size=False)
        helper = L.GreedyEmbeddingHelper(decoding._embedder(fluid), tokens, 1)
        decoder = L.BasicDecoder(cell, helper, output_fn=decoding._output(fluid))
        outputs, last, *lengths = L.dynamic_decode(decoder, inits=states, is_test=True, **settings)
        return [outputs.cell_outputs, outputs.sample_ids, *(last if kind == "LSTMCell" else [last]), *lengths]

    found = job(build)
    for seed in range(4):
        counts = found.run({"start": numbers(seed, 3, 4), "tokens": np.array([0, seed, 3], np.int64)})
    steps = settings["max_step_num"] + 1
    assert counts["launches"] <= 27 + 3 * steps and sum(counts.get(kind, 0) for kind in WAITS) <= 4 + steps
    assert found.parts().count("region") == 1
    (region,) = (part for part in found.plan.block(1).work if isinstance(part, Region))
    assert region.specializations.kept and not region.divisions


def test_beams_run_on_the_host_between_regions() -> None:
    def build() -> list[Any]:
        return decoding._beams(fluid, "GRUCell", max_step_num=5)[:1]

    found = job(build)
    for seed in range(3):
        found.run({"start": numbers(seed, 2, 4)})
    assert "region" in found.parts()


def test_what_is_drawn_in_steps_is_what_the_cpu_draws() -> None:
    def step(state: Any, i: Any) -> Any:
        noise = L.uniform_random_batch_size_like(state, [-1, WIDTH], seed=7)
        return L.fc(state, WIDTH, act="tanh") + noise + L.gaussian_random([3, WIDTH], seed=3)

    job(until_fed(step)).run(fed(3))


# ---------------------------------------------------------------- inputs that stay
@dataclass(slots=True)
class Copies:
    """How many arrays were copied to where graphs read them, and how many came."""

    copied: int = 0
    given: int = 0


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Copies:
    """Counts those of all regions."""
    found, take = Copies(), moving.Inputs.take

    def counted(self: Any, given: Sequence[Any], run: object = None) -> None:
        last = [each() for each in self._last] if run is not None and run is self._run else [None] * len(given)
        found.given += len(given)
        found.copied += sum(there is not array for there, array in zip(last, given, strict=True))
        take(self, given, run)

    monkeypatch.setattr(moving.Inputs, "take", counted)
    return found


def with_context(step: Callable[[Any, Any, Any], Any]) -> Build:
    """Steps that read `context`, which is fed and that an encoder goes over."""

    def build() -> list[Any]:
        encoded = L.fc(L.data("context", [7, WIDTH]), WIDTH, num_flatten_dims=2, act="tanh")
        return until_fed(lambda state, i: step(state, i, encoded))()  # type: ignore[return-value]

    return build


def attended(state: Any, i: Any, encoded: Any) -> Any:
    asked = L.unsqueeze(L.fc(state, WIDTH), [1])
    weights = L.softmax(L.matmul(asked, encoded, transpose_y=True))
    return L.fc([state, L.squeeze(L.matmul(weights, encoded), [1])], WIDTH, act="tanh")


def with_words(steps: int, seed: int = 0) -> dict[str, Any]:
    return {**fed(steps, seed), "context": numbers(seed + 50, 3, 7, WIDTH)}


def test_what_an_encoder_left_is_copied_once(copies: Copies) -> None:
    found = job(with_context(attended))
    for seed in range(3):
        found.run(with_words(8, seed))
    before = copies.copied, copies.given
    found.run(with_words(8, seed=9))
    outside, steps = 2, 8
    assert copies.given - before[1] == outside + 2 * steps
    assert copies.copied - before[0] == outside + 1 + steps


def test_a_step_with_a_large_context_is_as_many_launches_as_one_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "MOST", 3 * 7 * WIDTH - 1)
    assert per_step(job(with_context(attended)), with_words(2), with_words(12), 10) == [3, 0]


def test_an_input_that_changes_in_the_loop_is_copied_in_every_step(copies: Copies) -> None:
    def build() -> list[Any]:
        seen = L.scale(L.data("context", [WIDTH]), 1.0)

        def step(state: Any, i: Any) -> Any:
            after = L.fc([state, seen], WIDTH, act="tanh")
            L.assign(seen * 0.5, seen)
            return after

        return until_fed(step)()  # type: ignore[return-value]

    found = job(build)
    for seed in range(3):
        copies.copied = copies.given = 0
        found.run({**with_words(6, seed), "context": numbers(seed, 3, WIDTH)})
    assert copies.copied == copies.given


def test_an_input_that_changes_in_one_step_is_copied_again_there() -> None:
    def build() -> list[Any]:
        seen, three = L.scale(L.data("context", [WIDTH]), 1.0), L.fill_constant([1], "int64", 3)

        def step(state: Any, i: Any) -> Any:
            L.assign(L.cond(L.equal(i, three), lambda: seen * 2.0, lambda: seen), seen)
            return L.fc([state, seen], WIDTH, act="tanh")

        return until_fed(step)()  # type: ignore[return-value]

    found = job(build)
    for steps in (3, 4, 7, 7):
        found.run({**with_words(steps, steps), "context": numbers(steps, 3, WIDTH)})


def test_a_loop_that_is_entered_twice_reads_other_values() -> None:
    def build() -> list[Any]:
        """The context changes between two entries of the inner loop, which leave it alone."""
        state, i = L.scale(L.data("start", [WIDTH]), 1.0), L.zeros([1], "int64")
        n, seen = L.data("n", [1], dtype="int64", append_batch_size=False), L.scale(L.data("context", [WIDTH]), 1.0)
        more = L.less_than(i, n)
        outer = L.While(more)
        with outer.block():
            j, three = L.fill_constant([1], "int64", 0), L.fill_constant([1], "int64", 3)
            again = L.less_than(j, three)
            inner = L.While(again)
            with inner.block():
                L.assign(L.fc([state, seen], WIDTH, act="tanh"), state)
                L.increment(j, 1, in_place=True)
                L.less_than(j, three, cond=again)
            L.assign(L.fc(seen, WIDTH, act="tanh"), seen)
            L.increment(i, 1, in_place=True)
            L.less_than(i, n, cond=more)
        return [state, seen]

    found = job(build)
    for steps in (2, 5):
        found.run({**fed(steps), "context": numbers(steps, 3, WIDTH)})


def beside_fed(after_step: Callable[[Any], object]) -> Build:
    """Steps that read what is fed as it is; `after_step` is given the state behind each."""

    def build() -> list[Any]:
        seen = L.data("context", [WIDTH])

        def step(state: Any, i: Any) -> Any:
            after = L.fc([state, seen], WIDTH, act="tanh")
            after_step(after)
            return after

        return until_fed(step)()[:1]  # type: ignore[return-value]

    return build


def test_what_a_script_changes_where_it_is_is_read_by_the_next_run(cupy: Any) -> None:
    found, there = job(beside_fed(lambda state: None)), cupy.asarray(numbers(1, 3, WIDTH))
    for _ in range(3):
        found.run({**fed(4), "context": LoDTensor(there)})
        there += 1.0


def test_what_a_function_changes_where_it_is_is_read_by_the_next_step(cupy: Any) -> None:
    there: list[Any] = []

    def change(_: Any) -> None:
        there[-1][...] = there[-1] * 0.5

    found, results = job(beside_fed(lambda state: L.py_func(change, state, None))), []
    for executor, scope, array in zip(found.executors, found.scopes, (np.asarray, cupy.asarray), strict=True):
        there.append(array(numbers(1, 3, WIDTH)))
        results += executor.run(found.main, {**fed(5), "context": there[-1]}, found.fetched, scope=scope)
    np.testing.assert_allclose(results[1], results[0], rtol=2e-5, atol=1e-6)


# ---------------------------------------------------------------- loops that could have been unrolled
def test_a_loop_whose_lengths_come_once_has_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_regions, "EAGER", 0)

    def build() -> list[Any]:
        words, rnn = L.data("words", [WIDTH], lod_level=1), L.DynamicRNN()
        with rnn.block():
            word, state = rnn.step_input(words), rnn.memory(shape=[WIDTH])
            after = L.fc([word, state], WIDTH, act="tanh")
            rnn.update_memory(state, after)
            rnn.output(after)
        return [rnn(), L.sequence_last_step(rnn())]

    found = job(build)
    for seed, lengths in enumerate([[3, 1, 4], [2, 2, 5], [1, 6, 3]]):
        words = LoDTensor(numbers(seed, sum(lengths), WIDTH), [[0, *np.cumsum(lengths).tolist()]])
        found.run({"words": words})
    assert "region" in found.parts()


def test_a_static_rnn_with_an_operator_that_has_no_place_has_regions() -> None:
    def build() -> list[Any]:
        rnn = L.StaticRNN()
        with rnn.step():
            word = rnn.step_input(L.data("x", [4, 3, WIDTH], append_batch_size=False))
            state = rnn.memory(shape=[-1, WIDTH], batch_ref=word)
            after = L.elu(L.fc([word, state], WIDTH))
            rnn.update_memory(state, L.fc(after, WIDTH, act="tanh"))
            rnn.output(after)
        return [rnn()]

    found = job(build)
    for seed in range(3):
        found.run({"x": numbers(seed, 4, 3, WIDTH)})
    assert found.parts().count("region") == 2


# ---------------------------------------------------------------- who looks
def test_reports_count_the_operators_of_steps() -> None:
    found = job(until_fed(layer))
    for _ in range(2):
        found.run(fed(2))
    used = engine_used(found.executors[1]._runtime, found.plan, "")
    assert used["name"] == "cuda" and used["regions"] == 1
    assert used["operators"] == sum(len(found.plan.block(block).steps) for block in (0, 1))
    assert "only known when the program runs" in " ".join(used["left_to_numpy"].values())


def test_profiles_name_the_calls_of_a_step_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "GPU_SIZES", (1 << 10, 1 << 12))
    monkeypatch.setattr(machine, "GPU_MATRIX", 8)
    found = job(until_fed(layer))
    with fluid.scope_guard(found.scopes[0]):
        fluid.io.save_inference_model(str(tmp_path), ["start", "n"], found.fetched[:1], found.executors[0], found.main)
    np.savez(tmp_path / "feed.npz", **fed(5))
    items = call_json("profile", tmp_path, "--feed", tmp_path / "feed.npz", "--device", "gpu")["items"]
    regions = [item["name"] for item in items if item["engine"] == "cuda"]
    assert len(regions) == len(set(regions)) and "in and out of region 1" in regions
    assert {item["name"] for item in items if item["engine"] == "cupy"} >= {"while", "increment", "less_than"}


def test_who_looks_at_every_step_sees_operators() -> None:
    found = job(until_fed(layer))
    seen: list[str] = []

    def observer(step: Any, block: int) -> None:
        step.run()
        if block == 1:
            seen.append(step.context.op.type)

    executor = found.executors[1]._runtime
    executor.run(found.main, fed(2), [each.name for each in found.fetched], found.scopes[1], observer=observer)
    assert seen == 2 * ["increment", "less_than", "mul", "elementwise_add", "tanh", "assign"]


def test_small_steps_of_a_program_that_is_trained_keep_their_operators() -> None:
    def build() -> list[Any]:
        state, i = L.fc(L.data("start", [WIDTH]), WIDTH), L.zeros([1], "int64")
        n = L.data("n", [1], dtype="int64", append_batch_size=False)
        states, more = L.array_write(state, i), L.less_than(i, n)
        loop = L.While(more)
        with loop.block():
            after = L.fc(L.array_read(states, i), WIDTH, act="tanh")
            L.increment(i, 1, in_place=True)
            L.array_write(after, i, array=states)
            L.less_than(i, n, cond=more)
        loss = L.mean(L.array_read(states, i))
        fluid.optimizer.SGD(0.1).minimize(loss)
        return [loss]

    found = job(build)
    found.executors[1].run(found.main, fed(2), found.fetched, scope=found.scopes[1])
    assert found.plan.numbers
    assert all(isinstance(part, Step) for part in found.plan.block(1).work)
