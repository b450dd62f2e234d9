"""`paddle`: Paddle 1.8's few names, and those of Paddle 2's static graphs that scripts for Fluid also use."""

from __future__ import annotations

from typing import Any

from fluidtool.compat import version
from fluidtool.errors import UnsupportedOperatorError
from fluidtool.fluid import layers
from fluidtool.fluid.framework import default_main_program, default_startup_program
from fluidtool.fluid.param_attr import ParamAttr
from fluidtool.fluid.places import is_compiled_with_cuda
from fluidtool.fluid.reader_decorators import batch
from fluidtool.ir import Variable
from fluidtool.tensor import CPUPlace, CUDAPinnedPlace, CUDAPlace

__version__ = "1.8.5"
__git_commit__ = version.commit

__all__ = [
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "ParamAttr",
    "add",
    "batch",
    "cast",
    "concat",
    "default_main_program",
    "default_startup_program",
    "disable_static",
    "enable_static",
    "in_dynamic_mode",
    "is_compiled_with_cuda",
    "matmul",
    "max",
    "mean",
    "min",
    "multiply",
    "reshape",
    "seed",
    "sqrt",
    "square",
    "subtract",
    "sum",
    "tanh",
    "transpose",
]

cast, concat, sqrt, square, tanh = layers.cast, layers.concat, layers.sqrt, layers.square, layers.tanh


def enable_static() -> None:
    """Does nothing: graphs are always static."""


def disable_static(place: Any = None) -> None:
    """Raises UnsupportedOperatorError: dynamic graphs are not supported."""
    raise UnsupportedOperatorError(
        "paddle.disable_static: dynamic graphs are not supported; build a program with paddle.fluid or paddle.static and "
        "run it with an Executor"
    )


def in_dynamic_mode() -> bool:
    """False."""
    return False


def seed(seed: int) -> None:
    """Sets the random seed of the default programs."""
    default_main_program().random_seed = seed
    default_startup_program().random_seed = seed


def mean(x: Variable, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Any:
    """Mean over `axis`, over everything without it."""
    return layers.reduce_mean(x, dim=axis, keep_dim=keepdim, name=name)


def sum(x: Variable, axis: Any = None, dtype: Any = None, keepdim: bool = False, name: str | None = None) -> Any:
    """Sum over `axis`, over everything without it, of x as `dtype`."""
    return layers.reduce_sum(x if dtype is None else layers.cast(x, dtype), dim=axis, keep_dim=keepdim, name=name)


def max(x: Variable, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Any:
    """Maximum over `axis`, over everything without it."""
    return layers.reduce_max(x, dim=axis, keep_dim=keepdim, name=name)


def min(x: Variable, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Any:
    """Minimum over `axis`, over everything without it."""
    return layers.reduce_min(x, dim=axis, keep_dim=keepdim, name=name)


def add(x: Variable, y: Variable, name: str | None = None) -> Any:
    """x + y, broadcast."""
    return layers.elementwise_add(x, y, name=name)


def subtract(x: Variable, y: Variable, name: str | None = None) -> Any:
    """x - y, broadcast."""
    return layers.elementwise_sub(x, y, name=name)


def multiply(x: Variable, y: Variable, name: str | None = None) -> Any:
    """x · y, elementwise, broadcast."""
    return layers.elementwise_mul(x, y, name=name)


def matmul(
    x: Variable, y: Variable, transpose_x: bool = False, transpose_y: bool = False, name: str | None = None
) -> Any:
    """The matrix product."""
    return layers.matmul(x, y, transpose_x, transpose_y, name=name)


def reshape(x: Variable, shape: Any, name: str | None = None) -> Any:
    """x reshaped; -1 is inferred, 0 is copied from x."""
    return layers.reshape(x, shape, name=name)


def transpose(x: Variable, perm: Any, name: str | None = None) -> Any:
    """x with its dimensions in the order `perm`."""
    return layers.transpose(x, perm, name=name)
