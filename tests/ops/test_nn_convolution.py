"""Convolutions: gradients by central differences, layouts and paddings by Paddle's numbers, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from fluidtool.ops.nn import columns
from tests.support.operators import check_gradient, run_op

RNG = np.random.default_rng(0)
IMAGE = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
ONES = np.ones((1, 1, 2, 2), np.float32)


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape)


def direct(x: Any, weight: Any, stride: int = 1, padding: int = 0, dilation: int = 1, groups: int = 1) -> Any:
    """2-D convolution by its definition."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    out_channels, in_channels, height, width = weight.shape
    rows = (x.shape[2] - dilation * (height - 1) - 1) // stride + 1
    columns = (x.shape[3] - dilation * (width - 1) - 1) // stride + 1
    out = np.zeros((len(x), out_channels, rows, columns))
    for o, r, c in np.ndindex(out_channels, rows, columns):
        first = o // (out_channels // groups) * in_channels
        window = x[
            :,
            first : first + in_channels,
            r * stride : r * stride + dilation * height : dilation,
            c * stride : c * stride + dilation * width : dilation,
        ]
        out[:, o, r, c] = (window[:, :, :height, :width] * weight[o]).sum(axis=(1, 2, 3))
    return out


@pytest.mark.parametrize(
    ("channels", "filters", "kernel", "groups", "stride", "padding", "dilation"),
    [
        (3, 4, 1, 1, 1, 0, 1),  # 1x1
        (4, 4, 1, 2, 2, 0, 1),  # 1x1, groups, strided
        (3, 2, 1, 1, 2, 1, 1),  # 1x1 with padding
        (4, 4, 3, 4, 1, 1, 1),  # depthwise
        (4, 8, 3, 4, 2, 1, 1),  # depthwise, two filters per channel
        (2, 12, 2, 2, 1, 0, 2),  # one channel per group, many filters, dilated
        (4, 6, 3, 2, 2, 2, 1),  # groups
        (3, 2, 2, 1, 3, 0, 2),  # strides beyond the kernel
    ],
)
def test_every_way_to_convolve_is_the_definition(
    channels: int, filters: int, kernel: int, groups: int, stride: int, padding: int, dilation: int
) -> None:
    x, weight = normal(2, channels, 7, 6), normal(filters, channels // groups, kernel, kernel)
    attrs = {
        "groups": groups,
        "strides": [stride, stride],
        "paddings": [padding, padding],
        "dilations": [dilation, dilation],
    }
    out = run_op("conv2d", {"Input": x, "Filter": weight}, attrs)["Output"].numpy()
    np.testing.assert_allclose(out, direct(x, weight, stride, padding, dilation, groups), rtol=1e-12, atol=1e-12)
    last = {"Input": x.transpose(0, 2, 3, 1), "Filter": weight}
    nhwc = run_op("conv2d", last, {**attrs, "data_format": "NHWC"})["Output"].numpy()
    np.testing.assert_allclose(nhwc.transpose(0, 3, 1, 2), out, rtol=1e-12, atol=1e-12)


def test_large_images_are_convolved_in_strips() -> None:
    x, weight = normal(3, 64, 90, 90).astype(np.float32), normal(2, 64, 3, 3).astype(np.float32)
    whole = run_op("conv2d", {"Input": x, "Filter": weight})["Output"].numpy()
    for top in (0, 40, 80):
        part = run_op("conv2d", {"Input": x[1:2, :, top : top + 10], "Filter": weight})["Output"].numpy()
        np.testing.assert_allclose(whole[1:2, :, top : top + 8], part, rtol=1e-4, atol=1e-4)


def by_windows(x: Any, weight: Any, strides: Sequence[int], paddings: Sequence[int], dilations: Sequence[int]) -> Any:
    """Convolution of any rank by its definition; `paddings` are (before, after) of each axis, one after the other."""
    pairs = list(zip(paddings[::2], paddings[1::2], strict=True))
    axes = tuple(range(2, x.ndim))
    extents = [dilation * (size - 1) + 1 for size, dilation in zip(weight.shape[2:], dilations, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, [(0, 0), (0, 0), *pairs]), extents, axes)
    steps = [slice(None, None, stride) for stride in strides]
    taps = [slice(None, None, dilation) for dilation in dilations]
    met = windows[(slice(None), slice(None), *steps, *taps)]
    kernel = range(met.ndim - len(axes), met.ndim)
    return np.moveaxis(np.tensordot(met, weight, ((1, *kernel), (1, *axes))), -1, 1)


ONE_FOR_EACH_CELL = [
    ((7, 6), (3, 3), (1, 1, 1, 1), (1, 1)),
    ((7, 6), (3, 3), (0, 2, 2, 0), (1, 1)),  # paddings on one side
    ((7, 6), (5, 1), (2, 2, 0, 0), (1, 1)),
    ((7, 6), (2, 4), (1, 0, 1, 2), (1, 1)),  # even kernels
    ((7, 6), (3, 3), (4, 4, 5, 5), (4, 5)),  # most taps are beyond the image
    ((1, 2), (3, 5), (1, 1, 2, 2), (1, 1)),  # a kernel larger than the image
    ((5,) * 3, (3, 1, 3), (1, 1, 0, 0, 1, 1), (1, 1, 1)),
]


@pytest.mark.parametrize("strip", [1 << 24, 1 << 11, 1], ids=["whole", "strips", "rows"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(("sizes", "kernel", "paddings", "dilations"), ONE_FOR_EACH_CELL)
def test_a_window_at_each_cell(
    sizes: tuple[int, ...],
    kernel: tuple[int, ...],
    paddings: tuple[int, ...],
    dilations: tuple[int, ...],
    batch: int,
    strip: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(columns, "COLUMN_BYTES", strip)
    x, weight = normal(batch, 2, *sizes), normal(3, 2, *kernel)
    attrs = {"strides": [1] * len(sizes), "paddings": list(paddings), "dilations": list(dilations)}
    out = run_op(f"conv{len(sizes)}d", {"Input": x, "Filter": weight}, attrs)["Output"].numpy()
    assert out.shape[2:] == sizes
    np.testing.assert_allclose(
        out, by_windows(x, weight, attrs["strides"], paddings, dilations), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("strip", [1 << 24, 1 << 13], ids=["whole", "strips"])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(("stride", "dilation"), [(2, 1), (3, 1), (2, 3), (3, 2)])
def test_long_rows_with_a_stride(
    stride: int, dilation: int, batch: int, strip: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "COLUMN_BYTES", strip)
    x, weight = normal(batch, 3, 9, columns.LONG_ROW * stride + 1), normal(2, 3, 3, 3)
    attrs = {"strides": [2, stride], "paddings": [1, 0, 3, 2], "dilations": [1, dilation]}
    out = run_op("conv2d", {"Input": x, "Filter": weight}, attrs)["Output"].numpy()
    expected = by_windows(x, weight, attrs["strides"], attrs["paddings"], attrs["dilations"])
    np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("op_type", "input_shape", "filter_shape", "attrs"),
    [
        ("conv2d", (2, 2, 4, 3), (2, 2, 2, 2), {"paddings": [1, 0, 0, 1], "strides": [2, 1]}),
        ("conv2d", (1, 3, 3, 4), (2, 2, 2, 2), {"groups": 2, "data_format": "NHWC", "_channels": 4}),
        ("conv2d", (2, 3, 3, 2), (2, 3, 1, 1), {"strides": [2, 2]}),
        ("depthwise_conv2d", (1, 3, 4, 4), (3, 1, 2, 3), {"groups": 3, "paddings": [1, 1], "dilations": [2, 1]}),
        ("depthwise_conv2d", (1, 2, 4, 3), (4, 1, 2, 2), {"groups": 2, "strides": [2, 1]}),
        ("conv3d", (1, 2, 3, 2, 3), (2, 1, 2, 2, 2), {"groups": 2, "paddings": [0, 1, 0]}),
        ("conv2d_transpose", (1, 2, 3, 2), (2, 3, 2, 2), {"strides": [2, 2], "output_size": [7, 5]}),
        ("conv2d_transpose", (1, 2, 2, 4), (4, 1, 2, 2), {"groups": 2, "paddings": [1, 0], "data_format": "NHWC"}),
        ("depthwise_conv2d_transpose", (1, 3, 2, 3), (3, 1, 3, 2), {"groups": 3, "strides": [2, 1]}),
        ("conv3d_transpose", (1, 2, 2, 2, 2), (2, 1, 2, 1, 2), {"strides": [2, 1, 1]}),
    ],
)
def test_gradients(op_type: str, input_shape: Any, filter_shape: Any, attrs: dict[str, Any]) -> None:
    attrs = {name: value for name, value in attrs.items() if not name.startswith("_")}
    check_gradient(
        op_type, {"Input": normal(*input_shape), "Filter": normal(*filter_shape)}, wrt=["Input", "Filter"], attrs=attrs
    )


@pytest.mark.parametrize("op_type", ["conv2d", "conv2d_transpose"])
def test_gradient_by_bias(op_type: str) -> None:
    inputs = {"Input": normal(2, 2, 2, 2), "Filter": normal(2, 2, 1, 1), "Bias": normal(2)}
    check_gradient(op_type, inputs, wrt=["Bias"])


@pytest.mark.parametrize(
    ("op_type", "inputs"),
    [
        ("conv2d_grad", {"Input": (1, 2, 3, 3), "Filter": (2, 2, 2, 2), "Output@GRAD": (1, 2, 2, 2)}),
        ("conv3d_grad", {"Input": (1, 1, 2, 3, 2), "Filter": (2, 1, 1, 2, 2), "Output@GRAD": (1, 2, 2, 2, 1)}),
    ],
)
def test_second_gradients(op_type: str, inputs: dict[str, tuple[int, ...]]) -> None:
    outputs = {"Bias@GRAD": 0} if op_type == "conv2d_grad" else None
    values = {slot: normal(*shape) for slot, shape in inputs.items()}
    check_gradient(op_type, values, wrt=list(values), outputs=outputs, loss=["Input@GRAD", "Filter@GRAD"])


def test_second_gradients_of_a_depthwise_convolution_are_those_of_a_convolution() -> None:
    shapes = {
        "Input": (1, 2, 4, 4),
        "Filter": (2, 1, 2, 2),
        "DOutput": (1, 2, 3, 3),
        "DDInput": (1, 2, 4, 4),
        "DDFilter": (2, 1, 2, 2),
    }
    inputs = {slot: normal(*shape) for slot, shape in shapes.items()}
    deep, plain = (run_op(name + "_grad_grad", inputs, {"groups": 2}) for name in ("depthwise_conv2d", "conv2d"))
    for slot in ("DDOutput", "DFilter", "DInput"):
        np.testing.assert_array_equal(deep[slot].numpy(), plain[slot].numpy())


# -- numbers of Paddle 1.8.5
@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        ({"strides": [2, 2]}, [[10, 18], [42, 50]]),
        (  # SAME sets the dilations back to 1
            {"padding_algorithm": "SAME", "dilations": [2, 2], "paddings": [1, 1]},
            [[10, 14, 18, 10], [26, 30, 34, 18], [42, 46, 50, 26], [25, 27, 29, 15]],
        ),
        ({"paddings": [-1, -1]}, [[30]]),
        ({"paddings": [-1, 2, 0, 0]}, [[26, 30, 34], [42, 46, 50], [25, 27, 29], [0, 0, 0]]),
        (
            {"data_format": "AnyLayout", "padding_algorithm": "VALID", "paddings": [3, 3]},
            [[10, 14, 18], [26, 30, 34], [42, 46, 50]],
        ),
    ],
)
def test_paddings(attrs: dict[str, Any], expected: Any) -> None:
    out = run_op("conv2d", {"Input": IMAGE, "Filter": ONES}, attrs)["Output"].numpy()
    np.testing.assert_array_equal(out[0, 0], np.array(expected, np.float32))


def test_a_first_window_may_stick_out_by_less_than_a_stride() -> None:
    image = np.arange(1, 21, dtype=np.float32).reshape(1, 1, 4, 5)
    attrs = {"strides": [3, 3], "dilations": [2, 2]}
    out = run_op("conv2d", {"Input": image, "Filter": np.ones((1, 1, 3, 3), np.float32)}, attrs)["Output"].numpy()
    assert out.tolist() == [[[[48]]]]


def test_fused_bias_residual_and_activation() -> None:
    inputs = {
        "Input": IMAGE,
        "Filter": ONES,
        "Bias": np.float32([-40]),
        "ResidualData": np.full((1, 1, 2, 2), 1, np.float32),
    }
    attrs = {"strides": [2, 2], "fuse_activation": "relu", "fuse_residual_connection": True}
    np.testing.assert_array_equal(run_op("conv2d", inputs, attrs)["Output"].numpy()[0, 0], [[0, 0], [3, 11]])
    later = run_op("fused_conv2d_add_act", inputs, {"strides": [2, 2], "activation": "relu"}, {"Outputs": 0})
    np.testing.assert_array_equal(later["Output"].numpy()[0, 0], [[0, 0], [3, 11]])


def test_output_channels_are_split() -> None:
    inputs = {"Input": IMAGE, "Filter": np.arange(3, dtype=np.float32).reshape(3, 1, 1, 1)}
    got = run_op("conv2d_fusion", inputs, {"activation": "identity", "split_channels": [1, 2]}, {"Outputs": 2})
    assert [part.shape() for part in got["Outputs"]] == [[1, 1, 4, 4], [1, 2, 4, 4]]
    np.testing.assert_array_equal(got["Outputs"][1].numpy()[0, 1], 2 * IMAGE[0, 0])


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_sixteen_bits_are_summed_in_float32(name: str) -> None:
    import ml_dtypes

    dtype = np.dtype(np.float16) if name == "float16" else np.dtype(ml_dtypes.bfloat16)
    x, weight = np.ones((1, 4096, 1, 1), dtype), np.full((1, 4096, 1, 1), 0.125, dtype)
    out = run_op("conv2d", {"Input": x, "Filter": weight})["Output"].numpy()
    assert out.dtype == dtype and float(out[0, 0, 0, 0]) == 512


def test_an_empty_batch_gives_an_empty_output() -> None:
    assert run_op("conv2d", {"Input": IMAGE[:0], "Filter": ONES})["Output"].shape() == [0, 1, 3, 3]


@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs", "message"),
    [
        (
            "conv2d",
            (IMAGE, np.ones((1, 2, 2, 2), np.float32)),
            {},
            r"has 1 channels; Filter .* with groups 1 expects 2",
        ),
        (
            "conv2d",
            (IMAGE, np.ones((1, 1, 9, 9), np.float32)),
            {},
            r"no window fits: input sizes \(4, 4\), kernel \(9, 9\)",
        ),
        ("conv2d", (IMAGE, ONES), {"strides": [1, 0]}, r"strides must be 2 positive numbers, found \[1, 0\]"),
        ("conv2d", (IMAGE, ONES), {"paddings": [1]}, r"paddings must have 2 numbers or 4 .*found \[1\]"),
        ("conv2d", (IMAGE, ONES), {"groups": 0}, r"groups must be positive, found 0"),
        ("conv2d", (IMAGE.astype(np.int32), ONES), {}, r"Input must be floating point, found int32"),
        ("conv2d", (IMAGE.astype(np.float64), ONES), {}, r"one data type, found float64 and float32"),
        ("conv2d", (IMAGE[0], ONES), {}, r"Input must have 4 dimensions"),
        ("conv2d", (IMAGE, ONES), {"fuse_activation": "foo"}, r"there is no fused activation 'foo'; expected one of"),
        (
            "conv2d_transpose",
            (IMAGE, ONES),
            {"output_size": [9, 9]},
            r"output_size \[9, 9\] is out of reach: .* \(5, 5\)",
        ),
        ("conv2d_transpose", (IMAGE, np.ones((2, 1, 2, 2), np.float32)), {}, r"has 1 channels; Filter .* expects 2"),
    ],
)
def test_what_does_not_fit_is_named(op_type: str, inputs: Any, attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=rf"operator {op_type}: .*{message}"):
        run_op(op_type, {"Input": inputs[0], "Filter": inputs[1]}, attrs)


def test_a_fused_activation_has_no_gradient() -> None:
    inputs = {"Input": IMAGE, "Filter": ONES, "Output@GRAD": np.ones((1, 1, 3, 3), np.float32)}
    with pytest.raises(OperatorError, match="conv2d_grad: its fused activation has no gradient"):
        run_op("conv2d_grad", inputs, {"fuse_activation": "relu"}, {"Bias@GRAD": 0})
