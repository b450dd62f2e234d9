"""Lookups whose rows are pooled: one step and one specialization for any ids in so many sequences of any lengths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from fluidtool.errors import FluidError
from fluidtool.runtime import Executor
from fluidtool.runtime.graph.rewrites.pooling import pooled_inputs
from fluidtool.runtime.partition import Region
from fluidtool.tensor import LoDTensor
from tests.runtime.native.checking import RTOL, Net

pytestmark = pytest.mark.usefixtures("native")
ROWS = 50
LENGTHS = [3, 1, 7, 2]


class Clicks:
    """Ids of several lookups, each pooled, then a product; one executor runs it with any sequences."""

    def __init__(
        self, width: int = 10, pools: Sequence[str] = ("SUM",), lookup: str = "lookup_table", **attrs: float
    ) -> None:
        self.net, self.executor = Net(), Executor(engine="native")
        net, self.flat = self.net, lookup == "lookup_table_v2"
        self.ids = [self.declared(lod_level=1) for _ in pools]
        self.rows, self.pooled = [], []
        for ids, pool in zip(self.ids, pools, strict=True):
            rows = net.op(
                lookup, "Out", {"Ids": ids, "W": net.parameter(ROWS, width)}, padding_idx=attrs.get("zero", -1)
            )
            self.rows.append(rows)
            settled = {"pooltype": pool, "pad_value": attrs.get("empty", 0.0)}
            self.pooled.append(net.op("sequence_pool", "Out", {"X": rows}, "MaxIndex", **settled))
        joined = net.op("concat", "Out", {"X": self.pooled}, axis=1) if len(pools) > 1 else self.pooled[0]
        self.out = net.op("mul", "Out", {"X": joined, "Y": net.parameter(width * len(pools), 4)})

    def declared(self, lod_level: int) -> str:
        name = self.net.data(of=np.zeros((4, 1) if not self.flat else 4, np.int64))
        self.net.program.global_block().vars[name].lod_level = lod_level
        return name

    def feed(self, *lengths: Sequence[int], seed: int = 0) -> dict[str, LoDTensor]:
        random = np.random.default_rng(seed)
        found = {}
        for name, each in zip(self.ids, lengths * len(self.ids) if len(lengths) == 1 else lengths, strict=True):
            ids = random.integers(0, ROWS, sum(each))
            found[name] = LoDTensor(ids if self.flat else ids[:, None], [[0, *np.cumsum(each).tolist()]])
        return found

    def check(self, feed: dict[str, LoDTensor]) -> None:
        """As numpy computes it."""
        program, scope = self.net.program, self.net.scope
        (got,) = self.executor.run(program, feed, [self.out], scope)
        (want,) = Executor(engine="numpy").run(program, feed, [self.out], scope)
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=0, atol=RTOL * np.abs(want.numpy()).max())

    @property
    def region(self) -> Region:
        (found,) = self.executor.plan(self.net.program, [self.out]).block(0).work
        assert isinstance(found, Region)
        return found

    def steps(self) -> Counter[str]:
        specialization = next(iter(self.region.specializations.kept.values()))
        return Counter(kernel_call.kind.name for kernel_call in specialization.kernel_calls)


@pytest.mark.parametrize("pool", ["SUM", "AVERAGE", "SQRT", "MAX", "FIRST", "LAST"])
@pytest.mark.parametrize("width", [1, 10, 16, 37])
@pytest.mark.parametrize("lookup", ["lookup_table", "lookup_table_v2"])
def test_rows_are_pooled_as_they_are_looked_up(pool: str, width: int, lookup: str) -> None:
    clicks = Clicks(width, [pool], lookup)
    clicks.check(clicks.feed(LENGTHS))
    assert clicks.steps() == {"GATHER_POOL": 1, "PRODUCT": 1}


def test_one_specialization_serves_sequences_of_any_lengths() -> None:
    clicks = Clicks(10, ["SUM", "MAX", "AVERAGE"])
    for seed, lengths in enumerate(([3, 1, 7, 2], [1, 1, 1, 1], [40, 1, 2, 9], [2, 5, 5, 30])):
        clicks.check(clicks.feed(lengths, lengths[::-1], lengths, seed=seed))
    assert len(clicks.region.specializations.kept) == 1


def test_another_number_of_sequences_is_another_specialization() -> None:
    clicks = Clicks()
    clicks.check(clicks.feed([2, 3]))
    clicks.check(clicks.feed([2, 3, 4]))
    assert len(clicks.region.specializations.kept) == 2


@pytest.mark.parametrize("pool", ["SUM", "AVERAGE", "MAX", "LAST"])
def test_empty_sequences_give_the_value_for_them(pool: str) -> None:
    clicks = Clicks(10, [pool], empty=0.25)
    clicks.check(clicks.feed([0, 3, 0, 2]))
    clicks.check(clicks.feed([2, 0, 1, 0]))


@pytest.mark.parametrize("pool", ["SUM", "MAX", "FIRST"])
def test_the_padding_id_stands_for_zeros(pool: str) -> None:
    clicks = Clicks(10, [pool], zero=0)
    feed = clicks.feed(LENGTHS)
    feed[clicks.ids[0]].array[:4] = 0
    clicks.check(feed)


@pytest.mark.parametrize("wrong", [-1, ROWS])
def test_ids_that_are_no_rows_are_refused_in_each_run(wrong: int) -> None:
    clicks = Clicks()
    clicks.check(clicks.feed(LENGTHS))
    feed = clicks.feed(LENGTHS)
    feed[clicks.ids[0]].array[5] = wrong
    with pytest.raises(FluidError, match="id"):
        clicks.executor.run(clicks.net.program, feed, [clicks.out], clicks.net.scope)
    clicks.check(clicks.feed(LENGTHS))


@pytest.mark.parametrize("offsets", [[0, 9, 4, 5, 13], [-1, 3, 4, 5, 13], [0, 3, 4, 99, 13], [0, 3, 4, 5, 14]])
def test_a_lod_that_does_not_fit_is_refused(offsets: list[int]) -> None:
    clicks = Clicks()
    clicks.check(clicks.feed(LENGTHS))
    feed = {clicks.ids[0]: LoDTensor(np.zeros((13, 1), np.int64), [offsets])}
    with pytest.raises(FluidError, match=r"LoD|offset"):
        clicks.executor.run(clicks.net.program, feed, [clicks.out], clicks.net.scope)


def test_rows_that_somebody_else_reads_are_in_memory() -> None:
    clicks = Clicks(10, ["SUM"])
    most = clicks.net.op("sequence_pool", "Out", {"X": clicks.rows[0]}, "MaxIndex", pooltype="MAX")
    both = clicks.net.op("concat", "Out", {"X": [clicks.pooled[0], most]}, axis=1)
    clicks.out = clicks.net.op("mul", "Out", {"X": both, "Y": clicks.net.parameter(20, 4)})
    for lengths in (LENGTHS, [1, 2, 3, 4]):
        clicks.check(clicks.feed(lengths))
    assert len(clicks.region.specializations.kept) == 2 and clicks.steps()["POOL_SEQUENCES"] == 2


def test_sequences_of_another_variable_are_compiled_for_their_lengths() -> None:
    """`lod_reset` says how the rows are cut, not the ids' own LoD."""
    clicks = Clicks(10, ["SUM"])
    other = clicks.declared(lod_level=1)
    cut = clicks.net.op("lod_reset", "Out", {"X": clicks.rows[0], "Y": other})
    pooled = clicks.net.op("sequence_pool", "Out", {"X": cut}, "MaxIndex", pooltype="SUM")
    clicks.out = clicks.net.op("mul", "Out", {"X": pooled, "Y": clicks.net.parameter(10, 4)})
    clicks.ids.append(other)
    for lengths in ([3, 1], [2, 2]):
        clicks.check(clicks.feed([4, 0], lengths))
    assert clicks.region.pooled == frozenset()


