"""Native kernels of single operators give numpy's numbers, also where sizes do not fit the vectors."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluidtool.errors import OperatorError
from fluidtool.ir import Program
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor, Scope
from fluidtool.runtime.engines.native.kernels import KERNELS, convolution, fastest_kernel, recurrent
from fluidtool.runtime.engines.native.kernels.rows import unique
from fluidtool.runtime.engines.native.library import Library
from fluidtool.tensor import LoDTensor, SelectedRows

pytestmark = pytest.mark.usefixtures("native")
few = settings(max_examples=60, deadline=None)
activations = st.sampled_from(["sigmoid", "tanh", "relu", "identity"])
RTOL = 1e-5  # of the largest number of an output: every step of a sequence rounds anew


def outputs_of(type: str, feeds: dict[str, Any], slots: list[str], engine: str, **attrs: Any) -> dict[str, Any]:
    """Run one operator by itself; feeds by slot."""
    program = Program()
    block = program.global_block()
    for slot in [*feeds, *slots]:
        block.create_var(name=slot, dtype=VarType.FP32)
    block.append_op(
        type=type, inputs={slot: [slot] for slot in feeds}, outputs={slot: [slot] for slot in slots}, attrs=attrs
    )
    values = Executor(engine=engine).run(program, feeds, slots, Scope())
    return {slot: value for slot, value in zip(slots, values, strict=True)}


def agree(
    type: str, feeds: dict[str, Any], slots: list[str], rtol: float = RTOL, scale: float = 0.1, **attrs: Any
) -> dict[str, Any]:
    """Both engines give the same; returns it. scale: how large sums are before their terms cancel."""
    want, got = (outputs_of(type, feeds, slots, engine, **attrs) for engine in ("numpy", "native"))
    for slot in slots:
        a, b = got[slot].numpy(), want[slot].numpy()
        assert a.shape == b.shape and a.dtype == b.dtype and got[slot].lod() == want[slot].lod()
        np.testing.assert_allclose(a, b, rtol=0, atol=rtol * max(float(np.abs(b).max(initial=0)), scale), err_msg=slot)
    return want


def counted(monkeypatch: pytest.MonkeyPatch, type: str) -> list[bool]:
    """Which calls of a native kernel it answered itself."""
    answered: list[bool] = []
    kernel = KERNELS[type]

    def counting(*args: Any, **attrs: Any) -> Any:
        result = kernel(*args, **attrs)
        answered.append(result is not NotImplemented)
        return result

    monkeypatch.setitem(KERNELS, type, counting)
    return answered


@few
@given(
    st.lists(st.integers(1, 4), max_size=2),
    st.sampled_from([1, 7, 40, 3000]),
    st.integers(1, 7),
    st.booleans(),
    st.integers(0, 99),
)
def test_top_k(outer: list[int], size: int, k: int, ties: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    numbers = random.integers(0, 5, (*outer, size)) if ties else random.standard_normal((*outer, size))
    feeds = {"X": numbers.astype(np.float32)}
    agree("top_k", feeds, ["Out", "Indices"], rtol=0, k=min(k, size))


def test_top_k_answers_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "top_k")
    agree("top_k", {"X": np.arange(12, dtype=np.float32).reshape(3, 4)}, ["Out", "Indices"], k=2)
    assert answered == [True]


@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_top_k_says_what_does_not_fit(engine: str) -> None:
    with pytest.raises(OperatorError, match=r"k must be in \[1, 4\]"):
        outputs_of("top_k", {"X": np.zeros((3, 4), np.float32)}, ["Out", "Indices"], engine, k=5)


def check_layer_norm(shape: tuple[int, ...], axis: int, scale: bool, bias: bool) -> None:
    random = np.random.default_rng(0)

    def floats(*sizes: int) -> Any:
        return random.standard_normal(sizes).astype(np.float32)

    feeds = {"X": 3 + 2 * floats(*shape)}
    feeds |= {slot: floats(prod(shape[axis:])) for slot, there in (("Scale", scale), ("Bias", bias)) if there}
    attrs = {"begin_norm_axis": axis, "epsilon": 1e-3}
    forward = agree("layer_norm", feeds, ["Y", "Mean", "Variance"], **attrs)
    statistics = {slot: forward[slot] for slot in ("Mean", "Variance")}
    grads = ["X@GRAD", *(["Scale@GRAD"] if scale else []), *(["Bias@GRAD"] if bias else [])]
    size = prod(shape[: attrs["begin_norm_axis"]]) ** 0.5  # of sums over as many rows
    agree("layer_norm_grad", feeds | statistics | {"Y@GRAD": floats(*shape)}, grads, scale=size, **attrs)


@few
@given(st.lists(st.sampled_from([1, 2, 5, 16, 37]), min_size=2, max_size=4), st.data(), st.booleans(), st.booleans())
def test_layer_norm(shape: list[int], data: st.DataObject, scale: bool, bias: bool) -> None:
    check_layer_norm(tuple(shape), data.draw(st.integers(1, len(shape) - 1)), scale, bias)


def test_layer_norm_cut_among_threads_answers_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "layer_norm"), counted(monkeypatch, "layer_norm_grad")
    check_layer_norm((3, 70, 333), 2, scale=True, bias=True)
    assert answered == ([True], [True])


@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_layer_norm_says_what_does_not_fit(engine: str) -> None:
    feeds = {"X": np.zeros((3, 4), np.float32), "Scale": np.zeros(3, np.float32)}
    with pytest.raises(OperatorError, match="input Scale must hold 4 numbers"):
        outputs_of("layer_norm", feeds, ["Y"], engine)


def check_batch_norm(shape: tuple[int, ...], **attrs: Any) -> None:
    random = np.random.default_rng(0)

    def floats(*sizes: int) -> Any:
        return random.standard_normal(sizes).astype(np.float32)

    channels = shape[1]
    feeds = {"X": 3 + 2 * floats(*shape), "Scale": 1 + floats(channels) / 4, "Bias": floats(channels)}
    running = {"Mean": floats(channels), "Variance": 1 + floats(channels) ** 2}
    attrs = {"momentum": 0.7, "epsilon": 1e-3} | attrs
    forward = agree(
        "batch_norm", feeds | running, ["Y", "MeanOut", "VarianceOut", "SavedMean", "SavedVariance"], **attrs
    )
    saved = {slot: forward[slot] for slot in ("SavedMean", "SavedVariance")}
    more = saved | {"Y@GRAD": floats(*shape)}
    size = (prod(shape) / channels) ** 0.5  # of sums over as many pixels
    agree("batch_norm_grad", feeds | more, ["X@GRAD", "Scale@GRAD", "Bias@GRAD"], scale=size, **attrs)


@few
@given(st.integers(1, 4), st.integers(1, 37), st.lists(st.integers(1, 9), min_size=1, max_size=3), st.booleans())
def test_batch_norm(images: int, channels: int, plane: list[int], relu: bool) -> None:
    check_batch_norm((images, channels, *plane), fuse_with_relu=relu)


def test_batch_norm_cut_among_threads_answers_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "batch_norm"), counted(monkeypatch, "batch_norm_grad")
    check_batch_norm((5, 33, 31, 29))
    assert answered == ([True], [True])


@pytest.mark.parametrize(
    ("shape", "attrs"),
    [
        ((3, 4, 5, 6), {"data_layout": "NHWC"}),
        ((9, 4), {}),
        ((3, 4, 1, 2), {}),
        ((2, 4, 5), {"use_global_stats": True}),
    ],
    ids=["channels last", "no planes", "short planes", "running statistics"],
)
def test_batch_norm_left_to_numpy(
    shape: tuple[int, ...], attrs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = counted(monkeypatch, "batch_norm")
    shape = (shape[0], shape[1], *shape[2:-1], 4) if attrs.get("data_layout") else shape
    random = np.random.default_rng(1)
    vectors = {slot: 1 + random.random(4, np.float32) for slot in ("Scale", "Bias", "Mean", "Variance")}
    agree("batch_norm", {"X": random.random(shape, np.float32), **vectors}, ["Y", "MeanOut"], **attrs)
    assert answered == [False]


@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_batch_norm_says_what_does_not_fit(engine: str) -> None:
    vectors = dict.fromkeys(("Scale", "Bias", "Mean", "Variance"), np.ones(3, np.float32))
    with pytest.raises(OperatorError, match=r"input Scale must have shape \(4,\)"):
        outputs_of("batch_norm", {"X": np.zeros((2, 4, 5, 5), np.float32), **vectors}, ["Y"], engine)


def lstm_feeds(lengths: list[int], size: int, peepholes: bool, initial: bool, seed: int = 0) -> dict[str, Any]:
    random = np.random.default_rng(seed)

    def floats(*shape: int) -> Any:
        return (random.standard_normal(shape) * 0.2).astype(np.float32)  # gates of identity must not grow without end

    bounds = [0, *np.cumsum(lengths).tolist()]
    feeds = {"Input": LoDTensor(floats(bounds[-1], 4 * size), [bounds])}
    if initial:
        feeds |= {"H0": floats(len(lengths), size), "C0": floats(len(lengths), size)}
    return feeds | {"Weight": floats(size, 4 * size), "Bias": floats(1, (7 if peepholes else 4) * size)}


def check_lstm(lengths: list[int], size: int, peepholes: bool, initial: bool, **attrs: Any) -> None:
    feeds = lstm_feeds(lengths, size, peepholes, initial)
    attrs |= {"use_peepholes": peepholes}
    forward = agree("lstm", feeds, ["Hidden", "Cell", "BatchGate", "BatchCellPreAct"], **attrs)
    hidden_grad = np.random.default_rng(1).standard_normal((sum(lengths), size)).astype(np.float32)
    grads = ["Input@GRAD", "Weight@GRAD", "Bias@GRAD", *(["H0@GRAD", "C0@GRAD"] if initial else [])]
    agree("lstm_grad", feeds | forward | {"Hidden@GRAD": hidden_grad}, grads, **attrs)


@few
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=17).filter(any),
    st.sampled_from([1, 2, 3, 5, 7, 8, 9, 12, 16, 17, 24]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    activations,
    activations,
    activations,
)
def test_lstm(
    lengths: list[int], size: int, peepholes: bool, initial: bool, reverse: bool, gate: str, cell: str, candidate: str
) -> None:
    names = {"gate_activation": gate, "cell_activation": cell, "candidate_activation": candidate}
    check_lstm(lengths, size, peepholes, initial, is_reverse=reverse, **names)


@pytest.mark.parametrize("size", [8, 30, 200])
def test_lstm_over_many_and_long_sequences(size: int) -> None:
    check_lstm([40, 3, 0, 17, 33, 1, 40, 25, 2, 8, 60, 12, 5, 5, 31], size, peepholes=True, initial=False)


@pytest.mark.parametrize("tasks", [2, 3, 5])
def test_lstm_gives_the_same_bits_in_any_number_of_tasks(monkeypatch: pytest.MonkeyPatch, tasks: int) -> None:
    feeds = lstm_feeds([9, 1, 4, 4, 7, 2, 1, 12, 3, 5, 2], 24, peepholes=True, initial=True)
    feeds |= {"Hidden@GRAD": np.random.default_rng(1).standard_normal((50, 24)).astype(np.float32)}

    def results(tasks: int) -> list[bytes]:
        monkeypatch.setattr(recurrent, "deal", lambda library, packing, size: (-(-packing.first // tasks), tasks))
        forward = outputs_of(
            "lstm", feeds, ["Hidden", "Cell", "BatchGate", "BatchCellPreAct"], "native", use_peepholes=True
        )
        backward = outputs_of(
            "lstm_grad", feeds | forward, ["Input@GRAD", "H0@GRAD", "C0@GRAD"], "native", use_peepholes=True
        )
        return [value.numpy().tobytes() for value in (forward | backward).values()]

    assert results(tasks) == results(1)


def test_lstm_takes_initial_cells_without_initial_hidden_states() -> None:
    feeds = lstm_feeds([3, 1, 2], 5, peepholes=False, initial=True)
    del feeds["H0"]
    agree("lstm", feeds, ["Hidden", "Cell"], use_peepholes=False)


def test_lstm_answers_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "lstm"), counted(monkeypatch, "lstm_grad")
    check_lstm([2, 3], 6, peepholes=False, initial=True)
    assert answered == ([True], [True])


def test_lstm_keeps_numbers_that_are_none() -> None:
    feeds = lstm_feeds([3, 2], 9, peepholes=False, initial=False)
    feeds["Input"].array[1, 4] = np.nan
    want, got = (outputs_of("lstm", feeds, ["Hidden"], engine, use_peepholes=False) for engine in ("numpy", "native"))
    assert np.isnan(want["Hidden"].numpy()).any()
    np.testing.assert_array_equal(np.isnan(got["Hidden"].numpy()), np.isnan(want["Hidden"].numpy()))


def lstmp_feeds(lengths: list[int], size: int, fed_back: int, peepholes: bool, initial: bool) -> dict[str, Any]:
    random = np.random.default_rng(2)

    def floats(*shape: int) -> Any:
        return (random.standard_normal(shape) * 0.2).astype(np.float32)

    feeds = lstm_feeds(lengths, size, peepholes, initial) | {"Weight": floats(fed_back, 4 * size)}
    if initial:
        feeds["H0"] = floats(len(lengths), fed_back)
    return feeds | {"ProjWeight": floats(size, fed_back) / size**0.5}


def check_lstmp(
    lengths: list[int], size: int, fed_back: int, peepholes: bool = False, initial: bool = False, **attrs: Any
) -> None:
    feeds = lstmp_feeds(lengths, size, fed_back, peepholes, initial)
    attrs |= {"use_peepholes": peepholes}
    kept = ["Projection", "Cell", "BatchGate", "BatchCellPreAct", "BatchHidden"]
    forward = agree("lstmp", feeds, kept, **attrs)
    out_grad = np.random.default_rng(1).standard_normal((sum(lengths), fed_back)).astype(np.float32)
    grads = ["Input@GRAD", "Weight@GRAD", "ProjWeight@GRAD", "Bias@GRAD", *(["H0@GRAD", "C0@GRAD"] if initial else [])]
    given = {slot: value for slot, value in (feeds | forward).items() if slot != "Input"}
    agree("lstmp_grad", given | {"Projection@GRAD": out_grad}, grads, **attrs)


@few
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=17).filter(any),
    st.sampled_from([1, 3, 8, 9, 16, 17, 24]),
    st.sampled_from([1, 2, 7, 8, 16, 19]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.lists(activations, min_size=4, max_size=4),
)
def test_lstmp(
    lengths: list[int], size: int, fed_back: int, peepholes: bool, initial: bool, reverse: bool, names: list[str]
) -> None:
    slots = ("gate_activation", "cell_activation", "candidate_activation", "proj_activation")
    check_lstmp(lengths, size, fed_back, peepholes, initial, is_reverse=reverse, **dict(zip(slots, names, strict=True)))


@pytest.mark.parametrize(("size", "fed_back"), [(8, 30), (30, 8), (200, 90)])
def test_lstmp_over_many_and_long_sequences(size: int, fed_back: int) -> None:
    check_lstmp([40, 3, 0, 17, 33, 1, 40, 25, 2, 8, 60, 12, 5, 5, 31], size, fed_back, peepholes=True)


def test_lstmp_takes_initial_cells_without_an_initial_projection() -> None:
    feeds = lstmp_feeds([3, 1, 2], 5, 4, peepholes=False, initial=True)
    del feeds["H0"]
    agree("lstmp", feeds, ["Projection", "Cell"], use_peepholes=False)


def test_lstmp_answers_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "lstmp"), counted(monkeypatch, "lstmp_grad")
    check_lstmp([2, 3], 6, 4, initial=True)
    assert answered == ([True], [True])


@pytest.mark.parametrize("clip", ["cell_clip", "proj_clip"])
def test_lstmp_with_bounds_is_left_to_numpy(clip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "lstmp"), counted(monkeypatch, "lstmp_grad")
    check_lstmp([2, 3], 6, 4, **{clip: 0.05})
    assert answered == ([False], [False])


@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_lstmp_says_what_does_not_fit(engine: str) -> None:
    feeds = lstmp_feeds([3, 2], 4, 3, peepholes=False, initial=False)
    feeds["ProjWeight"] = feeds["ProjWeight"][:3]
    with pytest.raises(OperatorError, match=r"input ProjWeight must be \(hidden size 4, projection size\)"):
        outputs_of("lstmp", feeds, ["Projection"], engine, use_peepholes=False)


def gru_feeds(lengths: list[int], size: int, bias: bool, initial: bool) -> dict[str, Any]:
    random = np.random.default_rng(0)

    def floats(*shape: int) -> Any:
        return (random.standard_normal(shape) * 0.2).astype(np.float32)

    bounds = [0, *np.cumsum(lengths).tolist()]
    feeds = {"Input": LoDTensor(floats(bounds[-1], 3 * size), [bounds])}
    feeds |= {"H0": floats(len(lengths), size)} if initial else {}
    feeds |= {
        "Weight": floats(size, 3 * size) / np.float32(max(1, size**0.5 / 4))
    }  # so that no error grows by the step
    return feeds | ({"Bias": floats(1, 3 * size)} if bias else {})


def check_gru(lengths: list[int], size: int, bias: bool, initial: bool, **attrs: Any) -> None:
    feeds = gru_feeds(lengths, size, bias, initial)
    forward = agree("gru", feeds, ["BatchGate", "BatchResetHiddenPrev", "BatchHidden", "Hidden"], **attrs)
    hidden_grad = np.random.default_rng(1).standard_normal((sum(lengths), size)).astype(np.float32)
    grads = ["Input@GRAD", "Weight@GRAD", *(["Bias@GRAD"] if bias else []), *(["H0@GRAD"] if initial else [])]
    agree("gru_grad", feeds | forward | {"Hidden@GRAD": hidden_grad}, grads, **attrs)


@few
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=17).filter(any),
    st.sampled_from([1, 2, 3, 5, 7, 8, 9, 12, 16, 17, 24]),
    st.tuples(*[st.booleans()] * 4),
    activations,
    activations,
)
def test_gru(lengths: list[int], size: int, how: tuple[bool, ...], gate: str, candidate: str) -> None:
    bias, initial, reverse, origin = how
    names = {"gate_activation": gate, "activation": candidate}
    check_gru(lengths, size, bias, initial, is_reverse=reverse, origin_mode=origin, **names)


@pytest.mark.parametrize("size", [8, 30, 200])
@pytest.mark.parametrize("initial", [False, True])
def test_gru_over_many_and_long_sequences(size: int, initial: bool) -> None:
    check_gru([40, 3, 0, 17, 33, 1, 40, 25, 2, 8, 60, 12, 5, 5, 31], size, bias=True, initial=initial)


def test_gru_answers_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "gru"), counted(monkeypatch, "gru_grad")
    check_gru([2, 3], 6, bias=True, initial=True)
    assert answered == ([True], [True])


def test_gru_without_rows_is_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "gru")
    agree("gru", gru_feeds([0, 0], 4, bias=True, initial=False), ["Hidden", "BatchHidden"])
    assert answered == [False]


def ragged(lengths: list[int], width: int, seed: int = 0) -> LoDTensor:
    """Sequences of rows."""
    rows = np.random.default_rng(seed).normal(size=(sum(lengths), width)).astype(np.float32)
    return LoDTensor(rows, [[0, *np.cumsum(lengths).tolist()]])


@few
@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=9).filter(any), st.sampled_from([1, 3, 16, 21]),
    st.sampled_from(["SUM", "AVERAGE", "SQRT", "FIRST", "LAST", "MAX"]),
)  # fmt: skip
def test_sequence_pool(lengths: list[int], width: int, how: str) -> None:
    x = ragged(lengths, width)
    slots = ["Out", "MaxIndex"] if how == "MAX" else ["Out"]
    want = agree("sequence_pool", {"X": x}, slots, pooltype=how, pad_value=2.5)
    grad = {"X": x, "Out@GRAD": np.random.default_rng(1).normal(size=(len(lengths), width)).astype(np.float32)}
    given = {**grad, "MaxIndex": want["MaxIndex"]} if how == "MAX" else grad
    agree("sequence_pool_grad", given, ["X@GRAD"], pooltype=how)


@pytest.mark.parametrize("width", [1, 7, 16, 40])
def test_sequence_pool_finds_the_first_of_equal_maxima_and_what_is_no_number(width: int) -> None:
    x = ragged([4, 0, 3, 1], width)
    x.array[:] = np.round(x.array)
    x.array[1, ::3] = x.array[3, ::3] = x.array[5, 1::3] = np.nan
    want, got = (
        outputs_of("sequence_pool", {"X": x}, ["Out", "MaxIndex"], engine, pooltype="MAX")
        for engine in ("numpy", "native")
    )
    for slot in want:
        np.testing.assert_array_equal(got[slot].numpy(), want[slot].numpy())


def test_sequence_pool_answers_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "sequence_pool")
    agree("sequence_pool", {"X": ragged([2, 3], 5)}, ["Out", "MaxIndex"], pooltype="MAX")
    assert answered == [True]


@few
@given(st.lists(st.integers(0, 40), min_size=1, max_size=9).filter(any), st.booleans())
def test_sequence_softmax(lengths: list[int], column: bool) -> None:
    x = ragged(lengths, 1)
    shape = (-1, 1) if column else (-1,)
    x = LoDTensor(x.numpy().reshape(shape), x.lod())
    want = agree("sequence_softmax", {"X": x}, ["Out"])
    grad = np.random.default_rng(1).normal(size=x.shape()).astype(np.float32)
    agree("sequence_softmax_grad", {"X": x, "Out": want["Out"], "Out@GRAD": grad}, ["X@GRAD"])


@few
@given(st.lists(st.integers(0, 6), min_size=1, max_size=9).filter(any), st.sampled_from([1, 3, 16, 21]), st.booleans())
def test_sequence_expand(copies: list[int], width: int, in_sequences: bool) -> None:
    rows = np.random.default_rng(2).normal(size=(len(copies), width)).astype(np.float32)
    x = LoDTensor(rows, [list(range(len(copies) + 1))]) if in_sequences else rows
    y, grad = ragged(copies, 2), ragged(copies, width, 3).numpy()
    agree("sequence_expand", {"X": x, "Y": y}, ["Out"])
    agree("sequence_expand_grad", {"X": x, "Y": y, "Out@GRAD": grad}, ["X@GRAD"])


@pytest.mark.parametrize("column", [False, True])
def test_the_gradient_of_a_factor_for_each_row(column: bool) -> None:
    random = np.random.default_rng(4)
    feeds = {name: random.normal(size=(7, 5)).astype(np.float32) for name in ("X", "Out@GRAD")}
    y = random.normal(size=(7, 1) if column else 7).astype(np.float32)
    agree("elementwise_mul_grad", {**feeds, "Y": y}, ["X@GRAD", "Y@GRAD"], axis=0)


@pytest.mark.parametrize(
    ("type", "given", "slots", "attrs"),
    [
        ("sequence_pool", {}, ["Out"], {"pooltype": "SUM"}),
        ("sequence_softmax", {}, ["Out"], {}),
        ("sequence_pool_grad", {"Out@GRAD": np.ones((2, 1), np.float32)}, ["X@GRAD"], {"pooltype": "AVERAGE"}),
        (
            "sequence_softmax_grad",
            {"Out": np.ones((5, 1), np.float32), "Out@GRAD": np.ones((5, 1), np.float32)},
            ["X@GRAD"],
            {},
        ),
    ],
)
def test_sequences_are_answered(
    type: str, given: dict[str, Any], slots: list[str], attrs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = counted(monkeypatch, type)
    agree(type, {"X": ragged([2, 3], 1), **given}, slots, **attrs)
    assert answered == [True]


@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_a_lod_that_does_not_cover_the_rows_is_refused(engine: str) -> None:
    for type in ("sequence_pool", "sequence_softmax"):
        with pytest.raises(OperatorError, match="covers 4 rows, but it has 5"):
            outputs_of(type, {"X": LoDTensor(np.ones((5, 1), np.float32), [[0, 4]])}, ["Out"], engine)


@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_gru_says_what_does_not_fit(engine: str) -> None:
    feeds = gru_feeds([3, 2], 4, bias=True, initial=False)
    feeds["Bias"] = feeds["Bias"][:, :-1]
    with pytest.raises(OperatorError, match=r"Bias must have shape \(1, 12\)"):
        outputs_of("gru", feeds, ["Hidden"], engine)


def test_lstm_of_other_types_is_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "lstm")
    feeds = lstm_feeds([3, 2], 4, peepholes=False, initial=False)
    doubles = {slot: value.astype(np.float64) for slot, value in feeds.items() if slot != "Input"}
    doubles["Input"] = LoDTensor(feeds["Input"].array.astype(np.float64), feeds["Input"].lod())
    assert agree("lstm", doubles, ["Hidden"], use_peepholes=False)["Hidden"].numpy().dtype == np.float64
    assert answered == [False]


def test_lstm_without_rows_is_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "lstm")
    agree("lstm", lstm_feeds([0, 0], 4, peepholes=False, initial=False), ["Hidden", "Cell"], use_peepholes=False)
    assert answered == [False]


@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_lstm_says_what_does_not_fit(engine: str) -> None:
    feeds = lstm_feeds([3, 2], 4, peepholes=False, initial=False)
    feeds["Bias"] = feeds["Bias"][:, :-1]
    with pytest.raises(OperatorError, match=r"Bias must have shape \(1, 16\)"):
        outputs_of("lstm", feeds, ["Hidden"], engine, use_peepholes=False)


@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_lstm_refuses_an_unknown_activation(engine: str) -> None:
    with pytest.raises(OperatorError, match="gate_activation must be one of"):
        feeds = lstm_feeds([3], 4, peepholes=False, initial=False)
        outputs_of("lstm", feeds, ["Hidden"], engine, use_peepholes=False, gate_activation="gelu")


def update_feeds(shape: tuple[int, ...], *moments: str) -> dict[str, Any]:
    random = np.random.default_rng(0)
    feeds = {slot: random.standard_normal(shape).astype(np.float32) for slot in ("Param", "Grad")}
    feeds |= {slot: random.random(shape).astype(np.float32) for slot in moments}
    return feeds | {"LearningRate": np.array([0.1], np.float32)}


def adam_feeds(shape: tuple[int, ...]) -> dict[str, Any]:
    powers = {"Beta1Pow": np.array([0.9**3], np.float32), "Beta2Pow": np.array([0.999**3], np.float32)}
    return update_feeds(shape, "Moment1", "Moment2") | powers


ADAM = ["ParamOut", "Moment1Out", "Moment2Out", "Beta1PowOut", "Beta2PowOut"]
shapes = st.lists(st.integers(1, 40), min_size=1, max_size=3).map(tuple)


@few
@given(shapes)
def test_adam(shape: tuple[int, ...]) -> None:
    agree("adam", adam_feeds(shape), ADAM, rtol=5e-7)


@few
@given(shapes, st.booleans())
def test_momentum(shape: tuple[int, ...], nesterov: bool) -> None:
    feeds = update_feeds(shape, "Velocity")
    agree("momentum", feeds, ["ParamOut", "VelocityOut"], rtol=5e-7, mu=0.9, use_nesterov=nesterov)


SQUARES = ["ParamOut", "SquaredAccumOut", "LinearAccumOut"]


@few
@given(shapes)
def test_optimizers_that_divide_by_squares(shape: tuple[int, ...]) -> None:
    feeds = update_feeds(shape, "Moment")
    agree("adagrad", feeds, ["ParamOut", "MomentOut"], rtol=5e-7)
    agree("decayed_adagrad", feeds, ["ParamOut", "MomentOut"], rtol=5e-7)
    feeds = update_feeds(shape, "Moment", "MeanSquare")
    agree("rmsprop", feeds, ["ParamOut", "MomentOut", "MeanSquareOut"], rtol=1e-6, momentum=0.9)
    feeds = update_feeds(shape, "SquaredAccumulator", "LinearAccumulator")
    agree("ftrl", feeds, SQUARES, rtol=2e-6, l1=0.3, l2=0.2)


def test_a_centered_rmsprop_and_other_powers_of_ftrl_are_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "rmsprop"), counted(monkeypatch, "ftrl")
    feeds = update_feeds((5, 3), "Moment", "MeanSquare", "MeanGrad") | {"MeanGrad": np.zeros((5, 3), np.float32)}
    agree("rmsprop", feeds, ["ParamOut", "MeanGradOut"], centered=True)
    agree("ftrl", update_feeds((5, 3), "SquaredAccumulator", "LinearAccumulator"), SQUARES, lr_power=-0.3)
    assert answered == ([False], [False])


def test_updates_cut_into_parts() -> None:
    agree("adam", adam_feeds((100_003,)), ADAM, rtol=5e-7)
    agree("momentum", update_feeds((100_003,), "Velocity"), ["ParamOut", "VelocityOut"], rtol=5e-7, mu=0.9)


def test_updates_answer_by_themselves_and_leave_what_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "adam"), counted(monkeypatch, "momentum")
    for type, feeds, slots in (
        ("adam", adam_feeds((7, 3)), ADAM),
        ("momentum", update_feeds((7, 3), "Velocity"), ["ParamOut", "VelocityOut"]),
    ):
        before = {slot: value.copy() for slot, value in feeds.items()}
        outputs_of(type, feeds, slots, "native", **({"mu": 0.9} if type == "momentum" else {}))
        for slot, value in feeds.items():
            np.testing.assert_array_equal(value, before[slot])
    assert answered == ([True], [True])


@pytest.mark.parametrize("height", [9, 160, 161, 10**9])
def test_equal_rows_are_found_in_tables_of_any_height(height: int) -> None:
    ids = np.array([8, 0, 3, 3, 8, 8, 1, 0, 7, 2], np.int64)
    found, places = unique(ids, height)
    assert found.dtype == ids.dtype and found.tolist() == [0, 1, 2, 3, 7, 8]
    np.testing.assert_array_equal(found[places], ids)


@pytest.mark.parametrize("beyond", [-1, 9])
def test_rows_that_a_table_does_not_have_are_told_apart_all_the_same(beyond: int) -> None:
    ids = np.array([4, beyond, 4], np.int64)
    found, places = unique(ids, 9)
    assert found.tolist() == sorted({4, beyond})
    np.testing.assert_array_equal(found[places], ids)


def sparse(rows: list[int], height: int, *shape: int) -> SelectedRows:
    values = np.random.default_rng(len(rows)).standard_normal((len(rows), *shape)).astype(np.float32)
    return SelectedRows(rows, height, values)


row_lists = st.lists(st.integers(0, 8), min_size=1, max_size=30)


@few
@given(row_lists, st.sampled_from([(1,), (3,), (16,), (37,), (2, 5)]))
def test_sparse_gradients(rows: list[int], shape: tuple[int, ...]) -> None:
    feeds = update_feeds((9, *shape), "Moment")
    feeds["Grad"] = sparse(rows, 9, *shape)
    agree("adagrad", feeds, ["ParamOut", "MomentOut"], rtol=5e-7, scale=1.0)
    del feeds["Moment"]
    agree("sgd", feeds, ["ParamOut"], rtol=5e-7, scale=1.0)
    feeds = adam_feeds((9, *shape))
    feeds["Grad"] = sparse(rows, 9, *shape)
    agree("adam", feeds, ADAM, rtol=5e-7, scale=1.0)
    feeds = update_feeds((9, *shape), "Velocity") | {"Grad": sparse(rows, 9, *shape)}
    agree("momentum", feeds, ["ParamOut", "VelocityOut"], rtol=5e-7, scale=1.0, mu=0.9)
    feeds = update_feeds((9, *shape), "Moment", "MeanSquare") | {"Grad": sparse(rows, 9, *shape)}
    agree("rmsprop", feeds, ["ParamOut", "MomentOut", "MeanSquareOut"], rtol=1e-6, scale=1.0, momentum=0.9)
    feeds = update_feeds((9, *shape), "SquaredAccumulator", "LinearAccumulator") | {"Grad": sparse(rows, 9, *shape)}
    agree("ftrl", feeds, SQUARES, rtol=2e-6, scale=1.0, l1=0.3, l2=0.2)


def resting_feeds() -> dict[str, Any]:
    """A tall table, most of whose moments are still 0; some of its rows had gradients before."""
    feeds = adam_feeds((5000, 10)) | {"Grad": sparse([7, 4999, 7, 2500], 5000, 10)}
    for slot in ("Moment1", "Moment2"):
        feeds[slot] *= (np.arange(5000) % 61 == 3)[:, None]
    return feeds


def test_rows_whose_moments_are_zero_stay_as_they_are() -> None:
    feeds = resting_feeds()
    agree("adam", feeds, ADAM, rtol=5e-7, scale=1.0)
    feeds["Velocity"] = feeds["Moment1"]
    del feeds["Moment1"], feeds["Moment2"], feeds["Beta1Pow"], feeds["Beta2Pow"]
    agree("momentum", feeds, ["ParamOut", "VelocityOut"], rtol=5e-7, scale=1.0, mu=0.9)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("rate", "epsilon"), [(np.inf, 1e-8), (0.1, 0.0)])
def test_zeros_by_zero_or_infinity_are_computed(rate: float, epsilon: float) -> None:
    feeds = resting_feeds() | {"LearningRate": np.array([rate], np.float32)}
    want, got = (
        np.isnan(outputs_of("adam", feeds, ["ParamOut"], engine, epsilon=epsilon)["ParamOut"].numpy())
        for engine in ("numpy", "native")
    )
    np.testing.assert_array_equal(got, want)
    assert got.mean() > 0.9


@few
@given(st.lists(row_lists, min_size=1, max_size=4), st.sampled_from([(1,), (16,), (2, 5)]))
def test_sum_of_sparse_rows(parts: list[list[int]], shape: tuple[int, ...]) -> None:
    program = Program()
    block = program.global_block()
    names = [f"x{number}" for number in range(len(parts))]
    for name in [*names, "Out"]:
        block.create_var(name=name, dtype=VarType.FP32)
    block.append_op(type="sum", inputs={"X": names}, outputs={"Out": ["Out"]}, attrs={})
    feeds = {name: sparse(rows, 9, *shape) for name, rows in zip(names, parts, strict=True)}
    want, got = (Executor(engine=engine).run(program, feeds, ["Out"], Scope())[0] for engine in ("numpy", "native"))
    np.testing.assert_array_equal(got.row_ids, want.row_ids)
    np.testing.assert_array_equal(got.value, want.value)


def test_sparse_gradients_are_answered_and_leave_what_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = {type: counted(monkeypatch, type) for type in ("adagrad", "adam", "sgd")}
    for type, feeds, slots in (
        ("adagrad", update_feeds((300, 70), "Moment"), ["ParamOut", "MomentOut"]),
        ("adam", adam_feeds((300, 70)), ADAM),
        ("sgd", update_feeds((300, 70)), ["ParamOut"]),
    ):
        feeds["Grad"] = sparse([7, 299, 0, 7] * 400, 300, 70)
        before = {slot: value.copy() for slot, value in feeds.items() if slot != "Grad"}
        agree(type, feeds, slots, rtol=1e-6, scale=1.0)
        for slot, value in before.items():
            np.testing.assert_array_equal(feeds[slot], value)
    assert answered == {"adagrad": [True], "adam": [True], "sgd": [True]}


def test_powers_updated_in_place_move_on_before_a_sparse_gradient_uses_them() -> None:
    def updated(engine: str) -> Any:
        program = Program()
        block = program.global_block()
        feeds = adam_feeds((5, 3)) | {"Grad": sparse([1, 3], 5, 3)}
        for slot in [*feeds, "ParamOut"]:
            block.create_var(name=slot, dtype=VarType.FP32)
        outputs = {"ParamOut": ["ParamOut"]} | {
            f"{slot}Out": [slot] for slot in feeds if slot.startswith(("Beta", "Mom"))
        }
        block.append_op(type="adam", inputs={slot: [slot] for slot in feeds}, outputs=outputs, attrs={})
        return Executor(engine=engine).run(program, feeds, ["ParamOut"], Scope())[0].numpy()

    np.testing.assert_allclose(updated("native"), updated("numpy"), rtol=1e-6)


@pytest.mark.parametrize("shape", [(1,), (3,), (16,), (37,), (2, 5)])
def test_lazy_updates(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "adam")
    feeds = adam_feeds((5, *shape)) | {"Grad": sparse([3, 1, 3], 5, *shape)}
    agree("adam", feeds, ADAM, rtol=5e-7, scale=1.0, lazy_mode=True)
    assert answered == [True]


@pytest.mark.parametrize("engine", ["numpy", "native"])
@pytest.mark.parametrize("row", [-1, 5])
def test_sparse_gradients_of_rows_that_do_not_exist(row: int, engine: str) -> None:
    feeds = update_feeds((5, 3), "Moment") | {"Grad": SelectedRows([0, row], 5, np.ones((2, 3), np.float32))}
    with pytest.raises(OperatorError, match="names row"):
        outputs_of("adagrad", feeds, ["ParamOut"], engine)


def test_attributes_of_later_versions_are_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "momentum")
    feeds = update_feeds((5, 3), "Velocity")
    agree("momentum", feeds, ["ParamOut"], mu=0.9, regularization_method="l2_decay", regularization_coeff=0.1)
    assert answered == [False]


ROWS = st.tuples(st.integers(40, 70), st.integers(50, 70))


def drawn(shape: tuple[int, ...], seed: int = 0, scale: float = 1.0) -> Any:
    """Normal numbers."""
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


@few
@given(ROWS, st.sampled_from(["gelu", "relu", "sigmoid", "tanh"]))
def test_activations(shape: tuple[int, int], type: str) -> None:
    agree(type, {"X": drawn(shape, scale=3)}, ["Out"])


@few
@given(ROWS, st.booleans())
def test_gradients_of_gelu(shape: tuple[int, int], approximate: bool) -> None:
    feeds = {"X": drawn(shape, scale=3), "Out@GRAD": drawn(shape, 1)}
    agree("gelu_grad", feeds, ["X@GRAD"], approximate=approximate)


@few
@given(ROWS)
def test_softmax_and_its_gradient(shape: tuple[int, int]) -> None:
    made = agree("softmax", {"X": drawn(shape, scale=4)}, ["Out"])["Out"].numpy()
    agree("softmax_grad", {"Out": made, "Out@GRAD": drawn(shape, 1)}, ["X@GRAD"])


@pytest.mark.parametrize("implementation", ["upscale_in_train", "downgrade_in_infer"])
@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("width", [64, 61])
def test_dropout_draws_the_same_and_its_gradient_drops_the_same(implementation: str, rate: float, width: int) -> None:
    attrs = {"dropout_prob": rate, "dropout_implementation": implementation}
    x, grad = drawn((50, width)), drawn((50, width), 1)
    seeded = attrs | {"seed": 5, "fix_seed": True}
    made = agree("dropout", {"X": x}, ["Out", "Mask"], rtol=1e-7, **seeded)
    agree("dropout_grad", {"Mask": made["Mask"].numpy(), "Out@GRAD": grad}, ["X@GRAD"], rtol=1e-7, **attrs)


@pytest.mark.parametrize("other", [(40, 60), (60,), (1, 60)])
def test_sums_of_arrays_and_of_rows_are_those_of_numpy_bit_for_bit(other: tuple[int, ...]) -> None:
    feeds = {"X": drawn((40, 60)), "Y": drawn(other, 1)}
    agree("elementwise_add", feeds, ["Out"], rtol=0)


def test_a_sum_of_many_arrays_is_that_of_numpy_bit_for_bit() -> None:
    program = Program()
    block = program.global_block()
    feeds = {name: drawn((40, 60), seed) for seed, name in enumerate("abc")}
    for name in [*feeds, "out"]:
        block.create_var(name=name, dtype=VarType.FP32)
    block.append_op(type="sum", inputs={"X": list(feeds)}, outputs={"Out": ["out"]})
    want, got = (
        Executor(engine=engine).run(program, feeds, ["out"], Scope())[0].numpy() for engine in ("numpy", "native")
    )
    np.testing.assert_array_equal(got, want)


def test_without_the_library_operators_keep_their_own_kernel(native: Library) -> None:
    def own() -> None: ...

    assert fastest_kernel("lstm", own, None) is own
    assert fastest_kernel("hard_sigmoid", own, native) is own


@pytest.fixture
def small_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the native kernels do convolutions that would not pay."""
    for name in ("WORTH", "DEPTH", "GRADIENT_WORTH", "LAST_WORTH", "CHANNELS"):
        monkeypatch.setattr(convolution, name, 0)
    for name in ("FILTERS", "GRADIENT_FILTERS"):
        monkeypatch.setattr(convolution, name, 1 << 30)


