"""What moves and compares the rows of sequences gives numpy's numbers and numpy's LoD within regions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtime.native.checking import Net, agree, check
from tests.runtime.native.test_sequences import lods, sequences

pytestmark = pytest.mark.usefixtures("native")
few = settings(max_examples=40, deadline=None)
lengths_of = st.lists(st.integers(0, 6), min_size=1, max_size=9).filter(any)
widths = st.sampled_from([1, 3, 16, 21])


def worth_a_call(net: Net, x: str, width: int) -> str:
    """A product behind x, which no activation can be folded into."""
    return net.op("mul", "Out", {"X": x, "Y": net.parameter(width, 5)}, x_num_col_dims=1, y_num_col_dims=1)


def checked(net: Net, out: str, width: int, rtol: float = 3e-6) -> None:
    """The rows themselves, what is computed of them, and their LoD."""
    fetches = (out, worth_a_call(net, out, width))
    check(net, *fetches, rtol=rtol, scale=width**0.5)
    assert lods(net, "native", *fetches) == lods(net, "numpy", *fetches)


@few
@given(lengths_of, widths, st.integers(1, 4), st.integers(-5, 3))
def test_sequence_conv(lengths: list[int], width: int, times: int, start: int) -> None:
    net = Net()
    inputs = {"X": sequences(net, lengths, width), "Filter": net.parameter(times * width, 7)}
    out = net.op("sequence_conv", "Out", inputs, contextLength=times, contextStart=start, contextStride=1)
    check(net, out, scale=(times * width) ** 0.5)
    assert lods(net, "native", out) == lods(net, "numpy", out)


def test_learned_rows_around_sequences_are_left_to_numpy() -> None:
    net = Net()
    inputs = {"X": sequences(net, [3, 4], 5), "Filter": net.parameter(15, 7), "PaddingData": net.parameter(2, 5)}
    attrs: dict[str, Any] = {"contextLength": 3, "contextStart": -1, "contextStride": 1, "paddingTrainable": True}
    agree(net, [net.op("sequence_conv", "Out", inputs, **attrs)], scale=4)
    assert net.why_not() == ["learned rows around sequences"]


@few
@given(lengths_of, widths)
def test_sequence_reverse(lengths: list[int], width: int) -> None:
    net = Net()
    checked(net, net.op("sequence_reverse", "Y", {"X": sequences(net, lengths, width)}), width)


@few
@given(lengths_of, widths, st.booleans(), st.data())
def test_sequence_expand(lengths: list[int], width: int, in_sequences: bool, data: st.DataObject) -> None:
    net = Net()
    repeats = data.draw(st.lists(st.integers(0, 3), min_size=len(lengths), max_size=len(lengths)).filter(any))
    x = sequences(net, lengths, width) if in_sequences else net.data(len(lengths), width)
    if in_sequences and not any(a * b for a, b in zip(lengths, repeats, strict=True)):
        return
    out = net.op("sequence_expand", "Out", {"X": x, "Y": sequences(net, repeats, 2)}, ref_level=-1)
    checked(net, out, width)


@few
@given(lengths_of, widths)
def test_sequence_expand_as(lengths: list[int], width: int) -> None:
    net = Net()
    inputs = {"X": net.data(len(lengths), width), "Y": sequences(net, lengths, 2)}
    checked(net, net.op("sequence_expand_as", "Out", inputs), width)


@few
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4)), min_size=1, max_size=6), widths)
def test_sequence_concat(lengths: list[tuple[int, int]], width: int) -> None:
    net = Net()
    first, second = ([pair[number] for pair in lengths] for number in (0, 1))
    if not sum(first):
        return
    parts = [sequences(net, first, width), sequences(net, second, width)]
    checked(net, net.op("sequence_concat", "Out", {"X": parts}), width)


def test_sequences_side_by_side() -> None:
    net = Net()
    x = sequences(net, [2, 0, 3], 4)
    checked(net, net.op("concat", "Out", {"X": [x, net.op("relu", "Out", {"X": x})]}, axis=1), 8)


def test_sequences_one_behind_the_other_are_left_to_numpy() -> None:
    net = Net()
    x = sequences(net, [2, 3], 4)
    out = net.op("concat", "Out", {"X": [x, net.op("relu", "Out", {"X": x})]}, axis=0)
    agree(net, [worth_a_call(net, out, 4)], scale=2)
    assert net.why_not() == ["concat of sequences along axis 0"]


@few
@given(st.lists(st.sampled_from([0, 1, 2, 15, 16, 40]), min_size=1, max_size=6).filter(any), st.integers(0, 99))
def test_sequence_softmax(lengths: list[int], seed: int) -> None:
    net = Net(seed)
    checked(net, net.op("sequence_softmax", "Out", {"X": sequences(net, lengths, 1)}), 1)


def test_sequence_softmax_of_what_is_no_number() -> None:
    net = Net()
    x = sequences(net, [20, 3, 18], 1)
    net.feeds[x].array[[4, 21], 0] = np.nan, -np.inf
    agree(net, [worth_a_call(net, net.op("sequence_softmax", "Out", {"X": x}), 1)])
    assert net.why_not() == []


@few
@given(st.integers(1, 9), widths, st.booleans())
def test_cos_sim(rows: int, width: int, one_for_all: bool) -> None:
    net = Net()
    inputs = {"X": net.data(rows, width), "Y": net.data(1 if one_for_all else rows, width)}
    check(net, net.op("cos_sim", "Out", inputs, "XNorm", "YNorm"), scale=1)


def test_softsign() -> None:
    net = Net()
    x = net.data(5, 21)
    checked(net, net.op("softsign", "Out", {"X": net.op("scale", "Out", {"X": x}, scale=9.0, bias=0.0)}), 21)
