"""Cutting variables into shards of whole rows."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluidtool.distribute.sharding import cut_variable, row_counts
from fluidtool.ir import Program, Variable
from fluidtool.proto.enums import VarType

SHAPES = st.lists(st.integers(1, 400), min_size=1, max_size=4).map(tuple)
SERVERS = st.integers(1, 12)
SIZES = st.sampled_from([1, 7, 100, 8192, 20000])


def variable(shape: tuple[int, ...], kind: VarType = VarType.LOD_TENSOR) -> Variable:
    return Program().global_block().create_var(name="w", shape=shape, dtype="float32", type=kind)


@pytest.mark.parametrize(
    ("shape", "servers", "rows"),
    [
        ((1000, 50), 2, [500, 500]),
        ((50,), 2, [50]),
        ((1000, 50), 3, [334, 334, 332]),
        ((1000, 50), 100, [167, 167, 167, 167, 167, 165]),  # 6 shards of at least 8192 elements
        ((3, 30000), 2, [2, 1]),
        ((2, 30000), 7, [1, 1]),  # never less than a row
        ((8191, 2), 2, [8191]),  # 16382 elements make one shard of 8192
        ((8192, 2), 2, [4096, 4096]),
        ((16384,), 2, [8192, 8192]),
        ((1, 100000), 4, [1]),
    ],
)
def test_rows_of_each_shard(shape: tuple[int, ...], servers: int, rows: list[int]) -> None:
    assert row_counts(shape, servers, 8192) == rows


@given(SHAPES, SERVERS, SIZES)
def test_shards_cover_every_row_once(shape: tuple[int, ...], servers: int, size: int) -> None:
    rows = row_counts(shape, servers, size)
    assert sum(rows) == shape[0]
    assert min(rows) > 0


@given(SHAPES, SERVERS, SIZES)
def test_there_are_never_more_shards_than_servers_and_all_but_the_last_are_alike(
    shape: tuple[int, ...], servers: int, size: int
) -> None:
    rows = row_counts(shape, servers, size)
    assert len(rows) <= servers
    assert len(set(rows[:-1])) <= 1
    assert rows[-1] <= rows[0]


@given(SHAPES, SERVERS, SIZES)
def test_shards_but_the_last_have_the_least_size(shape: tuple[int, ...], servers: int, size: int) -> None:
    rows = row_counts(shape, servers, size)
    assert all(count * prod(shape[1:]) >= size for count in rows[:-1])


@given(SHAPES, SERVERS, SIZES)
def test_offsets_say_where_a_shard_begins(shape: tuple[int, ...], servers: int, size: int) -> None:
    shards = cut_variable(variable(shape), "w", servers, size)
    assert [shard.offset for shard in shards] == [sum(p.elements for p in shards[:i]) for i in range(len(shards))]
    assert sum(shard.elements for shard in shards) == prod(shape)


def test_shards_are_named_block_and_keep_kind_and_data_type() -> None:
    shards = cut_variable(variable((1000, 50), VarType.SELECTED_ROWS), "p", 2, 8192)
    assert [(p.name, p.parameter, p.index, p.shape) for p in shards] == [
        ("w.block0", "p", 0, (500, 50)),
        ("w.block1", "p", 1, (500, 50)),
    ]
    assert {p.type for p in shards} == {VarType.SELECTED_ROWS}
    assert {p.dtype for p in shards} == {VarType.FP32}
    assert all(p.cut for p in shards)


def test_a_variable_that_stays_whole_keeps_its_name() -> None:
    (shard,) = cut_variable(variable((10, 10)), "w", 4, 8192)
    assert (shard.name, shard.shape, shard.cut) == ("w", (10, 10), False)