def check_convolution(x: tuple[int, ...], filters: tuple[int, ...], rtol: float = 3e-6, **attrs: Any) -> None:
    random = np.random.default_rng(0)
    feeds = {"Input": random.standard_normal(x), "Filter": random.standard_normal(filters)}
    feeds = {slot: value.astype(np.float32) for slot, value in feeds.items()}
    forward = agree("conv2d", feeds, ["Output"], rtol, prod(filters[1:]) ** 0.5, **attrs)
    out_grad = random.standard_normal(forward["Output"].shape()).astype(np.float32)
    scale = max(out_grad.size, prod(filters)) ** 0.5
    agree("conv2d_grad", feeds | {"Output@GRAD": out_grad}, ["Input@GRAD", "Filter@GRAD"], rtol, scale, **attrs)


@pytest.mark.usefixtures("small_convolutions")
@few
@given(st.data())
def test_convolution(data: st.DataObject) -> None:
    draw = data.draw
    window = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    dilations = draw(st.tuples(*[st.integers(1, 2)] * 2))
    pads = draw(st.lists(st.integers(0, 3), min_size=4, max_size=4))
    reach = [d * (w - 1) + 1 for d, w in zip(dilations, window, strict=True)]
    image = [
        draw(st.integers(max(1, r - before - after), 20))
        for r, before, after in zip(reach, pads[::2], pads[1::2], strict=True)
    ]
    channels, filters, images = (draw(st.integers(1, most)) for most in (20, 20, 3))
    strides = draw(st.tuples(*[st.integers(1, 3)] * 2))
    check_convolution(
        (images, channels, *image),
        (filters, channels, *window),
        strides=list(strides),
        paddings=pads,
        dilations=list(dilations),
    )


