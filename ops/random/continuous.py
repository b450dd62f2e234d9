"""uniform_random, gaussian_random and truncated_gaussian_random, with a given shape or an input's batch size."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INTS, USE_MKLDNN, TensorMeta, limited, longs, or_variable, required
from fluidtool.ops.tensor.arguments import as_declared, integers
from fluidtool.ops.tensor.fill import (
    BATCH_SIZE_LIKE,
    batch_size_like_shape,
    concrete_shape,
    height,
    output_kind,
    shape_meta,
)
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text
from fluidtool.tensor import var_type_of

UNIFORM: dict[str, Any] = {
    "min": or_variable(-1.0),
    "max": or_variable(1.0),
    "seed": 0,
    "diag_num": limited(0, 0),
    "diag_step": limited(0, 0),
    "diag_val": 1.0,
    "dtype": 5,
}
GAUSSIAN: dict[str, Any] = {"mean": 0.0, "std": 1.0, "seed": 0, "dtype": 5}


def _floating(ctx: OpContext, dtype: int) -> Any:
    floating = dtype in (VarType.FP16, VarType.BF16, VarType.FP32, VarType.FP64)
    if not floating:
        raise ctx.error(f"dtype must be a floating point type, found {dtype}")
    return ctx.dtype(dtype)


def uniform(ctx: OpContext, shape: tuple[int, ...], min: float, max: float, seed: int, dtype: int) -> Any:
    """Numbers drawn evenly from [min, max)."""
    wanted = _floating(ctx, dtype)
    if not min <= max:
        raise ctx.error(f"max must not lie below min, found [{min}, {max})")
    precise = "float64" if dtype == VarType.FP64 else "float32"
    drawn = ctx.random(shape, precise, seed)
    return _moved(drawn, max - min, min).astype(wanted, copy=False)


def _moved(drawn: Any, factor: float, offset: float) -> Any:
    """drawn * factor + offset, in the same memory, so that a large table does not exist three times."""
    drawn *= drawn.dtype.type(factor)
    drawn += drawn.dtype.type(offset)
    return drawn


def with_diagonal(ctx: OpContext, drawn: Any, count: int, step: int, value: float) -> Any:
    """`drawn` with `count` elements, step + 1 apart, set to `value` (Paddle 1.8.5 uniform_random_op.cc)."""
    if count > 0:
        last = (count - 1) * (step + 1)
        if not (step >= 0 and last < drawn.size):
            raise ctx.error(
                f"diag_num {count} with diag_step {step} needs {last + 1} elements, the shape has {drawn.size}"
            )
        drawn.reshape(-1)[: last + 1 : step + 1] = value
    return drawn


def gaussian(ctx: OpContext, shape: tuple[int, ...], mean: float, std: float, seed: int, dtype: int) -> Any:
    """Numbers drawn from the normal distribution of this mean and standard deviation."""
    wanted = _floating(ctx, dtype)
    precise = "float64" if dtype == VarType.FP64 else "float32"
    drawn = ctx.generator(seed).standard_normal(shape, dtype=precise)
    return _moved(drawn, std, mean).astype(wanted, copy=False)


@op(
    "uniform_random",
    inputs="ShapeTensor? ShapeTensorList*?",
    outputs="Out",
    attrs={"shape": longs(), **UNIFORM},
    random=True,
)
def uniform_random(
    ctx: OpContext,
    ShapeTensor: Any,
    ShapeTensorList: list[Any],
    *,
    shape: list[int],
    min: float,
    max: float,
    seed: int,
    diag_num: int,
    diag_step: int,
    diag_val: float,
    dtype: int,
) -> Any:
    """Numbers drawn evenly from [min, max), repeatable when seed is not 0 (Paddle 1.8.5 uniform_random_op.cc)."""
    sizes = concrete_shape(ctx, integers(ctx, ShapeTensor, ShapeTensorList, shape))
    drawn = with_diagonal(ctx, uniform(ctx, sizes, min, max, seed, dtype), diag_num, diag_step, diag_val)
    return as_declared(ctx, ctx.array(drawn), height(sizes, ShapeTensor, ShapeTensorList))


@uniform_random.infer
def _(
    ctx: InferContext,
    ShapeTensor: TensorMeta | None,
    ShapeTensorList: list[TensorMeta],
    *,
    shape: list[int],
    min: float,
    max: float,
    dtype: int,
) -> TensorMeta | None:
    if not min < max:
        raise ctx.error(f"max must be above min, found [{min}, {max})")
    # Paddle takes no size from the attribute when some are tensors.
    sizes = [-1] * len(ShapeTensorList) if ShapeTensorList else shape
    return shape_meta(ShapeTensor, ShapeTensorList, sizes, dtype, output_kind(ctx))


@op(
    "gaussian_random",
    inputs="ShapeTensor? ShapeTensorList*?",
    outputs="Out",
    attrs={"shape": longs(), **GAUSSIAN, **USE_MKLDNN},
    random=True,
)
def gaussian_random(
    ctx: OpContext,
    ShapeTensor: Any,
    ShapeTensorList: list[Any],
    *,
    shape: list[int],
    mean: float,
    std: float,
    seed: int,
    dtype: int,
) -> Any:
    """Numbers drawn from the normal distribution of `mean` and `std` (Paddle 1.8.5 gaussian_random_op.cc)."""
    sizes = concrete_shape(ctx, integers(ctx, ShapeTensor, ShapeTensorList, shape))
    drawn = ctx.array(gaussian(ctx, sizes, mean, std, seed, dtype))
    return as_declared(ctx, drawn, height(sizes, ShapeTensor, ShapeTensorList))


@gaussian_random.infer
def _(
    ctx: InferContext,
    ShapeTensor: TensorMeta | None,
    ShapeTensorList: list[TensorMeta],
    *,
    shape: list[int],
    dtype: int,
) -> TensorMeta | None:
    return shape_meta(ShapeTensor, ShapeTensorList, shape, dtype, output_kind(ctx))


@op(
    "truncated_gaussian_random",
    inputs="",
    outputs="Out",
    attrs={"shape": required(INTS), **GAUSSIAN},
    random=True,
)
def truncated_gaussian_random(
    ctx: OpContext, *, shape: list[int], mean: float, std: float, seed: int, dtype: int
) -> Any:
    """Normal numbers no further than two standard deviations from the mean: others are drawn again.

    Paddle 1.8.5 truncated_gaussian_random_op.cc.
    """
    generator, sizes = ctx.generator(seed), concrete_shape(ctx, shape)
    drawn = generator.standard_normal(sizes).reshape(-1)
    outside = (abs(drawn) > 2).nonzero()[0]
    while len(outside):
        drawn[outside] = generator.standard_normal(len(outside))
        outside = outside[abs(drawn[outside]) > 2]
    return ctx.array((drawn * std + mean).astype(_floating(ctx, dtype)).reshape(sizes))


@truncated_gaussian_random.infer
def _(ctx: InferContext, *, shape: list[int], dtype: int) -> TensorMeta:
    return TensorMeta(tuple(shape), VarType(dtype))


def _like_shape(ctx: OpContext, Input: Any, shape: list[int], in_axis: int, out_axis: int) -> tuple[int, ...]:
    rows = Input.shape[in_axis] if 0 <= in_axis < Input.ndim else -1
    return concrete_shape(ctx, batch_size_like_shape(ctx, shape, rows, in_axis, out_axis, Input.ndim))


def _like_meta(
    ctx: InferContext, Input: TensorMeta, shape: list[int], in_axis: int, out_axis: int, dtype: int
) -> TensorMeta:
    rows = Input.shape[in_axis] if 0 <= in_axis < Input.rank else -1
    return TensorMeta(tuple(batch_size_like_shape(ctx, shape, rows, in_axis, out_axis, Input.rank)), VarType(dtype))


@op(
    "uniform_random_batch_size_like",
    inputs="Input",
    outputs="Out",
    attrs={**BATCH_SIZE_LIKE, **UNIFORM},
    random=True,
)
def uniform_random_batch_size_like(
    ctx: OpContext,
    Input: Any,
    *,
    shape: list[int],
    input_dim_idx: int,
    output_dim_idx: int,
    min: float,
    max: float,
    seed: int,
    diag_num: int,
    diag_step: int,
    diag_val: float,
    dtype: int,
) -> Any:
    """uniform_random of `shape`, but as large at output_dim_idx as Input is at input_dim_idx."""
    sizes = _like_shape(ctx, Input, shape, input_dim_idx, output_dim_idx)
    drawn = uniform(ctx, sizes, min, max, seed, dtype)
    return ctx.array(with_diagonal(ctx, drawn, diag_num, diag_step, diag_val))


@uniform_random_batch_size_like.infer
def _(
    ctx: InferContext, Input: TensorMeta, *, shape: list[int], input_dim_idx: int, output_dim_idx: int, dtype: int
) -> TensorMeta:
    return _like_meta(ctx, Input, shape, input_dim_idx, output_dim_idx, dtype)


@op(
    "gaussian_random_batch_size_like",
    inputs="Input",
    outputs="Out",
    attrs={**BATCH_SIZE_LIKE, **GAUSSIAN},
    random=True,
)
def gaussian_random_batch_size_like(
    ctx: OpContext,
    Input: Any,
    *,
    shape: list[int],
    input_dim_idx: int,
    output_dim_idx: int,
    mean: float,
    std: float,
    seed: int,
    dtype: int,
) -> Any:
    """gaussian_random of `shape`, but as large at output_dim_idx as Input is at input_dim_idx."""
    sizes = _like_shape(ctx, Input, shape, input_dim_idx, output_dim_idx)
    return ctx.array(gaussian(ctx, sizes, mean, std, seed, dtype))


@gaussian_random_batch_size_like.infer
def _(
    ctx: InferContext, Input: TensorMeta, *, shape: list[int], input_dim_idx: int, output_dim_idx: int, dtype: int
) -> TensorMeta:
    return _like_meta(ctx, Input, shape, input_dim_idx, output_dim_idx, dtype)


@op(
    "uniform_random_inplace",
    inputs="X",
    outputs="Out",
    attrs={k: v for k, v in UNIFORM.items() if k != "dtype"},
    random=True,
)
def uniform_random_inplace(
    ctx: OpContext,
    X: Any,
    *,
    min: float,
    max: float,
    seed: int,
    diag_num: int,
    diag_step: int,
    diag_val: float,
) -> Any:
    """uniform_random of the shape and data type of X (Paddle 2.6.2 uniform_inplace_kernel.cc)."""
    drawn = uniform(ctx, X.shape, min, max, seed, var_type_of(X.dtype))
    return ctx.array(with_diagonal(ctx, drawn, diag_num, diag_step, diag_val))


@op("gaussian_inplace", inputs="x", outputs="out", attrs={"mean": 0.0, "std": 1.0, "seed": 0}, random=True)
def gaussian_inplace(ctx: OpContext, x: Any, *, mean: float, std: float, seed: int) -> Any:
    """gaussian_random of the shape and data type of x (Paddle 2.6.2 gaussian_inplace_kernel.cc)."""
    return ctx.array(gaussian(ctx, x.shape, mean, std, seed, var_type_of(x.dtype)))


@op("exponential", inputs="X", outputs="Out", attrs={"lambda": 1.0}, random=True)
def exponential(ctx: OpContext, X: Any) -> Any:
    """Numbers of the exponential distribution of rate `lambda`, shape and data type of X (Paddle 2.6.2)."""
    rate = ctx.attr("lambda")
    if not rate > 0:
        raise ctx.error(f"lambda must be positive, found {rate}")
    return ctx.array(ctx.generator().exponential(1 / rate, X.shape).astype(_floating(ctx, var_type_of(X.dtype))))


@op("poisson", inputs="X", outputs="Out", random=True)
def poisson(ctx: OpContext, X: Any) -> Any:
    """Numbers of the Poisson distributions of the rates X, data type of X (Paddle 2.6.2 poisson_kernel.cc)."""
    rates = ctx.host(X)
    if rates.size and not float(rates.min()) >= 0:
        raise ctx.error("X must hold non-negative rates")
    return ctx.array(ctx.generator().poisson(rates).astype(rates.dtype))


def _like_x(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return X.with_lod_level(0)


for _info in (uniform_random_inplace, gaussian_inplace, exponential, poisson):
    _info.infer(_like_x)


@op("dirichlet", inputs="Alpha", outputs="Out", random=True)
def dirichlet(ctx: OpContext, Alpha: Any) -> Any:
    """A draw from the Dirichlet distribution of each row of concentrations [..., n] (Paddle 2.6.2 dirichlet_kernel.cc)."""
    if not Alpha.ndim or not bool((Alpha > 0).all()):
        raise ctx.error(f"Alpha must hold rows of positive numbers, found shape {shape_text(Alpha.shape)}")
    drawn = ctx.generator(0).standard_gamma(Alpha)
    return (drawn / drawn.sum(axis=-1, keepdims=True)).astype(Alpha.dtype)


@dirichlet.infer
def _(ctx: InferContext, Alpha: TensorMeta) -> TensorMeta:
    return Alpha
