"""Initializers: what they append to a startup program for a parameter (Paddle 1.8.5 initializer.py).

An initializer is called as `initializer(variable, block)` and inserts one operator at the start of the block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from fluidtool.errors import AssertedError, UnsupportedOperatorError, UsageError
from fluidtool.fluid.checks import check_given
from fluidtool.fluid.offers import defined_in, refuse_other_names
from fluidtool.ir import Block, Operator, Variable, unique_name
from fluidtool.ir.variable import data_type_name
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text


@contextmanager
def init_on_cpu() -> Iterator[None]:
    """Kept for scripts for Paddle before 1.6: values are the same wherever they are initialized."""
    yield


def force_init_on_cpu() -> bool:
    """False, like `init_on_cpu`."""
    return False


class Initializer:
    """The base of initializers, for isinstance checks."""

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Append the initialization of `var` to `block`."""
        raise UnsupportedOperatorError(f"{type(self).__name__} has no rule to initialize {getattr(var, 'name', var)}")


def _prepend(
    block: Block, var: Variable, op_type: str, attrs: Mapping[str, Any], half_name: str, *, append: bool = False
) -> Operator:
    """The operator for `var`; FP16 variables are computed in FP32 and cast."""
    out = var
    if var.dtype == VarType.FP16:
        name = unique_name.generate(f"{half_name}.{var.name}.tmp")
        out = block.create_var(name=name, shape=var.shape, dtype=VarType.FP32)
    add = block.append_op if append else block.prepend_op
    dtype = VarType.FP32 if out.dtype is None else out.dtype
    op = add(type=op_type, outputs={"Out": [out]}, attrs={**attrs, "dtype": int(dtype)})
    if out is not var:
        block.append_op(
            type="cast",
            inputs={"X": [out]},
            outputs={"Out": [var]},
            attrs={"in_dtype": int(VarType.FP32), "out_dtype": int(VarType.FP16)},
        )
    return op


def _fans(var: Variable) -> tuple[float, float]:
    """Fan-in and fan-out by Paddle's rule: a filter is [out, in, …], a matrix [in, out]."""
    shape = var.shape
    if not shape:
        return 1, 1
    if len(shape) == 1:
        return shape[0], shape[0]
    if len(shape) == 2:
        return shape[0], shape[1]
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


@dataclass(slots=True)
class ConstantInitializer(Initializer):
    """Every element is `value`."""

    value: float = 0.0
    force_cpu: bool = False

    def __post_init__(self) -> None:
        check_given(value=self.value)

    def __call__(self, var: Variable, block: Block) -> Operator:
        attrs = {"shape": list(var.shape), "value": float(self.value), "force_cpu": self.force_cpu}
        return _prepend(block, var, "fill_constant", attrs, "constant_init")


@dataclass(slots=True)
class UniformInitializer(Initializer):
    """Uniform between low and high; diag_num elements, diag_step apart, are diag_val."""

    low: float = -1.0
    high: float = 1.0
    seed: int = 0
    diag_num: int = 0
    diag_step: int = 0
    diag_val: float = 1.0

    def __post_init__(self) -> None:
        check_given(low=self.low, high=self.high, seed=self.seed)
        check_given(diag_num=self.diag_num, diag_step=self.diag_step, diag_val=self.diag_val)
        if self.high < self.low:
            raise AssertedError(f"UniformInitializer needs low <= high, found {self.low} and {self.high}")
        if (self.diag_num > 0) != (self.diag_step > 0):
            raise AssertedError("UniformInitializer needs diag_num and diag_step together")

    def __call__(self, var: Variable, block: Block) -> Operator:
        self.seed = self.seed or block.program.random_seed
        attrs = {
            "shape": list(var.shape),
            "min": float(self.low),
            "max": float(self.high),
            "seed": self.seed,
            "diag_num": self.diag_num,
            "diag_step": self.diag_step,
            "diag_val": float(self.diag_val),
        }
        return _prepend(block, var, "uniform_random", attrs, "uniform_random")


@dataclass(slots=True)
class NormalInitializer(Initializer):
    """Gaussian with mean `loc` and standard deviation `scale`."""

    loc: float = 0.0
    scale: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_given(loc=self.loc, scale=self.scale, seed=self.seed)

    def __call__(self, var: Variable, block: Block) -> Operator:
        self.seed = self.seed or block.program.random_seed
        return _gaussian(var, block, self.loc, self.scale, self.seed, "gaussian_random")


@dataclass(slots=True)
class TruncatedNormalInitializer(Initializer):
    """Gaussian, drawn again beyond two standard deviations."""

    loc: float = 0.0
    scale: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_given(loc=self.loc, scale=self.scale, seed=self.seed)

    def __call__(self, var: Variable, block: Block) -> Operator:
        self.seed = self.seed or block.program.random_seed
        attrs = {"shape": list(var.shape), "mean": float(self.loc), "std": float(self.scale), "seed": self.seed}
        return _prepend(block, var, "truncated_gaussian_random", attrs, "truncated_gaussian_random")


