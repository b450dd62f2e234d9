"""randint, randperm, seed and what samples from given probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.versions import later_attr
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, TensorMeta, longs, or_variable, required
from fluidtool.ops.tensor.arguments import integers
from fluidtool.ops.tensor.fill import concrete_shape, shape_meta
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text

SEED_LIMIT = 2**31 - 1


@op(
    "randint",
    inputs="ShapeTensor? ShapeTensorList*?",
    outputs="Out",
    attrs={"shape": longs(), "low": required(INT), "high": required(INT), "dtype": 3, "seed": 0},
    random=True,
)
def randint(
    ctx: OpContext,
    ShapeTensor: Any,
    ShapeTensorList: list[Any],
    *,
    shape: list[int],
    low: int,
    high: int,
    dtype: int,
    seed: int,
) -> Any:
    """Whole numbers drawn evenly from [low, high), int32 or int64 (Paddle 1.8.5 randint_op.cc)."""
    if not low < high:
        raise ctx.error(f"high must be above low, found [{low}, {high})")
    sizes = concrete_shape(ctx, integers(ctx, ShapeTensor, ShapeTensorList, shape))
    return ctx.array(ctx.generator(seed).integers(low, high, sizes), dtype)


@randint.infer
def _(
    ctx: InferContext,
    ShapeTensor: TensorMeta | None,
    ShapeTensorList: list[TensorMeta],
    *,
    shape: list[int],
    dtype: int,
) -> TensorMeta | None:
    return shape_meta(ShapeTensor, ShapeTensorList, shape, dtype, VarType.LOD_TENSOR)


@op("randperm", inputs="", outputs="Out", attrs={"n": required(INT), "dtype": 3, "seed": 0}, random=True)
def randperm(ctx: OpContext, *, n: int, dtype: int, seed: int) -> Any:
    """The numbers from 0 to n - 1 in random order (Paddle 1.8.5 randperm_op.h)."""
    if n <= 0:
        raise ctx.error(f"n must be positive, found {n}")
    return ctx.array(ctx.generator(seed).permutation(n), dtype)


@randperm.infer
def _(ctx: InferContext, *, n: int, dtype: int) -> TensorMeta:
    return TensorMeta((n,), VarType(dtype))


@op("seed", inputs="", outputs="Out", attrs={"seed": 0}, random=True)
def seed_(ctx: OpContext, *, seed: int) -> Any:
    """The attribute `seed`, or a new random number if it is 0; int32 of shape [1] (Paddle 1.8.5 seed_op.h)."""
    return ctx.array([seed or int(ctx.generator(0).integers(1, SEED_LIMIT))], VarType.INT32)


@seed_.infer
def _(ctx: InferContext) -> TensorMeta:
    return TensorMeta((1,), VarType.INT32)


@op("sampling_id", inputs="X", outputs="Out", attrs={"min": 0.0, "max": 1.0, "seed": 0}, random=True)
def sampling_id(ctx: OpContext, X: Any, *, min: float, max: float, seed: int) -> Any:
    """One place per row of X [rows, places], drawn by the probabilities in the row; int64.

    A number drawn from [min, max) falls into one of the cumulated probabilities (Paddle 1.8.5 sampling_id_op.h).
    """
    _check_sampled(ctx, X.shape, min, max)
    drawn = ctx.generator(seed).uniform(min, max, len(X)).astype(X.dtype)
    beyond = (ctx.array(drawn)[:, None] - ctx.xp.cumsum(X, axis=1)) < 0
    last = X.shape[1] - 1
    return ctx.xp.where(beyond.any(axis=1), beyond.argmax(axis=1), last).astype("int64")


def _check_sampled(ctx: OpContext | InferContext, shape: Sequence[int], min: float, max: float) -> None:
    if len(shape) != 2 or shape[1] == 0:
        raise ctx.error(f"X must have the shape (rows, places), found {shape_text(shape)}")
    if not min < max:
        raise ctx.error(f"max must be above min, found [{min}, {max})")


@sampling_id.infer
def _(ctx: InferContext, X: TensorMeta, *, min: float, max: float) -> TensorMeta:
    _check_sampled(ctx, X.shape, min, max)
    return TensorMeta(X.shape[:1], ctx.declared_dtype("Out", VarType.INT64))


@op("bernoulli", inputs="X", outputs="Out", attrs={}, random=True)
def bernoulli(ctx: OpContext, X: Any) -> Any:
    """1 with the probability X, else 0; data type of X (Paddle 2.6.2 bernoulli_kernel.cc)."""
    drawn = ctx.random(X.shape, "float64", later_attr(ctx, "seed", 0))
    return (drawn < X).astype(X.dtype)


@bernoulli.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return X.with_lod_level(0)


@op("multinomial", inputs="X", outputs="Out", attrs={"num_samples": or_variable(1), "replacement": False}, random=True)
def multinomial(ctx: OpContext, X: Any, *, num_samples: int, replacement: bool) -> Any:
    """num_samples places per row, drawn by the weights X [places] or [rows, places], int64.

    Paddle 2.6.2 multinomial_kernel.cc. Without replacement no place comes twice.
    """
    weights = ctx.host(X).astype("float64").reshape(-1, X.shape[-1] if X.ndim else 1)
    if X.ndim not in (1, 2):
        raise ctx.error(f"X must have one or two dimensions, found shape {X.shape}")
    fine = bool((weights >= 0).all()) and bool((weights.sum(axis=1) > 0).all())
    if not fine:
        raise ctx.error("X must hold weights: none negative, some positive in every row")
    generator = ctx.generator(later_attr(ctx, "seed", 0))
    if replacement:
        total = weights.cumsum(axis=1)
        drawn = generator.random((len(weights), num_samples)) * total[:, -1:]
        places = (drawn[:, :, None] >= total[:, None, :]).sum(axis=2)
    else:
        enough = int((weights > 0).sum(axis=1).min())
        if num_samples > enough:
            raise ctx.error(f"num_samples is {num_samples}, but a row of X has {enough} places of a positive weight")
        waits = generator.exponential(size=weights.shape) / ctx.np.where(weights > 0, weights, 1)
        waits[weights == 0] = ctx.np.inf
        places = waits.argsort(axis=1)[:, :num_samples]
    return ctx.array(places, VarType.INT64).reshape((*X.shape[:-1], num_samples))


@multinomial.infer
def _(ctx: InferContext, X: TensorMeta, *, num_samples: int) -> TensorMeta:
    return TensorMeta((*X.shape[:-1], num_samples), VarType.INT64)