@pytest.mark.usefixtures("small_convolutions")
@few
@given(st.integers(1, 3), st.sampled_from([1, 5, 8, 16]), st.sampled_from([1, 3, 16]), st.integers(3, 9))
def test_convolution_in_groups(groups: int, inner: int, outer: int, size: int) -> None:
    check_convolution(
        (2, groups * inner, size, size), (groups * outer, inner, 3, 3), groups=groups, paddings=[1, 1], strides=[1, 1]
    )


@pytest.mark.usefixtures("small_convolutions")
@pytest.mark.parametrize("padding_algorithm", ["SAME", "VALID"])
def test_convolution_by_padding_algorithm(padding_algorithm: str) -> None:
    check_convolution((2, 3, 9, 8), (5, 3, 4, 3), padding_algorithm=padding_algorithm, dilations=[1, 1])


def test_large_convolution_answers_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "conv2d"), counted(monkeypatch, "conv2d_grad")
    check_convolution((11, 16, 31, 29), (13, 16, 3, 3), rtol=1e-5, paddings=[1, 1])
    assert answered == ([True], [True])


def test_small_convolution_is_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "conv2d"), counted(monkeypatch, "conv2d_grad")
    check_convolution((2, 16, 9, 9), (4, 16, 3, 3), paddings=[1, 1])
    assert answered == ([False], [False])


