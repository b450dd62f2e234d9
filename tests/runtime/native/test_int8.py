"""Programs with fake quantization in 8 bits: what the float program gives, within one step of the output's scale; and the same
bits by every instruction set."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluidtool.ops.schema import TensorMeta
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor
from fluidtool.runtime.engines.native.library import library, usable_instructions
from fluidtool.runtime.engines.native.preview import preview
from fluidtool.runtime.graph.quantization import whole_numbers
from fluidtool.runtime.partition import Region
from tests.runtime.native.checking import RTOL, Array, Net
from tests.support.checkout import child_environment

pytestmark = pytest.mark.usefixtures("native")
few = settings(max_examples=60, deadline=None)
STEPS = 127
MOVING = ("OutScale", "OutState", "OutAccum")


# ---------------------------------------------------------------- programs
def rounded(net: Net, x: str, scale: float, version: int = 0, **attrs: Any) -> str:
    """An activation that is quantized and brought back at once."""
    net.program.version = version
    inputs = {"X": x, "InScale": net.parameter(of=np.array([scale], np.float32))}
    return net.op("fake_quantize_dequantize_moving_average_abs_max", "Out", inputs, *MOVING, is_test=True, **attrs)


def weights(net: Net, *shape: int, axis: int | None = 0, **attrs: Any) -> str:
    """Weights that are quantized and brought back at once, by tensor or by channel."""
    if axis is None:
        return net.op("fake_quantize_dequantize_abs_max", "Out", {"X": net.parameter(*shape)}, "OutScale", **attrs)
    kind = "fake_channel_wise_quantize_dequantize_abs_max"
    return net.op(kind, "Out", {"X": net.parameter(*shape)}, "OutScale", quant_axis=axis, **attrs)


def whole(net: Net, *shape: int) -> tuple[str, Array]:
    """Weights as a frozen program has them: whole numbers; and the scale of each output."""
    numbers = net.random.integers(-STEPS, STEPS + 1, shape).astype(np.float32)
    return net.parameter(of=numbers), net.random.uniform(0.5, 2, shape[0]).astype(np.float32)


def kinds(net: Net) -> list[str]:
    """The kernels of the last run, and the operators outside all regions."""
    found: list[str] = []
    for step in net.plan.work:
        if not isinstance(step, Region):
            found.append(step.op.type)
            continue
        for specialization in step.specializations.kept.values():
            found += [kernel_call.kind.name for kernel_call in specialization.kernel_calls]
    return found


def same(net: Net, *fetches: str, by_8_bits: bool = True) -> list[str]:
    """Both engines give the same but for the last bits of floats, all of it in one region; the kernels."""
    want = net.run("numpy", *fetches)
    for _ in range(2):  # the second run finds the arena used
        got = net.run("native", *fetches)
        for a, b in zip(got, want, strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype == np.float32
            np.testing.assert_allclose(a, b, rtol=0, atol=RTOL * max(float(np.abs(b).max()), 1e-30))
    assert net.why_not() == [] and len(net.plan.work) == net.regions() == 1
    assert any(kind in ("INT8_PRODUCTS", "INT8_DEPTHWISE") for kind in kinds(net)) == by_8_bits
    return kinds(net)


def in_steps(net: Net, scale: float, *fetches: str) -> None:
    """Quantized results differ by one step at most, at ties, and hardly anywhere."""
    for a, b in zip(net.run("native", *fetches), net.run("numpy", *fetches), strict=True):
        apart = np.rint(np.abs(a.astype(float) - b) / scale * STEPS)
        assert apart.max() <= 1 and (apart > 0).mean() <= 0.01
    net.run("native", *fetches)
    assert net.why_not() == []


# ---------------------------------------------------------------- convolutions
@few
@given(st.data())
def test_convolution(data: st.DataObject) -> None:
    draw, net = data.draw, Net()
    channels, filters = draw(st.integers(1, 40)), draw(st.integers(2, 40))
    window = [draw(st.integers(1, 4)), draw(st.integers(1, 4))]
    x = net.data(draw(st.integers(1, 2)), channels, draw(st.integers(4, 20)), draw(st.integers(7, 20)))
    settled = {
        "strides": [draw(st.integers(1, 3)), draw(st.integers(1, 3))],
        "paddings": [draw(st.integers(0, 2)), draw(st.integers(0, 2))],
        "dilations": [1, draw(st.integers(1, 2))],
    }
    filters_of = weights(net, filters, channels, *window, axis=draw(st.sampled_from([None, 0])))
    same(net, net.conv(rounded(net, x, 3.0), filters_of, **settled))


@pytest.mark.parametrize(
    ("shape", "filters", "attrs"),
    [
        ((1, 32, 9, 9), (48, 32, 3, 3), {"dilations": [2, 2], "paddings": [2, 2]}),
        ((1, 3, 29, 31), (24, 3, 7, 7), {"strides": [2, 2], "paddings": [3, 3]}),
        ((3, 130, 7, 7), (70, 130, 1, 1), {}),
        ((1, 64, 15, 15), (32, 64, 1, 1), {"strides": [2, 2]}),
        ((2, 5, 6, 33), (8, 5, 3, 3), {"paddings": [1, 1]}),
        ((2, 17, 1, 1), (35, 17, 1, 1), {}),
        ((1, 16, 5, 5), (16, 16, 3, 3), {"paddings": [1, 0, 2, 1]}),
        ((1, 16, 5, 5), (16, 16, 3, 3), {"paddings": [0, 0], "padding_algorithm": "SAME"}),
    ],
)
def test_convolutions_of_many_kinds(shape: tuple[int, ...], filters: tuple[int, ...], attrs: dict[str, Any]) -> None:
    net = Net()
    same(net, net.conv(rounded(net, net.data(*shape), 3.0), weights(net, *filters), **attrs))


@few
@given(st.data())
def test_depthwise_convolution(data: st.DataObject) -> None:
    draw, net = data.draw, Net()
    channels, window = draw(st.integers(2, 40)), [draw(st.integers(1, 5)), draw(st.integers(1, 5))]
    x = net.data(draw(st.integers(1, 2)), channels, draw(st.integers(9, 16)), draw(st.integers(9, 16)))
    y = net.conv(
        rounded(net, x, 3.0), weights(net, channels, 1, *window), type="depthwise_conv2d", groups=channels,
        strides=[draw(st.integers(1, 3))] * 2, paddings=[draw(st.integers(0, 2))] * 2, dilations=[draw(st.integers(1, 2))] * 2,
    )  # fmt: skip
    assert "INT8_DEPTHWISE" in same(net, net.op("relu", "Out", {"X": y}))


# ---------------------------------------------------------------- products
@few
@given(st.integers(1, 40), st.integers(1, 70), st.integers(1, 70), st.sampled_from([None, 1]))
def test_product(rows: int, depth: int, columns: int, axis: int | None) -> None:
    net = Net()
    x, w = rounded(net, net.data(rows, depth), 3.0), weights(net, depth, columns, axis=axis)
    y = net.op("mul", "Out", {"X": x, "Y": w})
    same(net, net.op("elementwise_add", "Out", {"X": y, "Y": net.parameter(columns)}, axis=1))


@pytest.mark.parametrize("swap", [False, True])
def test_matmul_by_a_parameter(swap: bool) -> None:
    net = Net()
    x = rounded(net, net.data(2, 9, 35), 3.0)
    w = weights(net, *((21, 35) if swap else (35, 21)), axis=0 if swap else 1)
    same(net, net.op("matmul", "Out", {"X": x, "Y": w}, transpose_Y=swap, alpha=0.3))


def test_fc_with_an_activation() -> None:
    net = Net()
    x, w = rounded(net, net.data(7, 50), 3.0), weights(net, 50, 33, axis=1)
    inputs = {"Input": x, "W": w, "Bias": net.parameter(1, 33)}
    same(net, net.op("fc", "Out", inputs, in_num_col_dims=1, activation_type="relu"))


def test_steps_along_the_depth_stay_floats() -> None:
    net = Net()
    x, w = rounded(net, net.data(7, 50), 3.0), weights(net, 50, 33, axis=0)
    same(net, net.op("mul", "Out", {"X": x, "Y": w}), by_8_bits=False)


# ---------------------------------------------------------------- what goes into the store
def batch_norm(net: Net, x: str, channels: int) -> str:
    inputs = {
        "X": x,
        "Scale": net.parameter(channels),
        "Bias": net.parameter(channels),
        "Mean": net.parameter(channels),
    }
    inputs["Variance"] = net.parameter(of=net.random.uniform(0.5, 2, channels).astype(np.float32))
    return net.op("batch_norm", "Y", inputs, is_test=True, epsilon=1e-5)


@pytest.mark.parametrize("act", ["relu", "relu6", "leaky_relu", "hard_swish", "sigmoid"])
def test_normalization_activation_and_the_next_quantizer_are_one_step(act: str) -> None:
    net = Net()
    attrs = {"relu6": {"threshold": 6.0}, "leaky_relu": {"alpha": 0.1}, "hard_swish": {}}.get(act, {})
    if act == "hard_swish":
        attrs = {"threshold": 6.0, "offset": 3.0, "scale": 6.0}
    y = net.conv(rounded(net, net.data(2, 20, 9, 9), 3.0), weights(net, 24, 20, 3, 3), paddings=[1, 1])
    y = net.op(act, "Out", {"X": batch_norm(net, y, 24)}, **attrs)
    z = net.conv(rounded(net, y, 4.0), weights(net, 24, 1, 3, 3), type="depthwise_conv2d", groups=24)
    out = net.conv(rounded(net, z, 4.0), weights(net, 16, 24, 1, 1))
    in_steps(net, 1e3, out)
    found = [kind for kind in kinds(net) if kind != "INT8_HALO"]
    assert found == ["TO_INT8", "INT8_PRODUCTS", "INT8_DEPTHWISE", "INT8_PRODUCTS", "UNBLOCK"]


def test_a_residual_is_added_as_floats() -> None:
    net = Net()
    x = net.data(2, 32, 9, 9)
    y = net.conv(rounded(net, x, 3.0), weights(net, 32, 32, 3, 3), paddings=[1, 1])
    y = net.op("relu", "Out", {"X": net.op("elementwise_add", "Out", {"X": y, "Y": x})})
    z = net.conv(rounded(net, y, 9.0), weights(net, 32, 32, 1, 1))
    same(net, net.op("elementwise_add", "Out", {"X": z, "Y": y}))


def test_what_is_read_as_floats_too_is_stored_twice() -> None:
    net = Net()
    y = net.conv(rounded(net, net.data(1, 16, 6, 6), 3.0), weights(net, 16, 16, 1, 1))
    z = rounded(net, y, 9.0)
    same(net, y, z, net.conv(z, weights(net, 16, 16, 1, 1)))


def test_two_quantizers_of_one_value() -> None:
    net = Net()
    y = net.conv(rounded(net, net.data(1, 16, 6, 6), 3.0), weights(net, 16, 16, 1, 1))
    same(net, *(net.conv(rounded(net, y, scale), weights(net, 16, 16, 1, 1)) for scale in (5.0, 9.0)))


def test_an_image_and_a_matrix_of_one_value() -> None:
    net = Net()
    z = rounded(net, net.data(3, 24, 1, 1), 3.0)
    y = net.op("mul", "Out", {"X": z, "Y": weights(net, 24, 10, axis=1)})
    same(net, y, net.conv(z, weights(net, 16, 24, 1, 1)))


def test_what_another_operator_reads_is_rounded_as_floats() -> None:
    net = Net()
    y = rounded(net, net.conv(net.data(1, 8, 6, 6), net.parameter(8, 8, 3, 3)), 9.0)
    pooled = net.op("pool2d", "Out", {"X": y}, pooling_type="avg", ksize=[2, 2], strides=[2, 2], paddings=[0, 0])
    assert "ROUND_TO_STEPS" in same(net, pooled, by_8_bits=False)


# ---------------------------------------------------------------- what Paddle writes
def test_frozen_by_tensor() -> None:
    net = Net()
    scale = net.parameter(of=np.array([3.0], np.float32))
    inputs = {"X": net.data(2, 20, 8, 8), "InScale": scale}
    x = net.op("fake_quantize_moving_average_abs_max", "Out", inputs, *MOVING, is_test=True)
    filters, _ = whole(net, 24, 20, 3, 3)
    y = net.conv(x, filters)
    y = net.op("fake_dequantize_max_abs", "Out", {"X": y, "Scale": scale}, max_range=float(STEPS * STEPS / 0.7))
    same(net, net.op("relu", "Out", {"X": batch_norm(net, y, 24)}))
    assert kinds(net).count("INT8_PRODUCTS") == 1


def test_frozen_by_channel() -> None:
    net = Net()
    scale = net.parameter(of=np.array([3.0], np.float32))
    inputs = {"X": net.data(2, 20, 8, 8), "InScale": scale}
    x = net.op("fake_quantize_range_abs_max", "Out", inputs, "OutScale", "OutScales", is_test=True, window_size=4)
    filters, scales = whole(net, 24, 20, 3, 3)
    inputs = {"X": net.conv(x, filters), "Scales": [net.parameter(of=scales), scale]}
    same(net, net.op("fake_channel_wise_dequantize_max_abs", "Out", inputs, quant_bits=[8, 8]))


def test_frozen_product() -> None:
    net = Net()
    scale = net.parameter(of=np.array([3.0], np.float32))
    inputs = {"X": net.data(5, 40), "InScale": scale}
    x = net.op("fake_quantize_moving_average_abs_max", "Out", inputs, *MOVING, is_test=True)
    numbers, _ = whole(net, 40, 17)
    y = net.op("mul", "Out", {"X": x, "Y": numbers})
    y = net.op("fake_dequantize_max_abs", "Out", {"X": y, "Scale": scale}, max_range=float(STEPS * STEPS))
    same(net, net.op("elementwise_add", "Out", {"X": y, "Y": net.parameter(17)}, axis=1))


def test_weights_and_activations_quantized_and_brought_back_apart() -> None:
    net = Net()
    filters, scale_of_filters = net.several(
        "fake_channel_wise_quantize_abs_max", {"Out": 1, "OutScale": 1}, {"X": net.parameter(24, 20, 3, 3)}
    )
    inputs = {"X": filters, "Scales": scale_of_filters}
    filters = net.op("fake_channel_wise_dequantize_max_abs", "Out", inputs, quant_bits=[8])
    scale = net.parameter(of=np.array([3.0], np.float32))
    inputs = {"X": net.data(2, 20, 8, 8), "InScale": scale}
    x = net.op("fake_quantize_moving_average_abs_max", "Out", inputs, *MOVING, is_test=True)
    x = net.op("fake_dequantize_max_abs", "Out", {"X": x, "Scale": scale}, max_range=float(STEPS))
    same(net, net.conv(x, filters))


def test_weights_by_tensor_quantized_and_brought_back_apart() -> None:
    net = Net()
    numbers, scale_of_them = net.several(
        "fake_quantize_abs_max", {"Out": 1, "OutScale": 1}, {"X": net.parameter(30, 20)}
    )
    w = net.op("fake_dequantize_max_abs", "Out", {"X": numbers, "Scale": scale_of_them}, max_range=float(STEPS))
    same(net, net.op("mul", "Out", {"X": rounded(net, net.data(4, 30), 3.0), "Y": w}))


@pytest.mark.parametrize("round_type", [0, 1])
@pytest.mark.parametrize("stored", [np.int8, np.float32])
def test_quantize_linear(round_type: int, stored: type) -> None:
    net = Net()
    zero, scale = net.parameter(of=np.zeros(1, np.float32)), net.parameter(of=np.array([2.5], np.float32))
    of_all: dict[str, Any] = {"quant_axis": -1, "bit_length": 8, "round_type": round_type, "is_test": True}
    inputs = {"X": net.data(2, 20, 8, 8), "Scale": scale, "ZeroPoint": zero}
    x = net.op("quantize_linear", "Y", inputs, **of_all)
    x = net.op("dequantize_linear", "Y", {"X": x, "Scale": scale, "ZeroPoint": zero}, **of_all)
    numbers = net.random.integers(-STEPS, STEPS + 1, (24, 20, 3, 3)).astype(stored)
    scales = net.parameter(of=net.random.uniform(0.5, 2, 24).astype(np.float32))
    inputs = {"X": net.parameter(of=numbers), "Scale": scales, "ZeroPoint": zero}
    same(net, net.conv(x, net.op("dequantize_linear", "Y", inputs, **of_all | {"quant_axis": 0})))


@pytest.mark.parametrize("version", [0, 2_000_000], ids=["1.8", "2.0"])
@pytest.mark.parametrize("round_type", [None, 0, 1])
def test_quantizers_round_to_the_same_bits(version: int, round_type: int | None) -> None:
    net = Net()
    net.program.version = version
    ties = (np.arange(-140, 140, dtype=np.float32) + 0.5) / STEPS * 3
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 3.0, -3.0], np.float32)
    x = net.data(of=np.concatenate([ties, special, net.random.standard_normal(300).astype(np.float32)]).reshape(1, -1))
    y = rounded(net, x, 3.0, version)
    if round_type is not None:
        net.program.global_block().ops[-1]._set_attr("round_type", round_type)
    net.op("mul", "Out", {"X": y, "Y": net.parameter(587, 3)})
    for a, b in zip(net.run("native", y), net.run("numpy", y), strict=True):
        np.testing.assert_array_equal(a, b)


# ---------------------------------------------------------------- what goes on as before
def as_before(net: Net, fetch: str, of: str) -> None:
    """Left to numpy, with the same numbers."""
    want, got = net.run("numpy", fetch), net.run("native", fetch)
    np.testing.assert_allclose(got[0], want[0], rtol=0, atol=RTOL * float(np.abs(want[0]).max()))
    assert of in kinds(net) or any(of in why for why in net.why_not()), (kinds(net), net.why_not())


def test_a_scale_of_the_run() -> None:
    net = Net()
    y = net.op("fake_quantize_dequantize_abs_max", "Out", {"X": net.data(2, 8, 6, 6)}, "OutScale")
    as_before(net, net.conv(y, weights(net, 8, 8, 3, 3)), "a scale that is computed in every run")


def test_a_scale_that_is_learned() -> None:
    net = Net()
    inputs = {name: net.parameter(of=np.array([3.0], np.float32)) for name in ("InScale", "InAccum", "InState")}
    inputs["X"] = net.data(2, 8, 6, 6)
    y = net.op("fake_quantize_dequantize_moving_average_abs_max", "Out", inputs, *MOVING, is_test=False)
    as_before(net, net.conv(y, net.parameter(8, 8, 3, 3)), "quantization that still learns its scale")


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan])
def test_a_scale_that_is_no_size(scale: float) -> None:
    net = Net()
    y = rounded(net, net.data(2, 8), scale)
    net.op("mul", "Out", {"X": y, "Y": net.parameter(8, 3)})
    (want,), (got,) = (net.run(engine, y) for engine in ("numpy", "native"))
    np.testing.assert_array_equal(got, want)


def test_sixteen_bits_are_floats() -> None:
    net = Net()
    x = rounded(net, net.data(2, 8, 6, 6), 3.0, bit_length=16)
    same(net, net.conv(x, weights(net, 8, 8, 3, 3)), by_8_bits=False)


def test_groups_are_floats() -> None:
    net = Net()
    x = rounded(net, net.data(1, 32, 6, 6), 3.0)
    same(net, net.conv(x, weights(net, 32, 16, 3, 3), groups=2), by_8_bits=False)


def test_weights_without_a_quantizer_are_floats() -> None:
    net = Net()
    same(net, net.conv(rounded(net, net.data(1, 8, 6, 6), 3.0), net.parameter(8, 8, 3, 3)), by_8_bits=False)


def test_frozen_weights_of_more_bits_are_floats() -> None:
    net = Net()
    scale = net.parameter(of=np.array([3.0], np.float32))
    inputs = {"X": net.data(1, 8, 6, 6), "InScale": scale}
    x = net.op("fake_quantize_moving_average_abs_max", "Out", inputs, *MOVING, is_test=True)
    numbers = net.random.integers(-300, 300, (8, 8, 3, 3)).astype(np.float32)
    same(net, net.conv(x, net.parameter(of=numbers)), by_8_bits=False)


def test_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()
    y = net.conv(rounded(net, net.data(1, 8, 6, 6), 3.0), weights(net, 8, 8, 3, 3))
    monkeypatch.setenv("FLUIDTOOL_INT8", "0")
    (want,), (got,) = (net.run(engine, y) for engine in ("numpy", "native"))
    np.testing.assert_allclose(got, want, rtol=0, atol=RTOL * float(np.abs(want).max()))
    assert "fake_quantize_dequantize_moving_average_abs_max" in kinds(net)
    assert "INT8_PRODUCTS" not in kinds(net)


# ---------------------------------------------------------------- other inputs
@pytest.mark.parametrize("form", ["brought back", "frozen"])
def test_weights_are_rounded_once_for_all_inputs(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net, made = Net(), []
    x, (filters, _) = net.data(1, 8, 6, 6), whole(net, 8, 8, 3, 3)
    if form == "frozen":
        inputs = {"X": x, "InScale": net.parameter(of=np.array([3.0], np.float32))}
        y = net.op("fake_quantize_moving_average_abs_max", "Out", inputs, *MOVING, is_test=True)
    else:
        y, filters = rounded(net, x, 3.0), weights(net, 8, 8, 3, 3)
    y = net.conv(y, filters)

    def counted(values: Any) -> Any:
        made.append(values)
        return whole_numbers(values)

    monkeypatch.setattr("fluidtool.runtime.graph.importers.quantization.whole_numbers", counted)
    executor = Executor(engine="native")
    for rows in (6, 9, 12):
        image = net.random.standard_normal((1, 8, rows, 6)).astype(np.float32)
        (got,) = executor.run(net.program, {x: image}, [y], net.scope)
        net.feeds[x] = image
        np.testing.assert_allclose(got.numpy(), net.run("numpy", y)[0], rtol=0, atol=1e-3)
    assert len(made) == 1


# ---------------------------------------------------------------- every instruction set
def network_of_8_bits() -> list[Array]:
    """Activations of a network whose every step rounds."""
    net, found = Net(7), []
    x = net.data(2, 19, 17, 15)
    for number, (filters, act) in enumerate(
        (((40, 19, 3, 3), "relu"), ((33, 40, 1, 1), "sigmoid"), ((24, 33, 1, 1), "swish"))
    ):
        y = batch_norm(net, net.conv(rounded(net, x, 3.0 + number), weights(net, *filters)), filters[0])
        x = net.op(act, "Out", {"X": y}, **({"beta": 1.0} if act == "swish" else {}))
        if number == 1:
            y = net.conv(rounded(net, x, 1.0), weights(net, 33, 1, 3, 3), type="depthwise_conv2d", groups=33)
            x = net.op("relu6", "Out", {"X": y}, threshold=6.0)
        found.append(x)
    flat = net.op("mul", "Out", {"X": rounded(net, x, 2.0, 2_000_000), "Y": weights(net, 24 * 13 * 11, 10, axis=1)})
    return net.run("native", *found, flat)


def tiles_of_8_bits() -> list[Array]:
    """Rows of pixels of all lengths, some of which are computed twice, channels of all numbers, with what is added."""
    net, found = Net(8), []
    for columns in (1, 5, 16, 17, 31, 33, 50):
        for channels, size in ((3, 7), (16, 3), (24, 3), (29, 1), (64, 1), (100, 1)):
            x = rounded(net, net.data(1, channels, 9, columns), 3.0)
            shortcut = net.data(1, 35, 9, columns)
            y = net.conv(x, weights(net, 35, channels, size, size), paddings=[size // 2] * 2)
            found.append(net.op("elementwise_add", "Out", {"X": y, "Y": shortcut}))
    return net.run("native", *found)


def digest(arrays: list[Array]) -> str:
    """Equal for equal bits."""
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


def usable() -> list[str]:
    found = library()
    return [] if found is None else usable_instructions(found.handle)


@pytest.mark.parametrize("instructions", ["amx", "avx512_vnni", "avx512", "avx2_vnni", "avx2", "portable"])
def test_every_instruction_set_gives_the_same_bits(instructions: str) -> None:
    if instructions not in usable():
        pytest.skip(f"this build or processor has no {instructions}")
    code = (
        "from fluidtool.ir.operator import hooks; hooks.prepare = hooks.infer = None\n"
        "from tests.runtime.native.test_int8 import digest, network_of_8_bits, tiles_of_8_bits\n"
        "from fluidtool.runtime.engines.native.library import library\n"
        "print(library().instructions, digest(network_of_8_bits()), digest(tiles_of_8_bits()))"
    )
    env = child_environment(FLUIDTOOL_INSTRUCTIONS=instructions)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [instructions, digest(network_of_8_bits()), digest(tiles_of_8_bits())]


# ---------------------------------------------------------------- plans
def test_a_plan_of_many_frozen_weights_shows_8_bits() -> None:
    """Plans do not read parameters: they take numbers that are whole, however many parameters there are."""
    net = Net()
    x = net.data(1, 8, 4, 4)
    for _ in range(50):
        scale = net.parameter(of=np.array([3.0], np.float32))
        inputs = {"X": x, "InScale": scale}
        x = net.op("fake_quantize_moving_average_abs_max", "Out", inputs, *MOVING, is_test=True)
        filters, scales = whole(net, 8, 8, 1, 1)
        inputs = {"X": net.conv(x, filters), "Scales": [net.parameter(of=scales), scale]}
        x = net.op("fake_channel_wise_dequantize_max_abs", "Out", inputs, quant_bits=[8, 8])
    net.run("native", x)
    (region,) = (step for step in net.plan.work if isinstance(step, Region))
    found = preview(region, net.program.global_block(), {region.inputs[0]: TensorMeta((1, 8, 4, 4), VarType.FP32)})
    assert [call.kernel for call in found.kernel_calls].count("int8 products") == 50 and not found.reason
