"""`fluid.contrib`: numbers of its layers, its statistics, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import ArgumentTypeError, NotOfferedError, UsageError

CPU = fluid.CPUPlace()
contrib = fluid.contrib


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.scope_guard(fluid.Scope()),
        fluid.unique_name.guard(),
    ):
        yield


def run(feed: dict[str, Any], *fetches: Any) -> list[Any]:
    exe = fluid.Executor(CPU)
    exe.run(fluid.default_startup_program())
    return exe.run(feed=feed, fetch_list=list(fetches))


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


# ---------------------------------------------------------------- recurrent layers
X = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")


def test_basic_gru_follows_its_formula() -> None:
    """c = tanh([x, r h] W_c + b_c), h = u h + (1 - u) c; rows keep their state beyond their length."""
    x, lengths = fluid.data("x", [-1, 3, 4]), fluid.data("lengths", [-1], "int32")
    names = {"param_attr": fluid.ParamAttr(name="w"), "bias_attr": fluid.ParamAttr(name="b")}
    outputs, last = contrib.layers.basic_gru(x, None, 5, sequence_length=lengths, **names)
    got = run({"x": X, "lengths": np.array([3, 1], "int32")}, outputs, last)
    gates, candidate = (fluid.fetch_var(f"w_fw_w_0_{kind}") for kind in ("gate", "candidate"))
    h, expected = np.zeros((2, 5)), []
    for step in range(3):
        r, u = np.split(sigmoid(np.concatenate([X[:, step], h], 1) @ gates), 2, axis=1)
        new = u * h + (1 - u) * np.tanh(np.concatenate([X[:, step], r * h], 1) @ candidate)
        h = np.where(np.array([[True], [step < 1]]), new, h)
        expected.append(h)
    np.testing.assert_allclose(got[0], np.stack(expected, 1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got[1], h[None], rtol=1e-5, atol=1e-6)


def test_basic_lstm_follows_its_formula_from_given_states() -> None:
    x, hidden, cell = fluid.data("x", [-1, 3, 4]), fluid.data("h", [1, -1, 5]), fluid.data("c", [1, -1, 5])
    results = contrib.layers.basic_lstm(
        x, hidden, cell, 5, param_attr=fluid.ParamAttr(name="w"), bias_attr=fluid.ParamAttr(name="b"), forget_bias=0.5
    )
    h, c = np.full((2, 5), 0.1), np.full((2, 5), -0.2)
    got = run({"x": X, "h": h[None].astype("float32"), "c": c[None].astype("float32")}, *results)
    weight, expected = fluid.fetch_var("w_fw_w_0"), []
    for step in range(3):
        i, j, f, o = np.split(np.concatenate([X[:, step], h], 1) @ weight, 4, axis=1)
        c = c * sigmoid(f + 0.5) + sigmoid(i) * np.tanh(j)
        h = np.tanh(c) * sigmoid(o)
        expected.append(h)
    for found, value in zip(got, (np.stack(expected, 1), h[None], c[None]), strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_two_directions_see_the_sequence_from_both_ends(kind: str) -> None:
    x = fluid.data("x", [-1, 3, 4])
    arguments = (None,) if kind == "gru" else (None, None)
    results = getattr(contrib.layers, f"basic_{kind}")(x, *arguments, 5, num_layers=2, bidirectional=True)
    got = run({"x": X}, *results)
    assert [value.shape for value in got] == [(2, 3, 10)] + [(4, 2, 5)] * len(arguments)
    np.testing.assert_allclose(got[0][:, -1, :5], got[1][2], rtol=1e-6)  # forward: the last step of the last layer
    np.testing.assert_allclose(got[0][:, 0, 5:], got[1][3], rtol=1e-6)  # backward: its last step is the first


def test_units_are_one_step() -> None:
    x, h, c = (fluid.data(name, [-1, 3]) for name in "xhc")
    gru = contrib.layers.BasicGRUUnit("gru", 3)
    hidden, cell = contrib.layers.BasicLSTMUnit("lstm", 3)(x, gru(x, h), c)
    feed = {name: np.ones((2, 3), "float32") for name in "xhc"}
    assert [value.shape for value in run(feed, hidden, cell)] == [(2, 3), (2, 3)]


# ---------------------------------------------------------------- other layers
def test_elementwise_layers() -> None:
    x, y = fluid.data("x", [2, 3]), fluid.data("y", [2, 3])
    fused = contrib.layers.fused_elemwise_activation(x, y, ["elementwise_add", "relu"])
    columns = contrib.layers.partial_concat([x, y], start_index=1, length=2)
    summed = contrib.layers.partial_sum([x, y], start_index=1)
    a, b = np.arange(6, dtype="float32").reshape(2, 3), np.array([[1, -1, 2], [-2, 3, -3]], "float32")
    got = run({"x": a, "y": b}, fused, columns, summed)
    np.testing.assert_array_equal(got[0], a + np.maximum(b, 0))
    np.testing.assert_array_equal(got[1], np.concatenate([a[:, 1:], b[:, 1:]], 1))
    np.testing.assert_array_equal(got[2], a[:, 1:] + b[:, 1:])


def test_shuffle_batch_keeps_the_rows() -> None:
    out = contrib.layers.shuffle_batch(fluid.data("x", [-1, 2]), seed=3)
    rows = np.arange(20, dtype="float32").reshape(10, 2)
    (got,) = run({"x": rows}, out)
    assert sorted(got.tolist()) == rows.tolist() and got.tolist() != rows.tolist()


def test_ctr_metrics_add_up_over_batches() -> None:
    x, y = fluid.data("x", [-1, 1]), fluid.data("y", [-1, 1])
    sums = contrib.layers.ctr_metric_bundle(x, y)
    feed = {"x": np.array([[0.5], [1.0]], "float32"), "y": np.array([[1.0], [0.0]], "float32")}
    run(feed, *sums)
    second = fluid.Executor(CPU).run(feed=feed, fetch_list=list(sums))
    sigmoids = 2 * sigmoid(np.array([0.5, 1.0])).sum()
    np.testing.assert_allclose(np.ravel(second), [2.5, 3.0, 3.0, sigmoids, 2.0, 4.0], rtol=1e-6)


def test_nms_returns_the_index_when_asked() -> None:
    boxes, scores = fluid.data("boxes", [1, 2, 4]), fluid.data("scores", [1, 2, 2])
    out, index = contrib.layers.multiclass_nms2(boxes, scores, 0.1, 10, 10, background_label=-1, return_index=True)
    feed = {
        "boxes": np.array([[[0, 0, 1, 1], [2, 2, 3, 3]]], "float32"),
        "scores": np.array([[[0.9, 0.05], [0.02, 0.8]]], "float32"),
    }
    exe = fluid.Executor(CPU)
    found, places = (np.array(t) for t in exe.run(feed=feed, fetch_list=[out, index], return_numpy=False))
    assert (found.shape, places.ravel().tolist()) == ((2, 6), [0, 1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: contrib.layers.fused_elemwise_activation(x, x, ["relu"]), "length should be 2"),
        (lambda x: contrib.layers.match_matrix_tensor(x, fluid.data("z", [-1, 9]), 2), "of one width"),
        (lambda x: contrib.layers.tdm_sampler(x, [1], [2, 4], 3), "must match the shape of layers"),
        (lambda x: contrib.layers.tdm_sampler(x, [2, 1], [2, 4], 3), "must be less than the number of nodes"),
        (lambda x: contrib.layers.tdm_sampler(x, [1, 1], [2, 4], 6), "leaf_node_num must be less"),
        (lambda x: contrib.layers.rank_attention(x, x, [5, 5], None), "rank_param_shape must start with"),
        (lambda x: contrib.layers.ctr_metric_bundle(x, fluid.data("z", [-1, 9])), "must have one shape"),
    ],
)
def test_what_layers_refuse(call: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call(fluid.data("x", [-1, 3]))


# ---------------------------------------------------------------- weight decay
def test_decoupled_weight_decay_shrinks_parameters_beside_their_updates() -> None:
    loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [-1, 2]), 1, param_attr="w", bias_attr="b"))
    decayed = contrib.extend_with_decoupled_weight_decay(fluid.optimizer.SGD)
    optimizer = decayed(learning_rate=0.1, weight_decay=0.25, apply_decay_param_fun=lambda name: name == "w")
    optimizer.minimize(loss)
    exe = fluid.Executor(CPU)
    exe.run(fluid.default_startup_program())
    before = fluid.fetch_var("w").copy()
    exe.run(feed={"x": np.ones((1, 2), "float32")})
    np.testing.assert_allclose(fluid.fetch_var("w"), before * 0.75 - 0.1, rtol=1e-5)
    np.testing.assert_allclose(fluid.fetch_var("b"), [-0.1], rtol=1e-6)


def test_weight_decay_extends_optimizers_alone() -> None:
    with pytest.raises(ArgumentTypeError, match="derived class of Optimizer"):
        contrib.extend_with_decoupled_weight_decay(dict)
    with pytest.raises(ArgumentTypeError, match="coeff should be float or Variable"):
        contrib.extend_with_decoupled_weight_decay(fluid.optimizer.SGD)(learning_rate=0.1, weight_decay="much")


# ---------------------------------------------------------------- statistics
def convolution_network() -> fluid.Program:
    image = fluid.data("image", [-1, 3, 8, 8])
    hidden = fluid.layers.conv2d(image, 4, 3, groups=1, bias_attr=False)
    hidden = fluid.layers.pool2d(fluid.layers.batch_norm(hidden, act="relu"), 2, "max", 2)
    fluid.layers.fc(hidden, 10, act="softmax")
    return fluid.default_main_program()


def test_memory_usage_of_a_batch_size() -> None:
    """What is written for 2 rows: 4*6*6 three times and 4*3*3, 10 three times, and 4 numbers four times."""
    low, high, unit = contrib.memory_usage(convolution_network(), batch_size=2)
    numbers = 2 * (3 * 144 + 36 + 3 * 10) + 4 * 4
    assert unit == "KB"
    np.testing.assert_allclose([low, high], [numbers * 4 / 1024 * 1.05, numbers * 4 / 1024 * 1.1])


@pytest.mark.parametrize(
    ("make", "rows", "error"), [(lambda: "program", 1, ArgumentTypeError), (fluid.Program, 0, UsageError)]
)
def test_what_memory_usage_refuses(make: Callable[[], Any], rows: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        contrib.memory_usage(make(), rows)


def test_op_freq_statistic_counts_operators_and_neighbors() -> None:
    x = fluid.data("x", [-1, 3])
    fluid.layers.fc(fluid.layers.fc(x, 3, act="relu"), 3)
    single, pairs = contrib.op_freq_statistic(fluid.default_main_program())
    assert single == [("mul", 2), ("elementwise_add", 2), ("relu", 1)]
    assert pairs == [("mul->elementwise_add", 2), ("elementwise_add->relu", 1), ("relu->mul", 1)]
    with pytest.raises(ArgumentTypeError, match="should be Program"):
        contrib.op_freq_statistic("program")


def test_summary_prints_a_row_for_every_layer_that_counts(capsys: pytest.CaptureFixture[str]) -> None:
    contrib.summary(convolution_network())
    lines = capsys.readouterr().out.splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    assert rows == [
        ["No.", "TYPE", "INPUT", "OUTPUT", "PARAMs", "FLOPs"],
        ["0", "conv2d", "(3, 8, 8)", "(4, 6, 6)", "108", str(2 * 144 * 27)],
        ["1", "batch_norm", "(4, 6, 6)", "(4, 6, 6)", "8", "288"],
        ["2", "relu", "(4, 6, 6)", "(4, 6, 6)", "0", "144"],
        ["3", "pool2d", "(4, 6, 6)", "(4, 3, 3)", "0", str(36 * 4)],
        ["4", "mul", "(4, 3, 3)", "(10,)", "361", "360"],
    ]
    assert lines[-2].startswith("Total PARAMs: 477(") and lines[-1].startswith("Total FLOPs: 8712(")


def test_what_is_not_offered_says_so() -> None:
    with pytest.raises(
        NotOfferedError, match=r"paddle\.fluid\.contrib has no 'Compressors' in fluidtool; did you mean Compressor"
    ):
        contrib.Compressors  # noqa: B018
