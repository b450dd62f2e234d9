"""Steps of loops that read LoDs: a graph for numbers of rows that are rounded up, and for any offsets. The numbers are
the CPU's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import fluidtool
import fluidtool.fluid as fluid
from fluidtool.fluid import layers as L
from fluidtool.runtime.engines.cuda.moving import Inputs
from fluidtool.runtime.engines.registry import device_for
from fluidtool.runtime.graph.filling import rounded_up
from fluidtool.runtime.partition import Region
from fluidtool.tensor import CUDAPlace, LoDTensor
from tests.gpu.cases import tensor
from tests.gpu.standin import EVENTS
from tests.gpu.test_cuda_inner_regions import Job, fed, job, numbers, until_fed
from tests.runtime.native.test_loops import WIDTH, WORDS
from tests.support.golden import corpus, read_arrays, read_json

pytestmark = pytest.mark.usefixtures("cupy")
Between = Callable[[Any, Any, Any], Any]
SENTENCES = ([3, 1, 4], [2, 2, 3], [1, 6, 1], [4, 4, 4], [1, 1, 1], [5, 2, 5])


def test_rows_are_rounded_up_to_few_numbers() -> None:
    assert [rounded_up(rows) for rows in range(1, 18)] == [1, 2, 3, 4, 6, 6, 8, 8, 12, 12, 12, 12, 16, 16, 16, 16, 24]
    assert len({rounded_up(rows) for rows in range(1, 1025)}) == 20


# ---------------------------------------------------------------- steps over the words of sentences
def over_words(between: Between, pool: str = "sum") -> Callable[[], Sequence[Any]]:
    """Steps that repeat a state for each word of its sentence, compute with the words and their ids, and add up."""

    def build() -> list[Any]:
        words, ids = L.data("words", [WIDTH], lod_level=1), L.data("ids", [1], dtype="int64", lod_level=1)

        def step(state: Any, i: Any) -> Any:
            repeated = L.lod_reset(L.sequence_expand(state, words), words)
            found = L.sequence_pool(between(repeated, words, ids), pool)
            return L.fc(found, WIDTH, act="tanh")

        return until_fed(step)()  # type: ignore[return-value]

    return build


def with_sentences(lengths: Sequence[int], steps: int = 3) -> dict[str, Any]:
    rows, offsets = sum(lengths), [[0, *np.cumsum(lengths).tolist()]]
    ids = np.random.default_rng(rows).integers(0, WORDS, (rows, 1)).astype(np.int64)
    return {**fed(steps), "words": LoDTensor(numbers(rows, rows, WIDTH), offsets), "ids": LoDTensor(ids, offsets)}


def region_of(found: Job) -> Region:
    (region,) = (part for part in found.plan.block(1).work if isinstance(part, Region))
    return region


def by_words(state: Any, words: Any) -> Any:
    """Weights of words, which add up to 1 in a sentence."""
    return L.sequence_softmax(L.fc(L.tanh(L.elementwise_add(state, words)), 1, bias_attr=False))


FITTING: dict[str, Between] = {
    "sums": lambda state, words, ids: L.elementwise_add(L.scale(state, 0.5), words),
    "attention": lambda state, words, ids: L.elementwise_mul(words, by_words(state, words), axis=0),
    "one number": lambda state, words, ids: L.elementwise_mul(words, L.reshape(by_words(state, words), [-1]), axis=0),
    "products": lambda state, words, ids: L.fc([state, words], WIDTH, act="relu"),
    "softmax": lambda state, words, ids: L.softmax(L.elementwise_mul(state, words)),
    "concat": lambda state, words, ids: L.concat([L.scale(state, 2.0), words], 1),
    "normalization": lambda state, words, ids: L.layer_norm(L.elementwise_add(state, words)),
    "lookups": lambda state, words, ids: L.elementwise_add(state, L.embedding(ids, [WORDS, WIDTH])),
    "a step of a layer": lambda state, words, ids: L.lod_reset(
        L.gru_unit(L.fc(words, 3 * WIDTH), state, 3 * WIDTH)[0], words
    ),
    "a step of another": lambda state, words, ids: L.lod_reset(L.lstm_unit(words, state, state)[0], words),
    "the best": lambda state, words, ids: L.topk(L.elementwise_add(state, words), WIDTH)[0],
    "backwards": lambda state, words, ids: L.sequence_reverse(L.elementwise_add(state, words)),
    "windows": lambda state, words, ids: L.sequence_conv(L.elementwise_add(state, words), WIDTH, 3),
    "once more": lambda state, words, ids: L.elementwise_add(
        L.sequence_expand_as(L.sequence_pool(state, "max"), words), words
    ),
}


@pytest.mark.parametrize("what", FITTING)
def test_sentences_share_a_graph(what: str) -> None:
    found = job(over_words(FITTING[what]))
    for lengths in (*SENTENCES, *SENTENCES[:3]):
        found.run(with_sentences(lengths))
    region = region_of(found)
    assert len(region.specializations.kept) == len({rounded_up(sum(lengths)) for lengths in SENTENCES}) == 3
    assert not region.divisions and not region.specializations.refused


@pytest.mark.parametrize("pool", ["sum", "average", "sqrt", "max", "first", "last"])
def test_sentences_are_pooled(pool: str) -> None:
    found = job(over_words(FITTING["sums"], pool))
    for lengths in (*SENTENCES, [2, 0, 3], [0, 0, 4]):
        found.run(with_sentences(lengths))
    assert not region_of(found).divisions


def test_a_step_with_new_sentences_is_three_launches_and_one_copy_of_their_offsets() -> None:
    found, counts = job(over_words(FITTING["attention"])), []
    for lengths in ([5, 3, 4], [4, 4, 4], [6, 3, 3]):
        found.run(with_sentences(lengths))
    for lengths, steps in (([4, 5, 3], 2), ([5, 4, 3], 12)):
        counts.append(found.run(with_sentences(lengths, steps)))
    assert counts[1]["launches"] - counts[0]["launches"] == 10 * 3
    assert counts[1].get("copies to the device", 0) == counts[0].get("copies to the device", 0)


OTHERWISE: dict[str, Between] = {
    "means over words": lambda state, words, ids: L.elementwise_sub(
        L.elementwise_add(state, words), L.reduce_mean(words, dim=0)
    ),
    "softmax over words": lambda state, words, ids: L.elementwise_mul(L.softmax(words, axis=0), state),
    "layers over sentences": lambda state, words, ids: L.dynamic_gru(
        L.fc(L.elementwise_add(state, words), 3 * WIDTH), WIDTH
    ),
    "computed ids": lambda state, words, ids: L.elementwise_add(
        L.embedding(L.topk(words, 1)[1], [WORDS, WIDTH]), state
    ),
}


@pytest.mark.parametrize("what", OTHERWISE)
def test_what_reads_other_rows_is_computed_otherwise(what: str) -> None:
    found = job(over_words(OTHERWISE[what]))
    for lengths in SENTENCES[:4]:
        found.run(with_sentences(lengths))
    regions = [part for part in found.plan.block(1).work if isinstance(part, Region)]
    assert all(filled is None for part in regions if part.fillings for filled in part.fillings.known.values())


def test_a_parameter_of_other_values_is_read() -> None:
    found = job(over_words(FITTING["products"]))
    for n, lengths in enumerate(SENTENCES[:4]):
        found.run(with_sentences(lengths))
        for scope in found.scopes:
            for name in ("fc_0.w_0", "fc_1.b_0"):
                value = scope.find_var(name).get_tensor()
                value.set(np.array(value) * np.float32(0.9 - 0.1 * n), value.place())


# ---------------------------------------------------------------- errors
def test_rows_that_do_not_match_are_the_error_of_the_cpu() -> None:
    found = job(over_words(FITTING["sums"]))
    for lengths in SENTENCES[:2]:
        found.run(with_sentences(lengths))
    wrong = with_sentences([3, 4])
    said = [found.error(wrong, place) for place in (0, 1, 1)]
    assert len(set(said)) == 1 and "sequence_expand: X has 3 rows" in said[0]


def test_numbers_of_rows_that_are_rounded_to_the_same_still_do_not_match() -> None:
    def build() -> list[Any]:
        words, others = L.data("words", [WIDTH], lod_level=1), L.data("others", [WIDTH])

        def step(state: Any, i: Any) -> Any:
            repeated = L.lod_reset(L.sequence_expand(state, words), words)
            return L.sequence_pool(L.elementwise_add(repeated, others), "sum")

        return until_fed(step)()  # type: ignore[return-value]

    found = job(build)
    feed = {name: value for name, value in with_sentences([3, 1, 2]).items() if name != "ids"}
    found.run({**feed, "others": numbers(0, 6, WIDTH)})
    said = [found.error({**feed, "others": numbers(0, 5, WIDTH)}, place) for place in (0, 1, 1)]
    assert len(set(said)) == 1 and "elementwise_add" in said[0]


def test_an_id_out_of_range_is_the_error_of_the_cpu_and_is_gone_afterwards() -> None:
    found = job(over_words(FITTING["lookups"]))
    found.run(with_sentences([5, 3, 4]))
    wrong = with_sentences([5, 3, 4])
    wrong["ids"].array[11] = WORDS
    said = [found.error(wrong, place) for place in (0, 1)]
    assert len(set(said)) == 1 and f"expected 0 to {WORDS - 1}" in said[0]
    found.run(with_sentences([5, 3, 1]))  # as many rows, rounded up, the last of which held the id


def test_ids_behind_those_that_come_are_in_range(cupy: Any) -> None:
    from fluidtool.runtime.engines.cuda.moving import Mover

    there = cupy.full((6, 1), 99, np.int64)
    inputs = Inputs(Mover(device_for(CUDAPlace(0))), [there])
    for rows in (4, 2, 5):
        inputs.take([cupy.full((rows, 1), 7, np.int64)])
        assert there.get().reshape(-1).tolist() == [7] * rows + [0] * (6 - rows)


# ---------------------------------------------------------------- beams
def sentences(seed: int, count: int) -> LoDTensor:
    random = np.random.default_rng(seed)
    lengths = random.integers(2, 7, count)
    words = random.integers(0, 20, (lengths.sum(), 1)).astype(np.int64)
    return LoDTensor(words, [[0, *np.cumsum(lengths).tolist()]])


def test_a_beam_search_of_new_sentences_compiles_little() -> None:
    folder = corpus("models") / "seq2seq_beam"
    arrays, entries = read_arrays(folder / "golden.npz"), read_json(folder / "case.json")["feeds"]
    models = [fluidtool.load(folder / "combined", place=place) for place in (fluid.CPUPlace(), CUDAPlace(0))]
    feed = {entry["name"]: tensor(arrays, f"feed_{n}", entry) for n, entry in enumerate(entries)}
    launches = []
    for seed in range(14):
        feed["src_word_id"] = sentences(seed, 3)
        want = models[0].run(feed)
        with EVENTS.counted() as counts:
            found = models[1].run(feed)
        for name, value in want.items():
            assert found[name].lod() == value.lod()
            np.testing.assert_allclose(found[name].numpy(), value.numpy(), rtol=1e-4, atol=1e-6)
        launches.append(counts["launches"])
    assert (
        sorted(launches)[7] <= 76 and max(launches[8:]) < 250
    )  # 640 one by one; a first run makes the calls of a graph
