"""Interpolation, grids and deformable convolution: which cells are read, gradients, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from tests.support.operators import check_gradient, lod_tensor, run_op

RNG = np.random.default_rng(0)
IMAGE = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape)


def resized(op_type: str, image: Any = IMAGE, **attrs: Any) -> Any:
    return run_op(op_type, {"X": image}, attrs)["Out"].numpy()[0, 0]


# Numbers of Paddle 1.8.5 and (v2) 2.6.2 on an image of 0 ... 8.
@pytest.mark.parametrize(
    ("op_type", "attrs", "expected"),
    [
        ("nearest_interp", {"interp_method": "nearest", "align_corners": True}, [0, 1, 1, 2]),
        ("nearest_interp_v2", {"interp_method": "nearest", "align_corners": False}, [0, 0, 1, 2]),
        ("bilinear_interp", {}, [0, 2 / 3, 4 / 3, 2]),
        ("bilinear_interp", {"align_corners": False, "align_mode": 0}, [0, 0.625, 1.375, 2]),
        ("bilinear_interp", {"align_corners": False, "align_mode": 1}, [0, 0.75, 1.5, 2]),
        ("nearest_interp", {}, [0, 2 / 3, 4 / 3, 2]),  # the attribute interp_method decides, and it is bilinear
        ("bicubic_interp", {"interp_method": "bicubic"}, [0, 0.574074, 1.4259255, 2]),
    ],
)
def test_the_first_row(op_type: str, attrs: dict[str, Any], expected: list[float]) -> None:
    out = resized(op_type, out_h=3, out_w=4, **attrs)
    np.testing.assert_allclose(out[0], expected, atol=1e-6)


def test_bicubic_reads_beyond_the_edge() -> None:
    out = resized("bicubic_interp_v2", IMAGE**1.5, out_h=4, out_w=5, interp_method="bicubic", align_corners=False)
    expected = [-0.45653647, -0.15986255, 0.4975586, 1.6198474, 2.3951633]
    np.testing.assert_allclose(out[0], expected, rtol=1e-4)


def test_a_list_of_factors_sets_the_ratio_and_a_list_of_one_counts_for_nothing() -> None:
    attrs = {"out_h": 4, "out_w": 5, "align_corners": False, "align_mode": 1}
    assert resized("bilinear_interp_v2", scale=[2.5, 2.5], **attrs).shape == (7, 7)
    np.testing.assert_allclose(
        resized("bilinear_interp_v2", scale=[2.5, 2.5], **attrs)[0], [0, 0.4, 0.8, 1.2, 1.6, 2, 2], rtol=1e-6
    )
    assert resized("bilinear_interp_v2", scale=[2.5], **attrs).shape == (4, 5)
    assert resized("bilinear_interp", out_h=4, out_w=5, scale=2.5).shape == (7, 7)


@pytest.mark.parametrize(
    ("extra", "shape"),
    [
        ({"OutSize": np.int32([1, 2])}, [1, 2]),
        ({"Scale": np.float32([2])}, [6, 6]),
        ({"SizeTensor": [np.int32([2]), np.int32([5])], "OutSize": np.int32([1, 2])}, [2, 5]),
        ({"OutSize": np.int32([1, 2]), "Scale": np.float32([2])}, [1, 2]),
    ],
)
@pytest.mark.parametrize("op_type", ["bilinear_interp", "bilinear_interp_v2"])
def test_sizes_from_tensors(op_type: str, extra: dict[str, Any], shape: list[int]) -> None:
    assert run_op(op_type, {"X": IMAGE, **extra}, {"out_h": -1, "out_w": -1})["Out"].shape()[2:] == shape


def test_integers_are_cut_to_the_integer_below() -> None:
    image = (np.arange(9).reshape(1, 1, 3, 3) * 25).astype(np.uint8)
    out = run_op("bilinear_interp", {"X": image}, {"out_h": 4, "out_w": 4})["Out"].numpy()
    assert out.dtype == np.uint8
    assert out.reshape(-1).tolist() == [0, 16, 33, 50, 50, 66, 83, 100, 100, 116, 133, 150, 150, 166, 183, 200]


def test_only_a_size_tensor_hands_the_lod_on() -> None:
    image = lod_tensor(IMAGE, [[1]])
    sized = run_op("bilinear_interp", {"X": image, "OutSize": np.int32([2, 2])}, {"out_h": 4, "out_w": 4})["Out"]
    assert sized.lod() == [[0, 1]] and sized.shape() == [1, 1, 2, 2]
    assert run_op("bilinear_interp", {"X": image}, {"out_h": 4, "out_w": 4})["Out"].lod() == []


@pytest.mark.parametrize(
    ("op_type", "shape", "attrs"),
    [
        ("bilinear_interp", (1, 2, 3, 2), {"out_h": 5, "out_w": 3}),
        (
            "bilinear_interp_v2",
            (1, 3, 2, 2),
            {"scale": [1.5, 2.5], "align_corners": False, "align_mode": 0, "data_layout": "NHWC"},
        ),
        ("nearest_interp", (1, 1, 3, 4), {"out_h": 2, "out_w": 5, "interp_method": "nearest", "align_corners": False}),
        ("nearest_interp_v2", (1, 1, 2, 2, 2), {"out_d": 3, "out_h": 2, "out_w": 3, "interp_method": "nearest"}),
        ("bicubic_interp", (1, 1, 3, 4), {"out_h": 4, "out_w": 3, "interp_method": "bicubic", "align_corners": False}),
        ("bicubic_interp_v2", (1, 1, 3, 4), {"out_h": 5, "out_w": 2, "interp_method": "bicubic"}),
        ("trilinear_interp", (1, 1, 2, 3, 2), {"out_d": 3, "out_h": 2, "out_w": 3, "interp_method": "trilinear"}),
        ("trilinear_interp_v2", (1, 1, 2, 2, 3), {"out_d": 3, "out_h": 4, "out_w": 2, "interp_method": "trilinear"}),
        ("linear_interp", (1, 2, 4), {"out_w": 7, "interp_method": "linear"}),
        (
            "linear_interp_v2",
            (1, 2, 4),
            {"out_w": 3, "interp_method": "linear", "align_corners": False, "align_mode": 0},
        ),
    ],
)
def test_gradient(op_type: str, shape: tuple[int, ...], attrs: dict[str, Any]) -> None:
    check_gradient(op_type, {"X": normal(*shape)}, wrt=["X"], attrs=attrs)


# -- grids
GRID = np.float32([[[[-1.2, -1], [0.3, 0.4], [0, 2.2]], [[1.1, 1.05], [-0.5, 0.5], [-3, 0]]]])
SAMPLED = np.float32(
    [
        [
            [
                [0.54881352, 0.71518934, 0.60276335],
                [0.54488319, 0.42365479, 0.64589411],
                [0.43758720, 0.89177299, 0.96366274],
            ]
        ]
    ]
)


# Numbers of Paddle 2.6.2.
@pytest.mark.parametrize(
    ("mode", "padding_mode", "align_corners", "expected"),
    [
        ("bilinear", "zeros", True, [0.439051, 0.659532, 0, 0.823932, 0.574475, 0]),
        ("bilinear", "zeros", False, [0.054881, 0.763939, 0, 0.143345, 0.541994, 0]),
        ("bilinear", "border", True, [0.548814, 0.659532, 0.891773, 0.963663, 0.574475, 0.544883]),
        ("bilinear", "border", False, [0.548814, 0.763939, 0.891773, 0.963663, 0.541994, 0.544883]),
        ("bilinear", "reflection", True, [0.582089, 0.659532, 0.481962, 0.939834, 0.574475, 0.645894]),
        ("bilinear", "reflection", False, [0.548814, 0.763939, 0.511115, 0.963663, 0.541994, 0.645894]),
        ("nearest", "zeros", True, [0.548814, 0.423655, 0, 0.963663, 0.891773, 0]),
        ("nearest", "zeros", False, [0, 0.891773, 0, 0, 0.437587, 0]),
        ("nearest", "border", False, [0.548814, 0.891773, 0.891773, 0.963663, 0.437587, 0.544883]),
        ("nearest", "reflection", False, [0.548814, 0.891773, 0.423655, 0.963663, 0.437587, 0.645894]),
    ],
)
def test_grid_sampler(mode: str, padding_mode: str, align_corners: bool, expected: list[float]) -> None:
    attrs = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    out = run_op("grid_sampler", {"X": SAMPLED, "Grid": GRID}, attrs)["Output"].numpy()
    np.testing.assert_allclose(out.reshape(-1), expected, atol=2e-6)


@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align_corners", [True, False])
def test_grid_sampler_gradient(padding_mode: str, align_corners: bool) -> None:
    grid = np.random.default_rng(1).uniform(-1.4, 1.4, size=(1, 3, 2, 2))
    attrs = {"mode": "bilinear", "padding_mode": padding_mode, "align_corners": align_corners}
    check_gradient("grid_sampler", {"X": normal(1, 2, 3, 4), "Grid": grid}, wrt=["X", "Grid"], attrs=attrs)


def test_grid_sampler_gradient_in_volumes_and_of_nearest() -> None:
    grid = np.random.default_rng(1).uniform(-1.2, 1.2, size=(1, 1, 2, 2, 3))
    attrs = {"mode": "bilinear", "padding_mode": "zeros", "align_corners": False}
    check_gradient("grid_sampler", {"X": normal(1, 1, 2, 2, 3), "Grid": grid}, wrt=["X", "Grid"], attrs=attrs)
    check_gradient(
        "grid_sampler", {"X": normal(1, 1, 2, 2, 3), "Grid": grid}, wrt=["X"], attrs={**attrs, "mode": "nearest"}
    )


@pytest.mark.parametrize(
    ("theta", "attrs"),
    [
        ((2, 2, 3), {"output_shape": [2, 1, 3, 2]}),
        ((1, 3, 4), {"output_shape": [1, 1, 2, 3, 2], "align_corners": False}),
    ],
)
def test_affine_grid_gradient(theta: tuple[int, ...], attrs: dict[str, Any]) -> None:
    check_gradient("affine_grid", {"Theta": normal(*theta)}, wrt=["Theta"], attrs=attrs)


# Numbers of Paddle 2.6.2 (align_corners) and 1.8.5.
def test_affine_grid_of_corners_and_of_centers() -> None:
    theta = np.float32([[[1, 0.5, 0.1], [-0.3, 2, 0.2]]])
    corners = run_op("affine_grid", {"Theta": theta, "OutputShape": np.int32([1, 1, 2, 3])})["Output"].numpy()
    expected = [-1.4, -1.5, -0.4, -1.8, 0.6, -2.1, -0.4, 2.5, 0.6, 2.2, 1.6, 1.9]
    np.testing.assert_allclose(corners.reshape(-1), expected, rtol=1e-6)
    attrs = {"output_shape": [1, 1, 2, 2], "align_corners": False}
    centers = run_op("affine_grid", {"Theta": theta}, attrs)["Output"].numpy()
    np.testing.assert_allclose(centers.reshape(-1), [-0.65, -0.65, 0.35, -0.95, -0.15, 1.35, 0.85, 1.05], rtol=1e-5)


# -- deformable convolution
@pytest.mark.parametrize("op_type", ["deformable_conv", "deformable_conv_v1"])
@pytest.mark.parametrize(
    "attrs", [{"paddings": [1, 0]}, {"strides": [2, 1], "groups": 2, "deformable_groups": 2, "dilations": [1, 2]}]
)
def test_deformable_convolution_gradient(op_type: str, attrs: dict[str, Any]) -> None:
    groups = attrs.get("groups", 1)
    x, weight = normal(1, 2, 4, 5), normal(2, 2 // groups, 2, 2)
    out = run_op("conv2d", {"Input": x, "Filter": weight}, {k: v for k, v in attrs.items() if k != "deformable_groups"})
    taps, sizes = 4 * attrs.get("deformable_groups", 1), out["Output"].shape()[2:]
    inputs = {"Input": x, "Offset": RNG.uniform(-1, 1, size=(1, 2 * taps, *sizes)), "Filter": weight}
    if op_type == "deformable_conv":
        inputs["Mask"] = RNG.uniform(size=(1, taps, *sizes))
    check_gradient(op_type, inputs, wrt=list(inputs), attrs=attrs, rtol=1e-4, atol=1e-6)


def test_without_offsets_it_is_a_convolution_and_the_border_has_no_gradient() -> None:
    x, weight = normal(2, 4, 5, 5), normal(6, 2, 3, 3)
    attrs = {"paddings": [1, 1], "groups": 2}
    expected = run_op("conv2d", {"Input": x, "Filter": weight}, attrs)["Output"].numpy()
    inputs = {"Input": x, "Filter": weight, "Offset": np.zeros((2, 18, 5, 5)), "Mask": np.ones((2, 9, 5, 5))}
    np.testing.assert_allclose(run_op("deformable_conv", inputs, attrs)["Output"].numpy(), expected, rtol=1e-12)
    got = run_op("deformable_conv_grad", {**inputs, "Output@GRAD": np.ones_like(expected)}, attrs)
    assert not got["Offset@GRAD"].numpy()[:, :2, 0].any()  # the first tap of the first row lies on row -1


@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs", "message"),
    [
        ("bilinear_interp", {"X": IMAGE}, {"out_h": 0}, r"output sizes must be positive, found \[0, 0\]"),
        (
            "bilinear_interp",
            {"X": IMAGE},
            {"interp_method": "foo"},
            r"interp_method must be bilinear or nearest or bicubic .*found 'foo'",
        ),
        ("bilinear_interp", {"X": IMAGE[0, 0]}, {}, r"X must have 3 to 5 dimensions, found shape \(3, 3\)"),
        (
            "bilinear_interp",
            {"X": IMAGE, "OutSize": np.int32([2])},
            {},
            r"OutSize must hold 2 numbers, found shape \(1,\)",
        ),
        ("bilinear_interp", {"X": IMAGE, "Scale": np.float32([-1])}, {}, r"Scale must hold 1 or 2 positive numbers"),
        (
            "bilinear_interp_v2",
            {"X": IMAGE},
            {"scale": [2.0, 0.0]},
            r"scale must be 2 positive numbers, found \[2.0, 0.0\]",
        ),
        ("bilinear_interp", {"X": IMAGE[:, :, :0]}, {"out_h": 2, "out_w": 2}, r"has no cells to interpolate between"),
        ("grid_sampler", {"X": SAMPLED, "Grid": GRID}, {}, r"Grid \(1, 2, 3, 2\) must be as high and wide as X"),
        (
            "grid_sampler",
            {"X": SAMPLED, "Grid": GRID},
            {"mode": "cubic"},
            r"mode must be 'bilinear' or 'nearest', found 'cubic'",
        ),
        ("affine_grid", {"Theta": normal(1, 2, 2)}, {}, r"Theta must have shape \(N, 2, 3\)"),
        (
            "affine_grid",
            {"Theta": normal(1, 2, 3)},
            {"output_shape": [1, 1, 0, 2]},
            r"must be 4 positive numbers, found \(1, 1, 0, 2\)",
        ),
        (
            "deformable_conv_v1",
            {"Input": IMAGE, "Offset": IMAGE, "Filter": IMAGE},
            {},
            r"Offset must have shape \(1, 18, 1, 1\)",
        ),
    ],
)
def test_what_does_not_fit_is_named(op_type: str, inputs: Any, attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=rf"operator {op_type}: .*{message}"):
        run_op(op_type, inputs, attrs)