@pytest.mark.usefixtures("small_convolutions")
@pytest.mark.parametrize(
    "attrs",
    [
        pytest.param({"data_format": "NHWC"}, id="channels last"),
        pytest.param({"fuse_relu_before_depthwise_conv": True}, id="fused"),
        pytest.param({"paddings": [0, 0]}, id="windows of one cell"),
    ],
)
def test_convolution_that_is_left_to_numpy(attrs: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "conv2d"), counted(monkeypatch, "conv2d_grad")
    window = 1 if "paddings" in attrs else 3
    x = (2, 9, 9, 3) if "data_format" in attrs else (2, 3, 9, 9)
    check_convolution(x, (4, 3, window, window), **attrs)
    assert answered == ([False], [False])


def test_filter_gradient_alone_is_native_for_windows_that_move_by_more(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "conv2d_grad")
    check_convolution((8, 16, 31, 29), (16, 16, 3, 3), rtol=1e-5, paddings=[1, 1], strides=[2, 2])
    assert answered == [True]


@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_convolution_says_what_does_not_fit(engine: str) -> None:
    feeds = {"Input": np.zeros((1, 3, 9, 9), np.float32), "Filter": np.zeros((4, 2, 3, 3), np.float32)}
    with pytest.raises(OperatorError, match=r"has 3 channels; Filter \(4, 2, 3, 3\)"):
        outputs_of("conv2d", feeds, ["Output"], engine)


