"""Layers that draw random numbers; equal seeds draw equal numbers (0: one seed per program) (Paddle 1.8.5 layers/nn.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidtool.errors import ArgumentTypeError, AssertedError, UsageError
from fluidtool.fluid.checks import check_dtype, check_type, check_variable_and_dtype, convert_dtype
from fluidtool.fluid.framework import device_guard
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.building import append_simple
from fluidtool.fluid.layers.creation import Shape, shape_inputs
from fluidtool.fluid.layers.shape import has_tensors, known, number_tensors
from fluidtool.ir import Variable
from fluidtool.ir.variable import data_type

WIDE = ("float32", "float64")


def _number(dtype: Any) -> int:
    return int(data_type(dtype))


def _check_sizes(shape: Sequence[int | Variable]) -> None:
    if len(shape) == 0:
        raise AssertedError("The size of argument(shape) can't be zero.")
    for size in shape:
        if not isinstance(size, Variable) and size <= 0:
            raise AssertedError(
                "Each dimension size given in shape must not be negative except one unknown dimension, "
                f"but received {shape!r}."
            )


def uniform_random(
    shape: Shape, dtype: Any = "float32", min: float = -1.0, max: float = 1.0, seed: int = 0
) -> Variable:
    """Uniform random numbers between min and max; the shape may be a tensor or contain tensors."""
    check_type(shape, "shape", (list, tuple, Variable), "uniform_random")
    check_dtype(dtype, "dtype", WIDE, "uniform_random")
    helper = LayerHelper("uniform_random")
    inputs: dict[str, Any] = {}
    attrs: dict[str, Any] = {"seed": seed, "min": min, "max": max}
    if isinstance(shape, Variable):
        shape.stop_gradient = True
        inputs["ShapeTensor"] = shape
    else:
        _check_sizes(shape)
        attrs["shape"] = known(shape)
        if has_tensors(shape):
            inputs["ShapeTensorList"] = number_tensors(helper, shape, "int64")
    return append_simple(helper, "uniform_random", inputs, attrs, dtype=dtype)


def gaussian_random(
    shape: Shape, mean: float = 0.0, std: float = 1.0, seed: int = 0, dtype: Any = "float32"
) -> Variable:
    """Normally distributed random numbers; the shape may be a tensor or contain tensors."""
    helper = LayerHelper("gaussian_random")
    out = helper.create_variable_for_type_inference(dtype)
    if not isinstance(shape, (list, tuple, Variable)):
        raise ArgumentTypeError(
            f"The type of 'shape' in fill_constant must be Variable, list or tuple, but received {type(shape)}."
        )
    inputs: dict[str, Any] = {}
    attrs: dict[str, Any] = {"mean": mean, "std": std, "seed": seed, "dtype": _number(dtype), "use_mkldnn": False}
    shape_inputs(helper, shape, inputs, attrs, "gaussian_random")
    return append_simple(helper, "gaussian_random", inputs, attrs, dtype=dtype, out=out)


def uniform_random_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    dtype: Any = "float32",
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
) -> Variable:
    """uniform_random whose dimension output_dim_idx has the size of dimension input_dim_idx of `input`."""
    check_variable_and_dtype(input, "Input", WIDE, "uniform_random_batch_size_like")
    check_type(shape, "shape", (list, tuple), "uniform_random_batch_size_like")
    check_dtype(dtype, "dtype", WIDE, "uniform_random_batch_size_like")
    attrs = {
        "shape": list(shape),
        "input_dim_idx": input_dim_idx,
        "output_dim_idx": output_dim_idx,
        "min": min,
        "max": max,
        "seed": seed,
        "dtype": _number(dtype),
    }
    helper = LayerHelper("uniform_random_batch_size_like")
    return append_simple(helper, "uniform_random_batch_size_like", {"Input": input}, attrs, dtype=dtype)


def gaussian_random_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: Any = "float32",
) -> Variable:
    """gaussian_random whose dimension output_dim_idx has the size of dimension input_dim_idx of `input`."""
    helper = LayerHelper("gaussian_random_batch_size_like")
    check_type(input, "input", Variable, "fluid.layers.gaussian_random_batch_size_like")
    check_type(shape, "shape", (list, tuple), "fluid.layers.gaussian_random_batch_size_like")
    check_dtype(dtype, "dtype", ["float16", "float32", "int"], "fluid.layers.gaussian_random_batch_size_like")
    attrs = {
        "shape": list(shape),
        "input_dim_idx": input_dim_idx,
        "output_dim_idx": output_dim_idx,
        "mean": mean,
        "std": std,
        "seed": seed,
        "dtype": _number(dtype),
    }
    return append_simple(helper, "gaussian_random_batch_size_like", {"Input": input}, attrs, dtype=dtype)


def sampling_id(x: Variable, min: float = 0.0, max: float = 1.0, seed: int = 0, dtype: Any = "float32") -> Variable:
    """A column sampled for each row of x [batch, classes] by the row's probabilities."""
    attrs = {"min": min, "max": max, "seed": seed}
    return append_simple(LayerHelper("sampling_id"), "sampling_id", {"X": x}, attrs, dtype=dtype)


