"""`fuse-fc-gru`, `fuse-fc-lstm`, `fuse-embedding-lstm`: the projection moves into the layer, to 1e-5."""

from typing import Any

import numpy as np
import pytest

from fluidtool.passes.inference import recurrent
from fluidtool.passes.inference.recurrent import fuse_embedding_lstm, fuse_fc_gru, fuse_fc_lstm
from fluidtool.passes.verify import verify
from fluidtool.proto.enums import VarType
from fluidtool.tensor import LoDTensor
from tests.passes.inference.net import Net, reasons

SIZE, ROWS, LOD = 4, 7, [[0, 3, 4, 7]]


def layer(
    kind: str = "lstm",
    *,
    bias: bool = True,
    own_bias: bool = True,
    peepholes: bool = False,
    reverse: bool = False,
    initial: bool = False,
    words: bool = False,
    dtype: str = "float32",
    **attrs: Any,
) -> Net:
    """hidden = kind(x W (+ b)); with `words` x is looked up."""
    net, gates = Net(), 4 if kind == "lstm" else 3
    x = net.numbers(ROWS, 5, dtype=dtype)
    if words:
        net.data("ids", net.random.integers(0, 9, (ROWS, 1)), LOD)
        net.parameter("table", net.numbers(9, 5, dtype=dtype))
        net.op("lookup_table", {"W": ["table"], "Ids": ["ids"]}, {"Out": ["x"]}, padding_idx=-1)
    else:
        net.data("x", x, LOD)
    net.parameter("w", net.numbers(5, gates * SIZE, dtype=dtype))
    net.op("mul", {"X": ["x"], "Y": ["w"]}, {"Out": ["p"]}, x_num_col_dims=1, y_num_col_dims=1)
    if bias:
        net.parameter("b", net.numbers(gates * SIZE, dtype=dtype))
        net.op("elementwise_add", {"X": ["p"], "Y": ["b"]}, {"Out": ["pb"]}, axis=1)
    inputs = {
        "Input": ["pb" if bias else "p"],
        "Weight": [net.parameter("wh", net.numbers(SIZE, gates * SIZE, dtype=dtype))],
    }
    if own_bias:
        inputs["Bias"] = [net.parameter("bh", net.numbers(1, (7 if peepholes else gates) * SIZE, dtype=dtype))]
    if initial:
        for slot in ("H0", "C0") if kind == "lstm" else ("H0",):
            inputs[slot] = [net.data(slot.lower(), net.numbers(3, SIZE, dtype=dtype))]
    if kind == "lstm":
        outputs = {"Hidden": ["hidden"], "Cell": ["cell"], "BatchGate": ["g"], "BatchCellPreAct": ["a"]}
        attrs = {"use_peepholes": peepholes, **attrs}
    else:
        outputs = {"Hidden": ["hidden"], "BatchGate": ["g"], "BatchResetHiddenPrev": ["r"], "BatchHidden": ["bh_"]}
    net.op(kind, inputs, outputs, is_reverse=reverse, **attrs)
    return net


