"""Resizing and sampling of images (Paddle 1.8.5 layers/nn.py)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from fluidtool.errors import ArgumentTypeError, AssertedError, UsageError
from fluidtool.fluid.checks import check_variable_and_dtype
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.building import append_simple
from fluidtool.fluid.layers.shape import has_tensors, known, number_tensors
from fluidtool.ir import Variable

METHODS = {"BILINEAR": "bilinear", "TRILINEAR": "trilinear", "NEAREST": "nearest"}
OutShape = Sequence[int | Variable] | Variable | None
Scale = float | Variable | None


def image_resize(
    input: Variable,
    out_shape: OutShape = None,
    scale: Scale = None,
    name: str | None = None,
    resample: str = "BILINEAR",
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCHW",
) -> Variable:
    """Images resized to out_shape, or to scale times their size; actual_shape sets it at run time."""
    if resample not in METHODS:
        raise UsageError("The 'resample' of image_resize can only be 'BILINEAR', 'TRILINEAR' or 'NEAREST' currently.")
    return _resize(
        METHODS[resample], input, out_shape, scale, name, actual_shape, align_corners, align_mode, data_format
    )


def interpolate(
    input: Variable,
    out_shape: OutShape = None,
    scale: Scale = None,
    name: str | None = None,
    resample: str = "BILINEAR",
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCHW",
) -> Variable:
    """image_resize that also supports 'BICUBIC'."""
    methods = METHODS | {"BICUBIC": "bicubic"}
    if resample not in methods:
        raise UsageError(
            "The 'resample' of image_resize can only be 'BILINEAR', 'TRILINEAR',  'BICUBIC' or 'NEAREST' currently."
        )
    return _resize(
        methods[resample], input, out_shape, scale, name, actual_shape, align_corners, align_mode, data_format
    )


def resize_bilinear(
    input: Variable,
    out_shape: OutShape = None,
    scale: Scale = None,
    name: str | None = None,
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCHW",
) -> Variable:
    """Images resized by bilinear interpolation."""
    return image_resize(input, out_shape, scale, name, "BILINEAR", actual_shape, align_corners, align_mode, data_format)


def resize_trilinear(
    input: Variable,
    out_shape: OutShape = None,
    scale: Scale = None,
    name: str | None = None,
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCDHW",
) -> Variable:
    """Volumes resized by trilinear interpolation."""
    return image_resize(
        input, out_shape, scale, name, "TRILINEAR", actual_shape, align_corners, align_mode, data_format
    )


def resize_nearest(
    input: Variable,
    out_shape: OutShape = None,
    scale: Scale = None,
    name: str | None = None,
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    data_format: str = "NCHW",
) -> Variable:
    """Images resized by their nearest pixels."""
    return image_resize(input, out_shape, scale, name, "NEAREST", actual_shape, align_corners, 1, data_format)


def image_resize_short(input: Variable, out_short_len: int, resample: str = "BILINEAR") -> Variable:
    """Images resized so that their shorter side has this length."""
    if len(input.shape) != 4:
        raise UsageError(f"The rank of input must be 4 (num_batches, channels, in_h, in_w), found {len(input.shape)}")
    sides = list(input.shape[2:4])
    short = sides.index(min(sides))
    out_shape = list(sides)
    out_shape[short] = out_short_len
    out_shape[1 - short] = int(float(sides[1 - short]) * (float(out_short_len) / float(sides[short])) + 0.5)
    return image_resize(input, out_shape=out_shape, resample=resample)


def _resize(
    method: str,
    input: Variable,
    out_shape: OutShape,
    scale: Scale,
    name: str | None,
    actual_shape: Variable | None,
    align_corners: bool,
    align_mode: int,
    data_format: str,
) -> Variable:
    rank = len(input.shape)
    _check_resize(method, rank, out_shape, scale, align_corners, align_mode, data_format)
    helper = LayerHelper(f"{method}_interp", name=name)
    inputs: dict[str, Any] = {"X": input}
    attrs: dict[str, Any] = {
        "out_d": -1,
        "out_h": -1,
        "out_w": -1,
        "interp_method": method,
        "align_corners": align_corners,
        "align_mode": align_mode,
        "data_layout": "NCHW" if data_format in ("NCHW", "NCDHW") else "NHWC",
    }
    if isinstance(out_shape, Variable):
        out_shape.stop_gradient = True
        inputs["OutSize"] = out_shape
    elif out_shape is not None:
        _check_sizes(out_shape, rank)
        if has_tensors(out_shape):
            inputs["SizeTensor"] = number_tensors(helper, out_shape)
        sides = ("out_h", "out_w") if rank == 4 else ("out_d", "out_h", "out_w")
        attrs |= dict(zip(sides, map(int, known(out_shape)), strict=True))
    elif isinstance(scale, Variable):
        scale.stop_gradient = True
        inputs["Scale"] = scale
    elif isinstance(scale, (int, float)):
        if scale <= 0:
            raise UsageError(f"Attr(scale) should be greater than zero, found {scale}")
        attrs["scale"] = float(scale)
    else:
        raise ArgumentTypeError(f"Attr(scale)'s type should be float, int or Variable, found {type(scale).__name__}")
    if isinstance(actual_shape, Variable):
        warnings.warn(
            "actual_shape will be deprecated, it is recommended to use out_shape instead of actual_shape to specify output "
            "shape dynamically.",
            stacklevel=3,
        )
        actual_shape.stop_gradient = True
        inputs["OutSize"] = actual_shape
    elif actual_shape is not None:
        raise ArgumentTypeError("actual_shape should either be Variable or None.")
    return append_simple(helper, f"{method}_interp", inputs, attrs, dtype=input.dtype)


def _check_resize(
    method: str, rank: int, out_shape: OutShape, scale: Scale, align_corners: Any, align_mode: Any, data_format: str
) -> None:
    if method == "trilinear" and rank != 5:
        raise UsageError("'TRILINEAR'only support 5-D tensor.")
    if method != "trilinear" and rank != 4:
        raise UsageError("'BILINEAR' and 'NEAREST' only support 4-D tensor.")
    if not isinstance(align_corners, bool):
        raise ArgumentTypeError(f"Attr align_corners should be a bool value, found {type(align_corners).__name__}")
    if align_mode not in (0, 1):
        raise UsageError("align_mode can only be 0 or 1")
    if out_shape is None and scale is None:
        raise UsageError("One of out_shape and scale must not be None.")
    formats = ("NCHW", "NHWC") if rank == 4 else ("NCDHW", "NDHWC")
    if data_format not in formats:
        raise UsageError(
            f"Got wrong value for param `data_format`: {data_format} received but only `{formats[0]}` or `{formats[1]}` "
            f"supported for {rank}-D input."
        )


def _check_sizes(out_shape: Sequence[int | Variable], rank: int) -> None:
    if not isinstance(out_shape, (list, tuple)):
        raise ArgumentTypeError(f"out_shape should be a list or tuple or Variable, found {type(out_shape).__name__}")
    if any(not isinstance(size, Variable) and size <= 0 for size in out_shape):
        raise AssertedError(f"Each dimension size given in out_shape must be greater than 0, found {out_shape!r}")
    if len(out_shape) != rank - 2:
        raise UsageError(f"out_shape length should be {rank - 2} for input {rank}-D tensor.")


def affine_grid(theta: Variable, out_shape: Sequence[int] | Variable, name: str | None = None) -> Variable:
    """The positions from which affine maps [N, 2, 3] take the pixels of out_shape (Jaderberg et al. 2015)."""
    helper = LayerHelper("affine_grid")
    check_variable_and_dtype(theta, "theta", ("float32", "float64"), "affine_grid")
    if not isinstance(out_shape, (list, tuple, Variable)):
        raise UsageError(f"The out_shape should be a list, tuple or Variable, found {type(out_shape).__name__}")
    inputs: dict[str, Any] = {"Theta": theta}
    attrs: dict[str, Any] = {}
    if isinstance(out_shape, Variable):
        check_variable_and_dtype(out_shape, "out_shape", ("int32",), "affine_grid")
        inputs["OutputShape"] = out_shape
    else:
        attrs["output_shape"] = list(out_shape)
    return append_simple(helper, "affine_grid", inputs, attrs, dtype=theta.dtype, slot="Output")


def grid_sampler(x: Variable, grid: Variable, name: str | None = None) -> Variable:
    """Images sampled at the positions of a grid, bilinearly."""
    helper = LayerHelper("grid_sampler", name=name)
    check_variable_and_dtype(x, "x", ("float32", "float64"), "grid_sampler")
    check_variable_and_dtype(grid, "grid", ("float32", "float64"), "grid_sampler")
    return append_simple(helper, "grid_sampler", {"X": x, "Grid": grid}, dtype=x.dtype, slot="Output")