def randint(
    low: int,
    high: int | None = None,
    shape: Shape | None = None,
    out: Variable | None = None,
    dtype: Any = None,
    device: str | None = None,
    stop_gradient: bool = False,
    seed: int = 0,
    name: str | None = None,
) -> Variable:
    """Random integers from low (0, if high is None) to before high, int64 by default; shape [1] by default."""
    dtype = "int64" if dtype is None else dtype
    check_dtype(dtype, "dtype", ["int32", "int64"], "randint")
    shape = [1] if shape is None else shape
    helper = LayerHelper("randint", name=name)
    inputs: dict[str, Any] = {}
    attrs: dict[str, Any] = {}
    if isinstance(shape, Variable):
        shape.stop_gradient = True
        inputs["ShapeTensor"] = shape
    else:
        check_type(shape, "shape", (list, tuple, Variable), "randint")
        _check_sizes(shape)
        if has_tensors(shape):
            inputs["ShapeTensorList"] = number_tensors(helper, shape, "int64")
        else:
            attrs["shape"] = known(shape)
    low, high = (0, low) if high is None else (low, high)
    attrs |= {"low": low, "high": high, "seed": seed}
    if low >= high:
        raise UsageError(f"randint's low must less then high, but received low = {low}, high = {high}")
    if out is None:
        own = None if name is None else helper.create_variable(name=name, dtype=dtype, persistable=False)
        out = own or helper.create_variable_for_type_inference(dtype)
    else:
        reason = "(The dtype in randint must be the same with out's dtype.)"
        check_dtype(dtype, "dtype", [convert_dtype(out.dtype)], "randint", reason)
    attrs["dtype"] = _number(out.dtype)
    out.stop_gradient = stop_gradient
    return _on_device(helper, device, "randint", inputs, attrs, out)


def _on_device(
    helper: LayerHelper,
    device: str | None,
    op_type: str,
    inputs: dict[str, Any],
    attrs: dict[str, Any],
    out: Variable,
) -> Variable:
    if device is None:
        return append_simple(helper, op_type, inputs, attrs, dtype=out.dtype, out=out)
    with device_guard(device):
        return append_simple(helper, op_type, inputs, attrs, dtype=out.dtype, out=out)


def randn(
    shape: Sequence[int],
    out: Variable | None = None,
    dtype: Any = None,
    device: str | None = None,
    stop_gradient: bool = True,
    name: str | None = None,
) -> Variable:
    """Standard normal random numbers, float32 by default. As in Paddle, numpy draws the seed."""
    helper = LayerHelper("randn", name=name)
    check_type(shape, "shape", (list, tuple), "randn")
    if len(shape) == 0:
        raise AssertedError("The size of argument(shape) can't be zero.")
    dtype = "float32" if dtype is None else dtype
    check_dtype(dtype, "create data type", WIDE, "randn")
    if out is None:
        out = helper.create_variable_for_type_inference(dtype)
    else:
        check_variable_and_dtype(out, "out", [convert_dtype(dtype)], "randn")
    out.stop_gradient = stop_gradient
    attrs = {
        "shape": list(shape),
        "mean": 0.0,
        "std": 1.0,
        "seed": int(np.random.randint(0, 100)),
        "dtype": _number(dtype),
        "use_mkldnn": False,
    }
    with device_guard(device):
        return append_simple(helper, "gaussian_random", {}, attrs, dtype=dtype, out=out)


def randperm(
    n: int,
    out: Variable | None = None,
    dtype: Any = "int64",
    device: str | None = None,
    stop_gradient: bool = True,
    seed: int = 0,
) -> Variable:
    """The numbers from 0 to before n in random order, [n]."""
    if n < 1:
        raise UsageError(f"The input n should be greater than 0 in randperm op, found {n}")
    check_dtype(dtype, "dtype", ["int64", "int32"], "randperm")
    if device not in (None, "cpu", "gpu"):
        raise UsageError(f"The input device should in [None, 'cpu', 'gpu'], but received {device!r}.")
    check_type(stop_gradient, "stop_gradient", bool, "randperm")
    helper = LayerHelper("randperm")
    if out is None:
        out = helper.create_variable_for_type_inference(dtype)
    else:
        check_variable_and_dtype(out, "out", [convert_dtype(dtype)], "randperm")
    if stop_gradient:
        out.stop_gradient = True
    attrs = {"n": n, "dtype": _number(out.dtype), "seed": seed}
    with device_guard(device):
        return append_simple(helper, "randperm", {}, attrs, dtype=dtype, out=out)