def fuses(run: Any, net: Net, *fetched: str) -> None:
    before = net.run(*fetched)
    assert run(net.program, net.scope, fetched).changed
    for got, want in zip(net.run(*fetched), before, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert verify(net.program) == []
    assert not run(net.program, net.scope, fetched).changed


OPTIONS: list[dict[str, Any]] = [
    {},
    {"bias": False},
    {"reverse": True},
    {"initial": True},
    {"dtype": "float64"},
    {"gate_activation": "relu"},
]


@pytest.mark.parametrize("options", [*OPTIONS, {"own_bias": False}, {"own_bias": False, "bias": False}], ids=str)
def test_a_projection_moves_into_gru(options: dict[str, Any]) -> None:
    net = layer("gru", **options)
    fuses(fuse_fc_gru, net, "hidden")
    assert net.types == ["fusion_gru"]


@pytest.mark.parametrize("options", [*OPTIONS, {"peepholes": True}, {"cell_activation": "relu"}], ids=str)
def test_a_projection_moves_into_lstm(options: dict[str, Any]) -> None:
    net = layer(**options)
    fuses(fuse_fc_lstm, net, "hidden", "cell")
    assert net.types == ["fusion_lstm"]


@pytest.mark.parametrize("options", [*OPTIONS, {"peepholes": True}], ids=str)
def test_a_table_and_a_projection_become_one_table(options: dict[str, Any]) -> None:
    net = layer(words=True, **options)
    fuses(fuse_embedding_lstm, net, "hidden", "cell")
    assert net.types == ["fused_embedding_fc_lstm"]


def test_biases_are_added_once_and_a_shared_bias_keeps_its_numbers() -> None:
    net = layer("gru")
    bias = net.scope.find_var("bh").value.numpy().copy()
    net.op("relu", {"X": ["bh"]}, {"Out": ["other"]})
    fuse_fc_gru(net.program, net.scope)
    np.testing.assert_array_equal(net.scope.find_var("bh").value.numpy(), bias)
    assert net.block.ops[0].input("Bias") == ["bh_fuse_fc"]


def test_two_layers_may_share_all_their_weights() -> None:
    net = layer("gru")
    net.op("mul", {"X": ["x"], "Y": ["w"]}, {"Out": ["p2"]}, x_num_col_dims=1, y_num_col_dims=1)
    net.op("elementwise_add", {"X": ["p2"], "Y": ["b"]}, {"Out": ["pb2"]}, axis=1)
    inputs = {"Input": ["pb2"], "Weight": ["wh"], "Bias": ["bh"]}
    outputs = {"Hidden": ["hidden2"], "BatchGate": ["g2"], "BatchResetHiddenPrev": ["r2"], "BatchHidden": ["b2"]}
    net.op("gru", inputs, outputs, is_reverse=True)
    fuses(fuse_fc_gru, net, "hidden", "hidden2")
    assert net.types == ["fusion_gru", "fusion_gru"]


def left(run: Any, net: Net, keep: tuple[str, ...] = ()) -> list[str]:
    result = run(net.program, net.scope, keep)
    assert not result.changed
    return reasons(result)


def test_a_fetched_projection_stays() -> None:
    assert left(fuse_fc_lstm, layer(), ("pb",)) == ["pb is fetched or must be kept"]


def test_a_projection_with_another_reader_stays() -> None:
    net = layer()
    net.op("relu", {"X": ["p"]}, {"Out": ["other"]})
    assert left(fuse_fc_lstm, net) == ["p is also read by relu"]


def test_gates_that_are_read_stay() -> None:
    net = layer("gru")
    net.op("relu", {"X": ["g"]}, {"Out": ["other"]})
    assert left(fuse_fc_gru, net) == ["g is also read by relu"]


def test_a_weight_that_is_written_stays() -> None:
    net = layer()
    net.op("scale", {"X": ["w"]}, {"Out": ["w"]}, scale=2.0)
    assert left(fuse_fc_lstm, net) == ["w is written by the program"]


def test_a_fed_bias_stays() -> None:
    net = layer()
    net.block.create_var(name="feed", type=VarType.FEED_MINIBATCH, persistable=True)
    net.block.prepend_op(type="feed", inputs={"X": ["feed"]}, outputs={"Out": ["b"]}, attrs={"col": 0})
    assert left(fuse_fc_lstm, net) == ["b is written by the program"]


def test_a_sum_of_two_projections_stays() -> None:
    net = layer(bias=False)
    net.op("relu", {"X": ["x"]}, {"Out": ["y"]})
    net.block.ops.insert(0, net.block.ops.pop())
    net.block.ops[-1].set_input("Input", ["y"])
    assert left(fuse_fc_lstm, net) == ["y is not the product of one input with a weight"]


def test_an_input_that_is_overwritten_stays() -> None:
    net = layer()
    net.block.insert_op(1, type="relu", inputs={"X": ["x"]}, outputs={"Out": ["x"]})
    assert left(fuse_fc_lstm, net) == ["x is written again before the last operator of the group"]


def test_a_bias_along_the_rows_stays() -> None:
    net = layer()
    net.block.ops[1].set_attr("axis", 0)
    assert left(fuse_fc_lstm, net) == ["b of shape (16,) is not one number for each position of the last dimension"]


def test_the_gates_of_the_original_paper_stay() -> None:
    wanted = ["origin_mode is set, which fusion_gru of Paddle 1.8.5 ignores"]
    assert left(fuse_fc_gru, layer("gru", origin_mode=True)) == wanted


def test_other_activations_stay() -> None:
    wanted = ["candidate_activation is 'sin'; the fused layer supports identity, relu, sigmoid, tanh"]
    assert left(fuse_fc_lstm, layer(candidate_activation="sin")) == wanted


def test_half_precision_stays() -> None:
    net = layer()
    net.block.var("pb").dtype = VarType.FP16
    assert left(fuse_fc_lstm, net) == ["pb is not declared float32 or float64"]


def test_an_image_as_input_stays() -> None:
    net = layer(bias=False)
    net.block.var("x").shape = [-1, 5, 1]
    assert left(fuse_fc_lstm, net) == ["x and w are not matrices"]


def test_a_look_up_with_padding_stays() -> None:
    net = layer(words=True)
    net.block.ops[0].set_attr("padding_idx", 3)
    assert left(fuse_embedding_lstm, net) == ["the lookup has a padding_idx"]


def test_words_that_something_else_reads_stay() -> None:
    net = layer(words=True)
    net.op("relu", {"X": ["x"]}, {"Out": ["other"]})
    assert left(fuse_embedding_lstm, net) == ["x is also read by relu"]


def test_an_input_that_is_not_looked_up_stays() -> None:
    assert left(fuse_embedding_lstm, layer()) == ["x is not looked up in a table"]


def test_a_large_table_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrent, "TABLE_LIMIT", 500)
    wanted = ["the projected table would take 576 bytes, more than 500"]
    assert left(fuse_embedding_lstm, layer(words=True)) == wanted


