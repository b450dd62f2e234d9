"""Regions over sequences give numpy's numbers and numpy's LoD."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluidtool.errors import FluidError
from fluidtool.runtime import Executor
from fluidtool.tensor import LoDTensor
from tests.runtime.native.checking import Net, agree, check

pytestmark = pytest.mark.usefixtures("native")
few = settings(max_examples=40, deadline=None)
lengths_of = st.lists(st.integers(0, 6), min_size=1, max_size=17).filter(any)
activations = st.sampled_from(["sigmoid", "tanh", "relu", "identity"])


def sequences(net: Net, lengths: list[int], *width: int) -> str:
    """An input of sequences of these lengths."""
    name = net.data(sum(lengths), *width)
    net.feeds[name] = LoDTensor(net.feeds[name], offsets(lengths))
    return name


def offsets(lengths: list[int]) -> list[list[int]]:
    return [[0, *np.cumsum(lengths).tolist()]]


def lstm(net: Net, gates: str, size: int, peepholes: bool = False, **attrs: Any) -> str:
    inputs = {
        "Input": gates,
        "Weight": net.parameter(of=small(net, size, 4 * size) / np.float32(size**0.5)),
        "Bias": net.parameter(of=small(net, 1, (7 if peepholes else 4) * size)),
    }
    return net.op("lstm", "Hidden", inputs, "Cell", "BatchGate", "BatchCellPreAct", use_peepholes=peepholes, **attrs)


def small(net: Net, *shape: int) -> np.ndarray[Any, Any]:
    """Numbers that keep a cell without bounds from growing, and its rounding errors with it."""
    return 0.25 * net.random.standard_normal(shape).astype(np.float32)


def lods(net: Net, engine: str, *fetches: str) -> list[Any]:
    values = Executor(engine=engine).run(net.program, net.feeds, list(fetches), net.scope)
    return [value.lod() for value in values]


@few
@given(
    lengths_of,
    st.sampled_from([1, 2, 5, 8, 9, 16, 17, 40]),
    st.booleans(),
    st.booleans(),
    activations,
    activations,
    activations,
)
def test_lstm(
    lengths: list[int], size: int, peepholes: bool, reverse: bool, gate: str, cell: str, candidate: str
) -> None:
    net = Net()
    names = {"gate_activation": gate, "cell_activation": cell, "candidate_activation": candidate}
    gates = sequences(net, lengths, 4 * size)
    net.feeds[gates].array *= 0.25
    out = lstm(net, gates, size, peepholes, is_reverse=reverse, **names)
    check(net, out)
    assert lods(net, "native", out) == [offsets(lengths)]


@few
@given(
    lengths_of,
    st.sampled_from([1, 2, 9, 16, 33]),
    st.sampled_from([1, 3, 8, 17, 40]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([(0.0, 0.0), (0.3, 0.0), (0.2, 0.1)]),
    st.sampled_from(["identity", "tanh"]),
)
def test_projected_lstm(
    lengths: list[int],
    size: int,
    fed_back: int,
    peepholes: bool,
    reverse: bool,
    bounds: tuple[float, float],
    projection: str,
) -> None:
    net = Net()
    out = projected_lstm(net, lengths, size, fed_back, peepholes, is_reverse=reverse, cell_clip=bounds[0],
                         proj_clip=bounds[1], proj_activation=projection)  # fmt: skip
    check(net, out, rtol=1e-5)
    assert lods(net, "native", out) == [offsets(lengths)]


def projected_lstm(
    net: Net, lengths: list[int], size: int, fed_back: int, peepholes: bool = False, **attrs: Any
) -> str:
    inputs = {
        "Input": sequences(net, lengths, 4 * size),
        "Weight": net.parameter(of=small(net, fed_back, 4 * size) / np.float32(fed_back**0.5)),
        "ProjWeight": net.parameter(of=small(net, size, fed_back) / np.float32(size**0.5)),
        "Bias": net.parameter(of=small(net, 1, (7 if peepholes else 4) * size)),
    }
    more = ("Cell", "BatchGate", "BatchCellPreAct", "BatchHidden")
    return net.op("lstmp", "Projection", inputs, *more, use_peepholes=peepholes, **attrs)


def test_a_projected_lstm_cut_among_threads() -> None:
    net = Net()
    check(net, projected_lstm(net, [9, 4, 7, 1, 0, 3], 200, 90), rtol=1e-5)


def test_a_projected_lstm_whose_cells_are_read_is_left_to_numpy() -> None:
    net = Net()
    out = projected_lstm(net, [3, 2], 8, 5)
    cells = next(op for op in net.program.global_block().ops if op.type == "lstmp").outputs["Cell"][0]
    agree(net, [out, cells], rtol=1e-5)
    assert net.regions() == 0


@pytest.mark.parametrize("size", [96, 200])
def test_lstm_cut_among_threads(size: int) -> None:
    net = Net()
    gates = sequences(net, [9, 0, 14, 1, 14, 3, 7, 2, 8, 1, 1, 5, 5, 6, 14, 3], 4 * size)
    check(net, lstm(net, gates, size, peepholes=True))


def test_lstm_keeps_numbers_that_are_none() -> None:
    net = Net()
    gates = sequences(net, [3, 2], 36)
    net.feeds[gates].array[1, 4] = np.nan
    out = lstm(net, gates, 9)
    want, got = net.run("numpy", out)[0], net.run("native", out)[0]
    assert np.isnan(want).any() and net.regions() == 1
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))


def gru(net: Net, gates: str, size: int, bias: bool = True, first: str = "", **attrs: Any) -> str:
    inputs = {"Input": gates, "Weight": net.parameter(of=small(net, size, 3 * size) / np.float32(size**0.5))}
    inputs |= {"Bias": net.parameter(of=small(net, 1, 3 * size))} if bias else {}
    inputs |= {"H0": first} if first else {}
    return net.op("gru", "Hidden", inputs, "BatchGate", "BatchResetHiddenPrev", "BatchHidden", **attrs)


@few
@given(
    lengths_of,
    st.sampled_from([1, 2, 5, 8, 9, 16, 17, 40]),
    st.tuples(*[st.booleans()] * 4),
    activations,
    activations,
)
def test_gru(lengths: list[int], size: int, how: tuple[bool, ...], gate: str, candidate: str) -> None:
    net, (reverse, origin, bias, initial) = Net(), how
    gates = sequences(net, lengths, 3 * size)
    net.feeds[gates].array *= 0.25
    first = net.data(of=small(net, len(lengths), size)) if initial else ""
    names = {"gate_activation": gate, "activation": candidate}
    out = gru(net, gates, size, bias, first, is_reverse=reverse, origin_mode=origin, **names)
    check(net, out)
    assert lods(net, "native", out) == [offsets(lengths)]


@pytest.mark.parametrize("size", [96, 200])
@pytest.mark.parametrize("initial", [False, True])
def test_gru_cut_among_threads(size: int, initial: bool) -> None:
    net = Net()
    lengths = [9, 0, 14, 1, 14, 3, 7, 2, 8, 1, 1, 5, 5, 6, 14, 3, 2, 9, 9]
    gates = sequences(net, lengths, 3 * size)
    check(net, gru(net, gates, size, first=net.data(len(lengths), size) if initial else ""))


def test_gru_keeps_numbers_that_are_none() -> None:
    net = Net()
    gates = sequences(net, [3, 2], 27)
    net.feeds[gates].array[1, 4] = np.nan
    out = gru(net, gates, 9)
    want, got = net.run("numpy", out)[0], net.run("native", out)[0]
    assert np.isnan(want).any() and net.regions() == 1
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))


def test_projection_and_gru_are_one_call() -> None:
    net = Net()
    x = sequences(net, [4, 2, 7], 10)
    x = net.op("mul", "Out", {"X": x, "Y": net.parameter(10, 36)})
    out = gru(net, net.op("elementwise_add", "Out", {"X": x, "Y": net.parameter(36)}, axis=1), 12)
    check(net, net.op("sequence_pool", "Out", {"X": out}, "MaxIndex", pooltype="LAST", is_test=True), out, rtol=1e-5)


@few
@given(st.integers(1, 20), st.sampled_from([1, 5, 16, 17, 40]), st.booleans(), st.booleans(), *[st.integers(0, 3)] * 2)
def test_gru_unit(rows: int, size: int, origin: bool, bias: bool, gate: int, candidate: int) -> None:
    net = Net()
    inputs = {"Input": net.data(rows, 3 * size), "HiddenPrev": net.data(rows, size)}
    inputs |= {"Weight": net.parameter(of=small(net, size, 3 * size) / np.float32(size**0.5))}
    inputs |= {"Bias": net.parameter(1, 3 * size)} if bias else {}
    attrs = {"gate_activation": gate, "activation": candidate, "origin_mode": origin}
    check(net, net.op("gru_unit", "Hidden", inputs, "Gate", "ResetHiddenPrev", **attrs), rtol=1e-5)


def test_steps_of_gru_unit_are_one_call() -> None:
    net = Net()
    state = net.data(3, 20)
    weights = net.parameter(of=small(net, 20, 60))
    for _ in range(4):
        inputs = {"Input": net.data(3, 60), "HiddenPrev": state, "Weight": weights}
        state = net.op("gru_unit", "Hidden", inputs, "Gate", "ResetHiddenPrev", activation=2, gate_activation=1)
    check(net, state, rtol=1e-5)


def test_gru_over_no_sequences_is_left_to_numpy() -> None:
    net = Net()
    gates = sequences(net, [3, 2], 12)
    net.feeds[gates] = LoDTensor(net.feeds[gates].array, [[0, 1, 2], [0, 3, 5]])
    out = gru(net, gates, 4)
    with pytest.raises(FluidError, match="LoD of exactly one level"):
        net.run("native", out)


@few
@given(
    lengths_of,
    st.sampled_from([1, 7, 8, 21, 300]),
    st.sampled_from(["SUM", "AVERAGE", "SQRT", "MAX", "FIRST", "LAST"]),
)
def test_sequence_pool(lengths: list[int], width: int, how: str) -> None:
    net = Net()
    x = net.op("softmax", "Out", {"X": sequences(net, lengths, width)})
    out = net.op("sequence_pool", "Out", {"X": x}, "MaxIndex", pooltype=how, pad_value=0.5, is_test=True)
    check(net, out, scale=1.0)
    assert lods(net, "native", out) == [[]]


def test_a_whole_network_over_sequences_is_one_call_for_lengths_that_change() -> None:
    net = Net()
    lengths = [3, 5, 1]
    words = net.data(of=net.random.integers(0, 30, (sum(lengths), 1)).astype(np.int64))
    net.feeds[words] = LoDTensor(net.feeds[words], offsets(lengths))
    x = net.op("lookup_table", "Out", {"W": net.parameter(30, 10), "Ids": words})
    for width in (10, 12):
        x = net.op("mul", "Out", {"X": x, "Y": net.parameter(width, 48)})
        x = net.op("elementwise_add", "Out", {"X": x, "Y": net.parameter(48)}, axis=1)
        x = lstm(net, x, 12)
    pooled = net.op("sequence_pool", "Out", {"X": x}, "MaxIndex", pooltype="MAX", is_test=True)
    check(net, net.op("softmax", "Out", {"X": pooled}), x)
    executor = Executor(engine="native")
    for lengths in ([9], [1, 0, 8], [4, 5]):
        net.feeds[words] = LoDTensor(net.feeds[words].array, offsets(lengths))
        want = Executor(engine="numpy").run(net.program, net.feeds, [x], net.scope)[0]
        got = executor.run(net.program, net.feeds, [x], net.scope)[0]
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=0, atol=3e-6)
        assert got.lod() == want.lod() == offsets(lengths)


@pytest.mark.parametrize("given_by", ["another input", "an attribute"])
def test_lod_reset(given_by: str) -> None:
    net = Net()
    x = net.op("relu", "Out", {"X": net.data(6, 8)})
    if given_by == "another input":
        x = net.op("lod_reset", "Out", {"X": x, "Y": sequences(net, [2, 4], 1)})
    else:
        x = net.op("lod_reset", "Out", {"X": x}, target_lod=[0, 2, 6])
    out = lstm(net, x, 2)
    check(net, out, net.op("sequence_pool", "Out", {"X": out}, "MaxIndex", pooltype="LAST", is_test=True))
    assert lods(net, "native", out) == [offsets([2, 4])]


def test_lod_goes_where_numpy_lets_it_go() -> None:
    net = Net()
    x = sequences(net, [2, 4], 3, 4)
    same = net.op("softmax", "Out", {"X": x})
    reshaped = net.op("reshape2", "Out", {"X": same}, "XShape", shape=[6, 12])
    other = net.op("reshape2", "Out", {"X": same}, "XShape", shape=[12, 6])
    turned = net.op("transpose2", "Out", {"X": same}, "XShape", axis=[0, 2, 1])
    both = net.op("elementwise_add", "Out", {"X": net.data(6, 12), "Y": reshaped})
    fetches = [same, reshaped, other, turned, both]
    check(net, *fetches)
    assert lods(net, "native", *fetches) == lods(net, "numpy", *fetches)


@pytest.mark.parametrize("fault", ["first state", "no sequences", "computed offsets"])
def test_what_has_no_kernel_is_left_to_numpy(fault: str) -> None:
    net = Net()
    x = sequences(net, [2, 4], 8)
    if fault == "first state":
        inputs = {"Input": x, "Weight": net.parameter(2, 8), "Bias": net.parameter(1, 8)}
        inputs |= {"H0": net.data(2, 2), "C0": net.data(2, 2)}
        outputs = ("Cell", "BatchGate", "BatchCellPreAct")
        out = net.op("lstm", "Hidden", inputs, *outputs, use_peepholes=False)
    elif fault == "no sequences":
        with pytest.raises(FluidError, match="LoD"):
            net.run("native", lstm(net, net.data(6, 8), 2))
        return
    else:
        rows = net.data(of=np.array([0, 3, 6], np.int64))
        out = net.op("softmax", "Out", {"X": net.op("lod_reset", "Out", {"X": x, "Y": rows})})
    want, got = net.run("numpy", out)[0], net.run("native", out)[0]
    assert net.why_not()
    np.testing.assert_allclose(got, want, rtol=0, atol=3e-6)