def test_rows_of_several_ids_are_compiled_for_their_number() -> None:
    net = Net()
    ids = net.data(of=np.arange(12, dtype=np.int64).reshape(6, 2))
    net.program.global_block().vars[ids].lod_level = 1
    rows = net.op("lookup_table_v2", "Out", {"Ids": ids, "W": net.parameter(ROWS, 5)}, padding_idx=-1)
    pooled = net.op("sequence_pool", "Out", {"X": rows}, "MaxIndex", pooltype="SUM")
    out = net.op("mul", "Out", {"X": pooled, "Y": net.parameter(10, 4)}, x_num_col_dims=1, y_num_col_dims=1)
    net.feeds[ids] = LoDTensor(net.feeds[ids], [[0, 2, 6]])
    (want,), (got,) = net.run("numpy", out), net.run("native", out)
    np.testing.assert_allclose(got, want, rtol=0, atol=RTOL * np.abs(want).max())


def test_what_counts_as_pooled() -> None:
    clicks = Clicks(10, ["SUM", "MAX"])
    ops = clicks.net.program.global_block().ops
    assert pooled_inputs(ops, clicks.ids, [clicks.out]) == set(clicks.ids)
    assert pooled_inputs(ops, clicks.ids, [clicks.rows[0]]) == {clicks.ids[1]}
    assert pooled_inputs(ops[1:], [clicks.rows[0]], [clicks.out]) == frozenset()