SHAPES = [
    ("wh", (4 * SIZE,), "wh of shape (16,) is not a Weight of lstm with 16 columns"),
    ("wh", (SIZE, 4, SIZE), "wh of shape (4, 4, 4) is not a Weight of lstm with 16 columns"),
    ("wh", (SIZE, 3 * SIZE), "wh of shape (4, 12) is not a Weight of lstm with 16 columns"),
    ("bh", (4 * SIZE,), "bh of shape (16,) is not a Bias of lstm with 16 columns"),
    ("bh", (1, SIZE), "bh of shape (1, 4) is not a Bias of lstm with 16 columns"),
    ("bh", (2, 4 * SIZE), "bh of shape (2, 16) is not a Bias of lstm with 16 columns"),
    ("w", (5, 4, SIZE), "x and w are not matrices"),
    ("w", (4 * SIZE,), "x and w are not matrices"),
    ("b", (1, 4 * SIZE), "b of shape (1, 16) is not one number for each position of the last dimension"),
]


@pytest.mark.parametrize(("name", "shape", "reason"), SHAPES, ids=str)
@pytest.mark.parametrize("run", [fuse_fc_lstm, fuse_embedding_lstm], ids=["fc", "embedding"])
def test_parameters_of_other_shapes_stay(run: Any, name: str, shape: tuple[int, ...], reason: str) -> None:
    net = layer(words=run is fuse_embedding_lstm)
    net.scope.var(name).value = LoDTensor(net.numbers(*shape))
    assert left(run, net) == [reason]


def test_a_weight_of_a_gru_of_another_shape_stays() -> None:
    net = layer("gru")
    net.scope.var("wh").value = LoDTensor(net.numbers(3 * SIZE))
    assert left(fuse_fc_gru, net) == ["wh of shape (12,) is not a Weight of gru with 12 columns"]


@pytest.mark.parametrize("shape", [(9,), (9, 4), (9, 5, 1)])
def test_a_table_of_another_shape_stays(shape: tuple[int, ...]) -> None:
    net = layer(words=True)
    net.scope.var("table").value = LoDTensor(net.numbers(*shape))
    assert left(fuse_embedding_lstm, net) == [f"table of shape {shape} is not a table with rows of 5 numbers"]