@dataclass(slots=True)
class XavierInitializer(Initializer):
    """Glorot and Bengio 2010: uniform within sqrt(6 / (in + out)), or gaussian of sqrt(2 / (in + out))."""

    uniform: bool = True
    fan_in: float | None = None
    fan_out: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_given(uniform=self.uniform, seed=self.seed)

    def __call__(self, var: Variable, block: Block) -> Operator:
        fan_in, fan_out = _fans(var)
        total = float(
            (fan_in if self.fan_in is None else self.fan_in) + (fan_out if self.fan_out is None else self.fan_out)
        )
        self.seed = self.seed or block.program.random_seed
        if self.uniform:
            return _symmetric(var, block, math.sqrt(6.0 / total), self.seed, "xavier_init")
        return _gaussian(var, block, 0.0, math.sqrt(2.0 / total), self.seed, "xavier_init")


@dataclass(slots=True)
class MSRAInitializer(Initializer):
    """He et al. 2015: uniform within sqrt(6 / in), or gaussian of sqrt(2 / in)."""

    uniform: bool = True
    fan_in: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_given(uniform=self.uniform, seed=self.seed)

    def __call__(self, var: Variable, block: Block) -> Operator:
        fan_in = float(_fans(var)[0] if self.fan_in is None else self.fan_in)
        self.seed = self.seed or block.program.random_seed
        if self.uniform:
            return _symmetric(var, block, math.sqrt(6.0 / fan_in), self.seed, "masra_init")
        return _gaussian(var, block, 0.0, math.sqrt(2.0 / fan_in), self.seed, "masra_init")


def _symmetric(var: Variable, block: Block, limit: float, seed: int, half_name: str) -> Operator:
    attrs = {"shape": list(var.shape), "min": -limit, "max": limit, "seed": seed}
    return _prepend(block, var, "uniform_random", attrs, half_name)


def _gaussian(var: Variable, block: Block, mean: float, std: float, seed: int, half_name: str) -> Operator:
    attrs = {"shape": list(var.shape), "mean": float(mean), "std": float(std), "seed": seed}
    return _prepend(block, var, "gaussian_random", attrs, half_name)


@dataclass(slots=True)
class BilinearInitializer(Initializer):
    """The weights of bilinear interpolation, for the filter [c, 1, k, k] of a conv2d_transpose."""

    def __call__(self, var: Variable, block: Block) -> Operator:
        shape = var.shape
        if len(shape) != 4 or shape[2] != shape[3]:
            raise UsageError(
                f"BilinearInitializer takes a filter (c, 1, k, k), found {shape_text(shape)} for {var.name}"
            )
        size = shape[3]
        factor = math.ceil(size / 2.0)
        center = (2 * factor - 1 - factor % 2) / (2.0 * factor)
        position = np.arange(math.prod(shape))
        # Paddle divides without rounding here: y grows slightly with every column.
        x, y = position % size, (position / size) % size
        weight = (1 - np.abs(x / factor - center)) * (1 - np.abs(y / factor - center))
        attrs = {"shape": list(shape), "fp32_values": [float(v) for v in weight.astype("float32")]}
        return _prepend(block, var, "assign_value", attrs, "bilinear_init", append=True)


@dataclass(slots=True, eq=False)
class NumpyArrayInitializer(Initializer):
    """The values of an array (float32 or int32)."""

    value: np.ndarray[Any, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.value, np.ndarray):
            raise AssertedError(f"NumpyArrayInitializer takes an ndarray, found {type(self.value).__name__}")

    def __call__(self, var: Variable, block: Block) -> Operator:
        if var.dtype in (VarType.FP32, VarType.FP16):
            values: dict[str, Any] = {"fp32_values": [float(v) for v in self.value.astype("float32").flat]}
        elif var.dtype == VarType.INT32:
            values = {"int32_values": [int(v) for v in self.value.flat]}
        else:
            raise UsageError(
                f"NumpyArrayInitializer fills float32 and int32, but {var.name} is {data_type_name(var.dtype)}"
            )
        attrs = {"shape": list(self.value.shape), **values}
        return _prepend(block, var, "assign_value", attrs, "numpy_array_init")


Constant = ConstantInitializer
Uniform = UniformInitializer
Normal = NormalInitializer
TruncatedNormal = TruncatedNormalInitializer
Xavier = XavierInitializer
MSRA = MSRAInitializer
Bilinear = BilinearInitializer

__getattr__ = refuse_other_names("paddle.fluid.initializer", defined_in(globals()))
