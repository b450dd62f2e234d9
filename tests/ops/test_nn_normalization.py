"""Normalizations: gradients of the first and second order, running statistics, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from tests.support.operators import check_gradient, run_op

RNG = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape)


def batch_inputs(x: Any, channels: int) -> dict[str, Any]:
    dtype = x.dtype
    return {
        "X": x,
        "Scale": normal(channels).astype(dtype),
        "Bias": normal(channels).astype(dtype),
        "Mean": normal(channels).astype(dtype),
        "Variance": np.abs(normal(channels)).astype(dtype) + 1,
    }


@pytest.mark.parametrize(
    ("shape", "attrs"),
    [
        ((4, 3), {}),
        ((2, 3, 2, 2), {"epsilon": 1e-3}),
        ((2, 2, 2, 3), {"data_layout": "NHWC"}),
        ((2, 3, 2, 2), {"use_global_stats": True}),
        ((1, 3, 2, 1, 2), {}),
    ],
)
@pytest.mark.parametrize("op_type", ["batch_norm", "sync_batch_norm"])
def test_batch_norm_gradient(op_type: str, shape: tuple[int, ...], attrs: dict[str, Any]) -> None:
    inputs = batch_inputs(normal(*shape), 3)
    check_gradient(
        op_type, inputs, wrt=["X", "Scale", "Bias"], attrs=attrs, outputs={"ReserveSpace": 0}, rtol=1e-4, atol=1e-6
    )


def test_running_statistics_move_by_the_momentum() -> None:
    inputs = batch_inputs(normal(4, 3, 2, 2).astype(np.float32), 3)
    got = run_op("batch_norm", {**inputs, "MomentumTensor": np.float32([0.25])}, {"momentum": 0.5}, {"ReserveSpace": 0})
    mean, variance = inputs["X"].mean(axis=(0, 2, 3)), inputs["X"].var(axis=(0, 2, 3))
    np.testing.assert_allclose(got["MeanOut"].numpy(), 0.25 * inputs["Mean"] + 0.75 * mean, rtol=1e-6)
    np.testing.assert_allclose(got["VarianceOut"].numpy(), 0.25 * inputs["Variance"] + 0.75 * variance, rtol=1e-6)
    np.testing.assert_allclose(got["SavedMean"].numpy(), mean, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(got["SavedVariance"].numpy(), 1 / np.sqrt(variance + 1e-5), rtol=1e-6)


def test_one_element_per_channel_is_copied() -> None:
    inputs = batch_inputs(normal(1, 3, 1, 1), 3)
    got = run_op("batch_norm", inputs, outputs={"ReserveSpace": 0}, fetch=["Y"])
    np.testing.assert_array_equal(got["Y"].numpy(), inputs["X"])


@pytest.mark.parametrize("attrs", [{"is_test": True}, {"use_global_stats": True}])
def test_running_statistics_normalize(attrs: dict[str, Any]) -> None:
    inputs = batch_inputs(normal(2, 3, 2), 3)
    got = run_op("batch_norm", inputs, attrs, {"ReserveSpace": 0}, fetch=["Y"])
    scale, bias, mean, variance = (inputs[slot][:, None] for slot in ("Scale", "Bias", "Mean", "Variance"))
    np.testing.assert_allclose(got["Y"].numpy(), (inputs["X"] - mean) / np.sqrt(variance + 1e-5) * scale + bias)


@pytest.mark.parametrize("left_out", [["Scale"], ["Bias"], ["Scale", "Bias"]])
def test_batch_norm_without_scale_or_bias_takes_ones_and_zeros(left_out: list[str]) -> None:
    inputs = batch_inputs(normal(2, 3, 2, 2), 3)
    plain = inputs | {slot: {"Scale": np.ones(3), "Bias": np.zeros(3)}[slot] for slot in left_out}
    for attrs in ({}, {"is_test": True}):
        expected = run_op("batch_norm", plain, attrs, {"ReserveSpace": 0}, fetch=["Y"])["Y"].numpy()
        less = {slot: value for slot, value in inputs.items() if slot not in left_out}
        np.testing.assert_array_equal(
            run_op("batch_norm", less, attrs, {"ReserveSpace": 0}, fetch=["Y"])["Y"].numpy(), expected
        )
    check_gradient("batch_norm", less, wrt=["X"], outputs={"ReserveSpace": 0}, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("activation", "alpha", "slope"),
    [
        ("leaky_relu", 0.125, lambda y: np.where(y > 0, 1, 0.125)),
        ("elu", 0.5, lambda y: np.where(y > 0, 1, y + 0.5)),
        ("", 0.1, np.ones_like),
    ],
)
def test_inplace_abn_gradient_is_that_of_batch_norm_behind_the_activation(
    activation: str, alpha: float, slope: Any
) -> None:
    inputs = batch_inputs(normal(2, 3, 2, 2), 3)
    attrs = {"activation": activation, "alpha": alpha}
    forward = run_op("inplace_abn", inputs, attrs, {"ReserveSpace": 0}, fetch=["Y", "SavedMean", "SavedVariance"])
    y, grad = forward["Y"].numpy(), normal(2, 3, 2, 2)
    plain = run_op("batch_norm", inputs, {}, {"ReserveSpace": 0}, fetch=["Y"])["Y"].numpy()
    expected_y = np.where(
        plain > 0, plain, {"leaky_relu": 0.125 * plain, "elu": 0.5 * np.expm1(plain)}.get(activation, plain)
    )
    np.testing.assert_allclose(y, expected_y, rtol=1e-12)
    saved = {slot: forward[slot].numpy() for slot in ("SavedMean", "SavedVariance")}
    shared = {"Scale": inputs["Scale"], "Bias": inputs["Bias"], **saved}
    got = run_op("inplace_abn_grad", {**shared, "Y": y, "Y@GRAD": grad}, attrs)
    expected = run_op("batch_norm_grad", {**shared, "X": inputs["X"], "Y@GRAD": grad * slope(y)})
    for slot in ("X@GRAD", "Scale@GRAD", "Bias@GRAD"):
        np.testing.assert_allclose(got[slot].numpy(), expected[slot].numpy(), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("slots", [("X", "Scale", "Bias"), ("X", "Scale"), ("X",)])
def test_layer_norm_gradient(slots: tuple[str, ...]) -> None:
    values = {"X": normal(2, 3, 4), "Scale": normal(12), "Bias": normal(12)}
    check_gradient("layer_norm", {slot: values[slot] for slot in slots}, wrt=slots, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "channels", "attrs"),
    [
        ((2, 4, 2, 2), 4, {"groups": 2}),
        ((2, 3, 2, 4), 4, {"groups": 2, "data_layout": "NHWC"}),
        ((2, 5, 3), 5, {"groups": 2}),  # the last group is smaller
    ],
)
def test_group_norm_gradient(shape: tuple[int, ...], channels: int, attrs: dict[str, Any]) -> None:
    inputs = {"X": normal(*shape), "Scale": normal(channels), "Bias": normal(channels)}
    check_gradient("group_norm", inputs, wrt=["X", "Scale", "Bias"], attrs=attrs, rtol=1e-4, atol=1e-6)


def test_group_norm_of_unequal_groups() -> None:
    x = normal(2, 5, 3)
    mean = run_op("group_norm", {"X": x}, {"groups": 2})["Mean"].numpy()
    np.testing.assert_allclose(mean, np.stack([x[:, :3].mean(axis=(1, 2)), x[:, 3:].mean(axis=(1, 2))], axis=1))


def test_group_norm_gradient_without_scale_is_paddles_formula() -> None:
    x, grad = normal(1, 2, 4), normal(1, 2, 4)
    forward = run_op("group_norm", {"X": x}, {"groups": 2, "epsilon": 0.0})
    inputs = {"Y": forward["Y"].numpy(), "Variance": forward["Variance"].numpy(), "Y@GRAD": grad}
    outputs = {"Scale@GRAD": 0, "Bias@GRAD": 0}
    got = run_op("group_norm_grad", inputs, {"groups": 2, "epsilon": 0.0}, outputs)["X@GRAD"].numpy()
    y = inputs["Y"]
    expected = (grad - y * (grad * y).mean(axis=2, keepdims=True)) / x.std(axis=2, keepdims=True)
    np.testing.assert_allclose(got, expected)


def test_instance_norm_gradient() -> None:
    inputs = {"X": normal(2, 3, 2, 3), "Scale": normal(3), "Bias": normal(3)}
    check_gradient("instance_norm", inputs, wrt=["X", "Scale", "Bias"], rtol=1e-4, atol=1e-6)


def test_instance_norm_without_scale_and_bias() -> None:
    got = run_op("instance_norm", {"X": normal(2, 3, 8)}, {"epsilon": 0.0})["Y"].numpy()
    np.testing.assert_allclose([got.mean(axis=2), got.var(axis=2)], [np.zeros((2, 3)), np.ones((2, 3))], atol=1e-12)


def first_gradient(op_type: str, x: Any, scale: Any, dy: Any) -> list[Any]:
    """Gradients by X, Scale and Bias, statistics computed anew from x."""
    axes = (2, 3) if op_type == "instance_norm" else (0, 2, 3)
    mean, inverse_std = x.mean(axis=axes).reshape(-1), 1 / np.sqrt(x.var(axis=axes) + 1e-5).reshape(-1)
    inputs = {"X": x, "Scale": scale, "SavedMean": mean, "SavedVariance": inverse_std, "Y@GRAD": dy}
    if op_type == "batch_norm":
        inputs["Bias"] = np.zeros_like(scale)
    got = run_op(op_type + "_grad", inputs)
    return [got[slot].numpy() for slot in ("X@GRAD", "Scale@GRAD", "Bias@GRAD")]


@pytest.mark.parametrize("op_type", ["instance_norm", "batch_norm"])
def test_second_gradient(op_type: str) -> None:
    values = {"X": normal(2, 2, 2, 3), "Scale": normal(2), "DY": normal(2, 2, 2, 3)}
    weights = [normal(2, 2, 2, 3), normal(2), normal(2)]

    def loss(point: dict[str, Any]) -> float:
        gradients = first_gradient(op_type, point["X"], point["Scale"], point["DY"])
        return sum(float((w * g).sum()) for w, g in zip(weights, gradients, strict=True))

    axes = (2, 3) if op_type == "instance_norm" else (0, 2, 3)
    inputs = {
        "X": values["X"],
        "Scale": values["Scale"],
        "SavedMean": values["X"].mean(axis=axes).reshape(-1),
        "SavedVariance": 1 / np.sqrt(values["X"].var(axis=axes) + 1e-5).reshape(-1),
        "DY": values["DY"],
        **dict(zip(("DDX", "DDScale", "DDBias"), weights, strict=True)),
    }
    got = run_op(op_type + "_grad_grad", inputs)
    for name, slot in {"X": "DX", "Scale": "DScale", "DY": "DDY"}.items():
        numeric = np.zeros_like(values[name])
        for index in np.ndindex(numeric.shape):
            step = np.zeros_like(numeric)
            step[index] = 1e-5
            numeric[index] = (
                loss({**values, name: values[name] + step}) - loss({**values, name: values[name] - step})
            ) / 2e-5
        np.testing.assert_allclose(got[slot].numpy(), numeric, rtol=1e-4, atol=1e-5, err_msg=name)


def test_batch_norm_second_gradient_with_running_statistics() -> None:
    x, scale, dy, ddx, ddscale = normal(2, 2, 3), normal(2), normal(2, 2, 3), normal(2, 2, 3), normal(2)
    mean, variance = normal(2), np.abs(normal(2)) + 1
    inputs = {"X": x, "Scale": scale, "SavedMean": mean, "SavedVariance": mean, "Mean": mean, "Variance": variance}
    got = run_op(
        "batch_norm_grad_grad", {**inputs, "DDX": ddx, "DDScale": ddscale, "DY": dy}, {"use_global_stats": True}
    )
    inverse_std = 1 / np.sqrt(variance + 1e-5)[:, None]
    np.testing.assert_allclose(got["DX"].numpy(), ddscale[:, None] * dy * inverse_std)
    np.testing.assert_allclose(got["DScale"].numpy(), (ddx * dy * inverse_std).sum(axis=(0, 2)))
    normalized = (x - mean[:, None]) * inverse_std
    np.testing.assert_allclose(got["DDY"].numpy(), ddx * scale[:, None] * inverse_std + ddscale[:, None] * normalized)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs"),
    [
        ("lrn", {"X": (2, 5, 2, 2)}, {"n": 3, "alpha": 0.5}),
        ("lrn", {"X": (1, 2, 2, 4)}, {"n": 5, "alpha": 0.5, "data_format": "NHWC"}),
        ("affine_channel", {"X": (2, 3, 2, 2), "Scale": (3,), "Bias": (3,)}, {}),
        ("affine_channel", {"X": (2, 2, 1, 3), "Scale": (3,), "Bias": (3,)}, {"data_layout": "NHWC"}),
    ],
)
def test_gradients_of_small_normalizations(op_type: str, inputs: dict[str, Any], attrs: dict[str, Any]) -> None:
    loss = ["Out"]
    check_gradient(
        op_type, {s: normal(*shape) for s, shape in inputs.items()}, wrt=list(inputs), attrs=attrs, loss=loss
    )


# -- data_norm
COUNTS = {"BatchSize": np.full(4, 10.0), "BatchSum": np.arange(4.0), "BatchSquareSum": np.arange(5.0, 9.0)}


@pytest.mark.parametrize("slot_dim", [-1, 2])
def test_data_norm_gradient(slot_dim: int) -> None:
    inputs = {"X": normal(3, 4), "scale_w": normal(4), "bias": normal(4), **COUNTS}
    attrs = {"enable_scale_and_shift": True, "slot_dim": slot_dim}
    check_gradient("data_norm", inputs, wrt=["X", "scale_w", "bias"], attrs=attrs, loss=["Y"])


def test_data_norm_leaves_out_slots_that_were_not_shown() -> None:
    x = np.array([[0, 5, 1, 5], [2, 5, 0, 7.0]])
    y = run_op("data_norm", {"X": x, **COUNTS}, {"slot_dim": 2})
    np.testing.assert_array_equal(y["Y"].numpy() == 0, [[True, True, False, False], [False, False, True, True]])
    inputs = {"X": x, "Scales": y["Scales"].numpy(), "Means": y["Means"].numpy(), "Y@GRAD": np.ones((2, 4))}
    got = run_op(
        "data_norm_grad",
        inputs,
        {"slot_dim": 2, "epsilon": 0.0},
        {"scale_w@GRAD": 0, "bias@GRAD": 0},
        fetch=["BatchSize@GRAD", "BatchSum@GRAD"],
    )
    assert got["BatchSize@GRAD"].numpy().tolist() == [1, 1, 1, 1]
    assert got["BatchSum@GRAD"].numpy().tolist() == [2, 5, 1, 5]


def test_spectral_norm_gradient_is_paddles_formula() -> None:
    weight, u, v, grad = normal(2, 3), normal(2), normal(3), normal(2, 3)
    got = run_op("spectral_norm_grad", {"Weight": weight, "U": u, "V": v, "Out@GRAD": grad}, {"power_iters": 0})
    sigma = u @ weight @ v
    expected = grad * (1 - np.outer(u, v) * (weight / sigma).sum()) / sigma
    np.testing.assert_allclose(got["Weight@GRAD"].numpy(), expected)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs", "message"),
    [
        ("batch_norm", batch_inputs(normal(2, 2, 3), 3), {}, r"input Scale must have shape \(2,\) .* found \(3,\)"),
        ("batch_norm", batch_inputs(normal(0, 3, 2), 3), {}, r"X \(0, 3, 2\) is empty; a batch without elements"),
        (
            "batch_norm",
            {**batch_inputs(normal(2, 3), 3), "X": np.ones((2, 3), np.int64)},
            {},
            r"X must be floating point, found int64",
        ),
        (
            "layer_norm",
            {"X": normal(2, 3)},
            {"begin_norm_axis": 2},
            r"begin_norm_axis must be between 1 and 1 for X of shape \(2, 3\), found 2",
        ),
        ("layer_norm", {"X": normal(2, 3), "Scale": normal(2)}, {}, r"Scale must hold 3 numbers, found shape \(2,\)"),
        ("group_norm", {"X": normal(2, 4, 2)}, {"groups": 5}, r"groups must split the 4 channels of X .*found 5"),
        ("group_norm", {"X": normal(2, 4, 2)}, {"groups": 3}, r"into groups that are not empty, found 3"),
        ("instance_norm", {"X": normal(3)}, {}, r"X must have 2 or 3 or 4 or 5 dimensions, found shape \(3,\)"),
        ("lrn", {"X": normal(1, 2, 2, 2)}, {"n": 4}, r"n must be an odd positive number, found 4"),
        ("data_norm", {"X": normal(2, 4), **COUNTS}, {"slot_dim": 3}, r"slot_dim 3 must divide the width of X"),
        ("data_norm", {"X": normal(2, 4), **COUNTS}, {"enable_scale_and_shift": True}, r"the input scale_w is missing"),
        ("inplace_abn", batch_inputs(normal(2, 3), 3), {"activation": "relu"}, r"activation must be .* found 'relu'"),
        ("spectral_norm", {"Weight": normal(2, 3), "U": normal(3), "V": normal(3)}, {}, r"U must have shape \(2,\)"),
    ],
)
def test_what_does_not_fit_is_named(op_type: str, inputs: Any, attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=rf"operator {op_type}: .*{message}"):
        run_op(op_type, inputs, attrs)


def test_gradient_of_a_test_run_asks_for_the_statistics() -> None:
    inputs = {
        "X": normal(2, 3),
        "Scale": normal(3),
        "Bias": normal(3),
        "SavedMean": normal(3),
        "SavedVariance": normal(3),
    }
    with pytest.raises(
        OperatorError, match="batch_norm_grad: it needs Mean and Variance, as is_test or use_global_stats is set"
    ):
        run_op("batch_norm_grad", {**inputs, "Y@GRAD": normal(2, 3)}, {"is_test": True})
