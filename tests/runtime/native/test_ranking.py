"""Places of the largest numbers, and splits: what numpy's kernels give, ties and NaN included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor
from fluidtool.tensor import LoDTensor
from tests.runtime.native.checking import Array, Net, agree, check

pytestmark = pytest.mark.usefixtures("native")
few = settings(max_examples=60, deadline=None)
NUMBERS = [-np.inf, -1.0, -0.0, 0.0, 1.0, 2.0, np.inf]


def among(shape: tuple[int, ...], seed: int, ties: bool, nan: bool) -> Array:
    """Numbers, many of them equal if there are to be `ties`."""
    random = np.random.default_rng(seed)
    numbers = random.choice(NUMBERS, shape) if ties else random.standard_normal(shape)
    numbers[random.random(shape) < (0.3 if nan else 0)] = np.nan
    return numbers.astype(np.float32)


def within(net: Net, numbers: Array) -> str:
    """The numbers, in a region that is worth a call."""
    return net.op("reshape2", "Out", {"X": net.data(of=numbers)}, "XShape", shape=list(numbers.shape))


def worth(net: Net) -> str:
    """Something that makes all of a program one region."""
    return net.op("softmax", "Out", {"X": net.data(2, 3)}, axis=-1)


# ---------------------------------------------------------------- arg_max, arg_min
@few
@given(st.data(), st.booleans(), st.booleans(), st.integers(0, 1000))
def test_place_of_an_extreme(data: st.DataObject, ties: bool, nan: bool, seed: int) -> None:
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 7, 16, 17, 33, 40]), min_size=2, max_size=3)))
    axis, keep = data.draw(st.integers(-len(shape), len(shape) - 1)), data.draw(st.booleans())
    net = Net()
    x = within(net, among(shape, seed, ties, nan))
    found = [net.op(type, "Out", {"X": x}, axis=axis, keepdims=keep, dtype=-1) for type in ("arg_max", "arg_min")]
    check(net, worth(net), *found)


def test_place_in_a_vector_without_dimensions_is_left_to_numpy() -> None:
    net = Net()
    x = net.op("softmax", "Out", {"X": net.data(9)}, axis=-1)
    agree(net, [net.op("arg_max", "Out", {"X": x}, axis=0)])
    assert net.why_not() == ["a result without dimensions"]


def test_places_of_32_bits_are_left_to_numpy() -> None:
    net = Net()
    x = net.op("softmax", "Out", {"X": net.data(2, 9)}, axis=-1)
    agree(net, [net.op("arg_max", "Out", {"X": x}, axis=1, dtype=int(VarType.INT32))])
    assert net.why_not() == ["indices of a type other than int64"]


def test_place_of_the_largest_channel_of_an_image() -> None:
    net = Net()
    x = net.conv(net.data(2, 3, 9, 7), net.parameter(19, 3, 3, 3), paddings=[1, 1])
    check(net, net.op("arg_max", "Out", {"X": net.op("softmax", "Out", {"X": x}, axis=1)}, axis=1))


def test_rows_of_a_table_by_computed_places_are_looked_up_by_numpy() -> None:
    net = Net()
    place = net.op("arg_max", "Out", {"X": net.op("softmax", "Out", {"X": net.data(4, 9)}, axis=-1)}, axis=1)
    row = net.op("lookup_table_v2", "Out", {"W": net.parameter(9, 5), "Ids": place})
    agree(net, [net.op("softmax", "Out", {"X": row}, axis=-1)])
    assert net.why_not() == ["Ids that is computed"]
    (whole,) = net.plan.work
    assert len(whole.parts) == 3  # type: ignore[union-attr]


# ---------------------------------------------------------------- top_k
@few
@given(st.data(), st.booleans(), st.booleans(), st.integers(0, 1000))
def test_top_k(data: st.DataObject, ties: bool, nan: bool, seed: int) -> None:
    size = data.draw(st.sampled_from([1, 2, 5, 16, 31, 130, 300]))
    shape = (*data.draw(st.lists(st.integers(1, 4), max_size=2)), size)
    k = data.draw(st.integers(1, min(size, 20)))
    net = Net()
    x = within(net, among(shape, seed, ties, nan))
    type = data.draw(st.sampled_from(["top_k", "top_k_v2"]))
    check(net, worth(net), *net.several(type, {"Out": 1, "Indices": 1}, {"X": x}, k=k))


def test_only_the_places_are_read() -> None:
    net = Net()
    probabilities = net.op("softmax", "Out", {"X": net.data(5, 40)}, axis=-1)
    check(net, net.several("top_k", {"Out": 1, "Indices": 1}, {"X": probabilities}, k=3)[1])


@pytest.mark.parametrize(
    ("attrs", "why"),
    [({"axis": 0}, "an axis other than the last"), ({"largest": False}, "the smallest elements")],
)
def test_top_k_that_is_left_to_numpy(attrs: dict[str, Any], why: str) -> None:
    net = Net()
    x = net.op("softmax", "Out", {"X": net.data(4, 9)}, axis=-1)
    agree(net, net.several("top_k_v2", {"Out": 1, "Indices": 1}, {"X": x}, k=2, **attrs))
    assert net.why_not() == [why]


def test_top_k_keeps_sequences() -> None:
    net = Net()
    x = net.data(5, 9)
    net.feeds[x] = LoDTensor(net.feeds[x], [[0, 2, 5]])
    found = net.several("top_k", {"Out": 1, "Indices": 1}, {"X": net.op("softmax", "Out", {"X": x}, axis=-1)}, k=2)
    check(net, *found)
    values = Executor(engine="native").run(net.program, net.feeds, found, net.scope)
    assert [value.lod() for value in values] == [[[0, 2, 5]]] * 2


# ---------------------------------------------------------------- split
@pytest.mark.parametrize(
    ("shape", "attrs", "count"),
    [
        ((2, 12, 5, 3), {"num": 3, "axis": 1}, 3),
        ((2, 12, 5, 3), {"sections": [5, -1, 4], "axis": 1}, 3),
        ((2, 12), {"sections": [1, 11], "axis": -1}, 2),
        ((7, 3), {"sections": [2, 5], "axis": -2}, 2),
        ((4, 3), {"num": 1, "axis": 0}, 1),
    ],
)
def test_split(shape: tuple[int, ...], attrs: dict[str, Any], count: int) -> None:
    net = Net()
    x = net.op("softmax", "Out", {"X": net.data(*shape)}, axis=-1)
    pieces = net.several("split", {"Out": count}, {"X": x}, **attrs)
    check(net, *pieces, net.op("relu", "Out", {"X": pieces[-1]}))


def test_halves_of_the_channels_go_their_own_ways() -> None:
    net = Net()
    x = net.conv(net.data(2, 3, 8, 8), net.parameter(36, 3, 3, 3))
    left, right = net.several("split", {"Out": 2}, {"X": x}, num=2, axis=1)
    right = net.conv(right, net.parameter(18, 18, 3, 3), paddings=[1, 1])
    check(net, net.op("concat", "Out", {"X": [left, right]}, axis=1), scale=100)


@pytest.mark.parametrize(("axis", "lods"), [(0, [[], []]), (1, [[[0, 2, 6]]] * 2)])
def test_pieces_of_rows_have_their_lod(axis: int, lods: list[Any]) -> None:
    net = Net()
    x = net.data(6, 8)
    net.feeds[x] = LoDTensor(net.feeds[x], [[0, 2, 6]])
    pieces = net.several("split", {"Out": 2}, {"X": net.op("softmax", "Out", {"X": x}, axis=-1)}, num=2, axis=axis)
    check(net, *pieces)
    values = Executor(engine="native").run(net.program, net.feeds, pieces, net.scope)
    assert [value.lod() for value in values] == lods


def test_an_empty_piece_is_left_to_numpy() -> None:
    net = Net()
    x = net.op("softmax", "Out", {"X": net.data(2, 5)}, axis=-1)
    agree(net, net.several("split", {"Out": 2}, {"X": x}, sections=[5, 0], axis=1))
    assert net.why_not() == ["sizes that do not add up"]