@few
@given(st.data())
def test_gradient_of_maximum_pooling(data: st.DataObject) -> None:
    draw = data.draw
    window, strides = (draw(st.tuples(*[st.integers(1, 4)] * 2)) for _ in range(2))
    pads = [draw(st.integers(0, size - 1)) for size in window]
    sizes = [draw(st.integers(size, 12)) for size in window]
    attrs: dict[str, Any] = {"ksize": list(window), "strides": list(strides), "paddings": pads, "pooling_type": "max"}
    attrs["ceil_mode"] = draw(st.booleans())
    random = np.random.default_rng(0)
    x = random.integers(0, 4, (2, draw(st.integers(1, 9)), *sizes)).astype(np.float32)  # so that maxima repeat
    out = outputs_of("pool2d", {"X": x}, ["Out"], "numpy", **attrs)["Out"].numpy()
    grad = random.standard_normal(out.shape).astype(np.float32)
    agree("pool2d_grad", {"X": x, "Out": out, "Out@GRAD": grad}, ["X@GRAD"], **attrs)


@pytest.mark.parametrize(
    "attrs", [{"pooling_type": "avg"}, {"pooling_type": "max", "data_format": "NHWC"}], ids=["mean", "channels last"]
)
def test_pooling_gradient_that_is_left_to_numpy(attrs: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "pool2d_grad")
    x = np.random.default_rng(0).standard_normal((2, 6, 6, 6)).astype(np.float32)
    attrs |= {"ksize": [2, 2], "strides": [2, 2]}
    out = outputs_of("pool2d", {"X": x}, ["Out"], "numpy", **attrs)["Out"].numpy()
    agree("pool2d_grad", {"X": x, "Out": out, "Out@GRAD": out}, ["X@GRAD"], **attrs)
    assert answered == [False]


def test_pooling_gradient_answers_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "pool2d_grad")
    x = np.random.default_rng(0).standard_normal((2, 3, 6, 6)).astype(np.float32)
    attrs: dict[str, Any] = {"ksize": [6, 6], "strides": [1, 1], "pooling_type": "max"}
    out = x.max((2, 3), keepdims=True)
    agree("pool2d_grad", {"X": x, "Out": out, "Out@GRAD": out}, ["X@GRAD"], **attrs)
    assert answered == [True]
