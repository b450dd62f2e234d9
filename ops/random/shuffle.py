"""random_crop and shuffle_batch: they carry their seed from run to run in a variable."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INTS, TensorMeta, required
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text

SEED_LIMIT = 2**31 - 1


def _seed(ctx: OpContext) -> int:
    """The number that the variable Seed holds, or the attribute startup_seed before it holds one."""
    if ctx.has("Seed") and ctx.value("Seed").is_initialized():
        values = ctx.host(ctx.value("Seed").array).reshape(-1)
        if len(values) <= 0:
            raise ctx.error("Seed must hold a number, found an empty tensor")
        return int(values[0])
    return int(ctx.attr("startup_seed"))


def _generator(ctx: OpContext) -> Any:
    return ctx.np.random.default_rng(abs(_seed(ctx)))


def _next_seed(ctx: OpContext, generator: Any) -> Any:
    return ctx.array([int(generator.integers(1, SEED_LIMIT))], VarType.INT64)


@op(
    "random_crop",
    inputs="X Seed",
    outputs="Out SeedOut~",
    attrs={"shape": required(INTS), "startup_seed": 0},
    raw=True,
    random=True,
)
def random_crop(ctx: OpContext, *, shape: list[int]) -> Any:
    """A random crop of `shape` from every instance of X (Paddle 1.8.5 random_crop_op.h).

    `shape` is for the last dimensions; those in front count the instances. SeedOut is the seed of the next run.
    """
    x = ctx.value("X").array
    batch = _instance_rank(ctx, x.shape, shape)
    generator, count = _generator(ctx), prod(x.shape[:batch])
    rows = x.reshape((count, *x.shape[batch:]))
    places: list[Any] = [ctx.xp.arange(count).reshape((count,) + (1,) * len(shape))]
    for axis, size in enumerate(shape):
        start = generator.integers(0, rows.shape[axis + 1] - size + 1, (count,) + (1,) * len(shape))
        offset = ctx.np.arange(size).reshape([size if i == axis else 1 for i in range(len(shape))])
        places.append(ctx.array(start + offset))
    out = rows[tuple(places)].reshape((*x.shape[:batch], *shape))
    return {"Out": out, "SeedOut": _next_seed(ctx, generator)}


def _instance_rank(ctx: OpContext | InferContext, x: Sequence[int], shape: Sequence[int]) -> int:
    """The number of dimensions that count the instances, those in front of the ones that are cropped."""
    batch = len(x) - len(shape)
    if batch < 0:
        raise ctx.error(f"shape {shape_text(shape)} has more dimensions than X of shape {shape_text(x)}")
    if not all(size > 0 and (size <= whole or whole < 0) for size, whole in zip(shape, x[batch:], strict=True)):
        raise ctx.error(
            f"shape {shape_text(shape)} must be positive and fit into {shape_text(x[batch:])}, the last sizes of X"
        )
    return batch


@random_crop.infer
def _(ctx: InferContext, *, shape: list[int]) -> dict[str, TensorMeta] | None:
    x = ctx.meta(ctx.op.input("X")[0])
    if x is None:
        return None
    kept = x.shape[: _instance_rank(ctx, x.shape, shape)]
    return {"Out": x.with_shape((*kept, *shape)), "SeedOut": TensorMeta((1,), VarType.INT64)}


@op(
    "shuffle_batch",
    inputs="X Seed",
    outputs="Out ShuffleIdx SeedOut",
    attrs={"startup_seed": 0},
    raw=True,
    random=True,
)
def shuffle_batch(ctx: OpContext) -> Any:
    """The rows of X (all dimensions but the last count them) in random order; ShuffleIdx says where each comes from.

    Paddle 1.8.5 shuffle_batch_op.h.
    """
    x = ctx.value("X").array
    if x.ndim <= 0:
        raise ctx.error("X must have at least one dimension")
    generator, rows = _generator(ctx), x.reshape(prod(x.shape[:-1]), x.shape[-1])
    order = ctx.array(generator.permutation(len(rows)), VarType.INT64)
    ctx.set_lod("Out", ctx.lod("X"))
    return {"Out": rows[order].reshape(x.shape), "ShuffleIdx": order, "SeedOut": _next_seed(ctx, generator)}


@shuffle_batch.infer
def _(ctx: InferContext) -> dict[str, TensorMeta] | None:
    x = ctx.meta(ctx.op.input("X")[0])
    if x is None:
        return None
    seed = TensorMeta((1,), VarType.INT64)
    rows = -1 if any(size < 0 for size in x.shape[:-1]) else prod(x.shape[:-1])
    return {"Out": x, "ShuffleIdx": TensorMeta((rows,), VarType.INT64), "SeedOut": seed}


@shuffle_batch.grad(inputs="ShuffleIdx Out@GRAD", outputs="X@GRAD")
def shuffle_batch_grad(ctx: OpContext, ShuffleIdx: Any, Out_grad: Any) -> Any:
    """dOut with its rows back in place."""
    rows = Out_grad.reshape(prod(Out_grad.shape[:-1]), Out_grad.shape[-1])
    out = ctx.xp.empty_like(rows)
    out[ShuffleIdx] = rows
    return out.reshape(Out_grad.shape)
