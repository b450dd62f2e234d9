"""expand, tile and related operators: a tensor repeated along its axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.wiring import wired
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta, ints, or_variable
from fluidtool.ops.tensor.arguments import (
    Context,
    allocatable,
    axis_in,
    inferred_integers,
    integers,
    lod_of_same_rows,
    meta_of_same_rows,
    numbers,
)
from fluidtool.ops.traits import Traits
from fluidtool.shapes import shape_text, shapes_text


def summed_repeats(grad: Any, shape: Sequence[int], times: Sequence[int]) -> Any:
    """The gradient of a tensor of `shape` repeated `times` along its axes: the sum over the repeats."""
    split = [number for pair in zip(times, shape, strict=True) for number in pair]
    return grad.reshape(split).sum(axis=tuple(range(0, len(split), 2)), dtype=grad.dtype)


def _times(ctx: Context, times: Sequence[int], rank: int) -> list[int]:
    if len(times) != rank:
        raise ctx.error(f"expand_times must hold one number per dimension of X, {rank}, found {list(times)}")
    if not all(t > 0 or t == -1 for t in times):
        raise ctx.error(f"expand_times must be positive, found {list(times)}")
    return list(times)


def _multiplied(shape: Sequence[int], times: Sequence[int]) -> tuple[int, ...]:
    return tuple(-1 if s < 0 or t < 0 else s * t for s, t in zip(shape, times, strict=True))


@op("expand", inputs="X ExpandTimes? expand_times_tensor*?", outputs="Out", attrs={"expand_times": ints()})
def expand(ctx: OpContext, X: Any, ExpandTimes: Any, expand_times_tensor: list[Any], *, expand_times: list[int]) -> Any:
    """X repeated expand_times along its axes (Paddle 1.8.5 expand_op.h)."""
    times = _times(ctx, integers(ctx, ExpandTimes, expand_times_tensor, expand_times), X.ndim)
    if not all(t > 0 for t in times):
        raise ctx.error(f"expand_times must be positive, found {times}")
    allocatable(ctx, _multiplied(X.shape, times))
    out = ctx.xp.tile(X, times)
    lod_of_same_rows(ctx, X, out)
    return out


@expand.infer
def _(
    ctx: InferContext,
    X: TensorMeta,
    ExpandTimes: TensorMeta | None,
    expand_times_tensor: list[TensorMeta],
    *,
    expand_times: list[int],
) -> TensorMeta:
    times = inferred_integers(ExpandTimes, expand_times_tensor, expand_times) or [-1] * X.rank
    return meta_of_same_rows(X, _multiplied(X.shape, _times(ctx, times, X.rank)))


@expand.grad(inputs="X ExpandTimes? expand_times_tensor*? Out@GRAD", outputs="X@GRAD")
def expand_grad(
    ctx: OpContext, X: Any, ExpandTimes: Any, expand_times_tensor: list[Any], Out_grad: Any, *, expand_times: list[int]
) -> Any:
    """dOut summed over the repeats."""
    times = _times(ctx, integers(ctx, ExpandTimes, expand_times_tensor, expand_times), X.ndim)
    return summed_repeats(Out_grad, X.shape, times)


expand_grad.grad_maker(wired("expand", "X=X@GRAD@GRAD ExpandTimes expand_times_tensor", "Out=Out@GRAD@GRAD"))


def _times_as(ctx: Context, shape: Sequence[int], target: Sequence[int]) -> list[int]:
    known = [(s, t) for s, t in zip(shape, target, strict=False) if min(s, t) >= 0]
    fits = len(shape) == len(target) and all(s > 0 and t % s == 0 for s, t in known)
    if not fits:
        raise ctx.error(
            f"target_tensor of shape {shape_text(target)} must be a multiple of X of shape {shape_text(shape)} along every axis"
        )
    return [t // s for s, t in zip(shape, target, strict=True)]


@op("expand_as", inputs="X target_tensor", outputs="Out")
def expand_as(ctx: OpContext, X: Any, target_tensor: Any) -> Any:
    """X repeated to the shape of target_tensor (Paddle 1.8.5 expand_as_op.h)."""
    out = ctx.xp.tile(X, _times_as(ctx, X.shape, target_tensor.shape))
    lod_of_same_rows(ctx, X, out)
    return out


@expand_as.infer
def _(ctx: InferContext, X: TensorMeta, target_tensor: TensorMeta) -> TensorMeta:
    _times_as(ctx, X.shape, target_tensor.shape)
    return meta_of_same_rows(X, target_tensor.shape)


@expand_as.grad(inputs="X target_tensor Out@GRAD", outputs="X@GRAD")
def expand_as_grad(ctx: OpContext, X: Any, target_tensor: Any, Out_grad: Any) -> Any:
    """dOut summed over the repeats."""
    return summed_repeats(Out_grad, X.shape, _times_as(ctx, X.shape, target_tensor.shape))


def broadcast_shape(ctx: Context, shape: Sequence[int], asked: Sequence[int]) -> tuple[int, ...]:
    """`asked` with -1 (keep X's size) filled in; X's dimensions stand at its end and may be 1."""
    added = len(asked) - len(shape)
    if added < 0:
        raise ctx.error(f"shape {shape_text(asked)} has fewer dimensions than X of shape {shape_text(shape)}")
    if not all(size >= 0 for size in asked[:added]):
        raise ctx.error(f"shape {shape_text(asked)}: -1 stands for a size that X does not have")
    out = list(asked)
    for i, size in enumerate(shape):
        wanted = out[added + i]
        if wanted == -1:
            out[added + i] = size
        fits = size in (1, wanted, -1) or wanted == -1
        if not fits:
            raise ctx.error(f"X of shape {shape_text(shape)} cannot be expanded to shape {shape_text(asked)}")
    return tuple(out)


def summed_to(grad: Any, shape: Sequence[int]) -> Any:
    """The gradient of a tensor of `shape` that was broadcast: the sum over the new and the stretched axes."""
    added = grad.ndim - len(shape)
    axes = [*range(added), *(added + i for i, size in enumerate(shape) if size == 1 and grad.shape[added + i] != 1)]
    return grad.sum(axis=tuple(axes), dtype=grad.dtype).reshape(shape) if axes else grad.reshape(shape)


@op("expand_v2", inputs="X Shape? expand_shapes_tensor*?", outputs="Out", attrs={"shape": ints()})
def expand_v2(ctx: OpContext, X: Any, Shape: Any, expand_shapes_tensor: list[Any], *, shape: list[int]) -> Any:
    """X broadcast to `shape`, where -1 keeps X's size (Paddle 2.6.2 expand_kernel.cc)."""
    asked = integers(ctx, Shape, expand_shapes_tensor, shape)
    return ctx.xp.broadcast_to(X, broadcast_shape(ctx, X.shape, asked))


@expand_v2.infer
def _(
    ctx: InferContext,
    X: TensorMeta,
    Shape: TensorMeta | None,
    expand_shapes_tensor: list[TensorMeta],
    *,
    shape: list[int],
) -> TensorMeta | None:
    if shape and Shape is None and not expand_shapes_tensor:
        return X.with_shape(broadcast_shape(ctx, X.shape, shape)).with_lod_level(0)
    asked = inferred_integers(Shape, expand_shapes_tensor, shape)
    return None if asked is None else X.with_shape(asked).with_lod_level(0)


@expand_v2.grad(inputs="X Shape? expand_shapes_tensor*? Out@GRAD", outputs="X@GRAD", lod="X")
def expand_v2_grad(ctx: OpContext, X: Any, Shape: Any, expand_shapes_tensor: list[Any], Out_grad: Any) -> Any:
    """dOut summed over the broadcast axes."""
    return summed_to(Out_grad, X.shape)


@op("expand_as_v2", inputs="X Y?", outputs="Out", attrs={"target_shape": ints()})
def expand_as_v2(ctx: OpContext, X: Any, Y: Any, *, target_shape: list[int]) -> Any:
    """X broadcast to the shape of Y, or to target_shape (Paddle 2.6.2 expand_as_kernel.cc)."""
    return ctx.xp.broadcast_to(X, broadcast_shape(ctx, X.shape, target_shape if Y is None else Y.shape))


@expand_as_v2.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta | None, *, target_shape: list[int]) -> TensorMeta:
    return X.with_shape(tuple(target_shape) if Y is None else Y.shape).with_lod_level(0)


@expand_as_v2.grad(inputs="X Out@GRAD", outputs="X@GRAD", lod="X")
def expand_as_v2_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dOut summed over the broadcast axes."""
    return summed_to(Out_grad, X.shape)


def _tiled(ctx: Context, shape: Sequence[int], times: Sequence[int]) -> tuple[list[int], list[int]]:
    """Shape and repeats made equally long by 1s in front."""
    rank = max(len(shape), len(times))
    if not all(t > 0 or t == -1 for t in times):
        raise ctx.error(f"repeat_times must be positive, found {list(times)}")
    return [1] * (rank - len(shape)) + list(shape), [1] * (rank - len(times)) + list(times)


@op("tile", inputs="X RepeatTimes? repeat_times_tensor*?", outputs="Out", attrs={"repeat_times": or_variable(ints())})
def tile(ctx: OpContext, X: Any, RepeatTimes: Any, repeat_times_tensor: list[Any], *, repeat_times: list[int]) -> Any:
    """X repeated along its last axes, or along new ones in front (Paddle 2.6.2 tile_kernel.cc)."""
    times = integers(ctx, RepeatTimes, repeat_times_tensor, repeat_times)
    shape, repeats = _tiled(ctx, X.shape, times)
    if not all(t > 0 for t in repeats):
        raise ctx.error(f"repeat_times must be positive, found {times}")
    allocatable(ctx, _multiplied(shape, repeats))
    out = ctx.xp.tile(X.reshape(shape), repeats)
    lod_of_same_rows(ctx, X, out)
    return out


@tile.infer
def _(
    ctx: InferContext,
    X: TensorMeta,
    RepeatTimes: TensorMeta | None,
    repeat_times_tensor: list[TensorMeta],
    *,
    repeat_times: list[int],
) -> TensorMeta | None:
    # As Paddle does, unlike the other operators with such an input: a tensor hides what the attribute says.
    times = inferred_integers(RepeatTimes, repeat_times_tensor, repeat_times if RepeatTimes is None else [])
    return None if times is None else meta_of_same_rows(X, _multiplied(*_tiled(ctx, X.shape, times)))


@tile.grad(inputs="X RepeatTimes? repeat_times_tensor*? Out@GRAD", outputs="X@GRAD", lod="X")
def tile_grad(
    ctx: OpContext, X: Any, RepeatTimes: Any, repeat_times_tensor: list[Any], Out_grad: Any, *, repeat_times: list[int]
) -> Any:
    """dOut summed over the repeats."""
    shape, repeats = _tiled(ctx, X.shape, integers(ctx, RepeatTimes, repeat_times_tensor, repeat_times))
    return summed_repeats(Out_grad, shape, repeats).reshape(X.shape)


def _common_shape(ctx: Context, shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    if not shapes:
        raise ctx.error("X must have at least one tensor")
    rank = max(len(shape) for shape in shapes)
    out = [1] * rank
    for shape in shapes:
        for i, size in enumerate(shape, rank - len(shape)):
            if size not in (1, -1) and out[i] not in (1, -1, size):
                raise ctx.error(f"X of shapes {shapes_text(shapes)} do not broadcast")
            out[i] = size if out[i] == 1 else (out[i] if size == 1 else max(size, out[i]))
    return tuple(out)


@op("broadcast_tensors", inputs="X*", outputs="Out*")
def broadcast_tensors(ctx: OpContext, X: list[Any]) -> Any:
    """All of X broadcast to their common shape (Paddle 2.6.2 broadcast_tensors_kernel.cc)."""
    shape = _common_shape(ctx, [x.shape for x in X])
    return {"Out": [ctx.xp.broadcast_to(x, shape) for x in X]}


@broadcast_tensors.infer
def _(ctx: InferContext, X: list[TensorMeta]) -> dict[str, list[TensorMeta]]:
    shape = _common_shape(ctx, [x.shape for x in X])
    return {"Out": [x.with_shape(shape).with_lod_level(0) for x in X]}


@broadcast_tensors.grad(inputs="X* Out@GRAD*", outputs="X@GRAD*", lod="X")
def broadcast_tensors_grad(ctx: OpContext, X: list[Any], Out_grad: list[Any]) -> Any:
    """Each dOut summed over the broadcast axes."""
    return {"X@GRAD": [summed_to(grad, x.shape) for x, grad in zip(X, Out_grad, strict=True)]}


@op("meshgrid", inputs="X*", outputs="Out*", traits=Traits(gradient_scope=False))
def meshgrid(ctx: OpContext, X: list[Any]) -> Any:
    """Every vector of X along a separate axis, repeated along the others' (Paddle 1.8.5 meshgrid_op.h)."""
    for i, x in enumerate(X):
        if x.ndim > 1:
            raise ctx.error(f"X[{i}] must have one dimension, found shape {x.shape}")
    return {"Out": list(ctx.xp.meshgrid(*(x.reshape(-1) for x in X), indexing="ij"))}


@meshgrid.infer
def _(ctx: InferContext, X: list[TensorMeta]) -> dict[str, list[TensorMeta]]:
    shape = tuple(x.shape[0] if x.rank else 1 for x in X)
    return {"Out": [x.with_shape(shape).with_lod_level(0) for x in X]}


@meshgrid.grad(inputs="X* Out@GRAD*", outputs="X@GRAD*")
def meshgrid_grad(ctx: OpContext, X: list[Any], Out_grad: list[Any]) -> Any:
    """Each dOut summed over the axes that are not its own."""
    sums = []
    for i, (x, grad) in enumerate(zip(X, Out_grad, strict=True)):
        others = tuple(axis for axis in range(grad.ndim) if axis != i)
        sums.append(grad.sum(axis=others, dtype=grad.dtype).reshape(x.shape))
    return {"X@GRAD": sums}


@op("repeat_interleave", inputs="X RepeatsTensor?", outputs="Out", attrs={"Repeats": 0, "dim": 0})
def repeat_interleave(ctx: OpContext, X: Any, RepeatsTensor: Any, *, Repeats: int, dim: int) -> Any:
    """Every slice of X along `dim`, repeated this many times (Paddle 2.6.2 repeat_interleave_kernel.h)."""
    axis = axis_in(ctx, dim, X.ndim, "dim")
    if RepeatsTensor is None:
        if Repeats <= 0:
            raise ctx.error(f"Repeats must be positive, found {Repeats}")
        allocatable(ctx, (X.size, Repeats))
        return ctx.xp.repeat(X, Repeats, axis=axis)
    times = numbers(ctx, RepeatsTensor)
    if not (len(times) == X.shape[axis] and all(t >= 0 for t in times)):
        raise ctx.error(
            f"RepeatsTensor must hold {X.shape[axis]} numbers, none negative, one per slice of X, found {times[:12]}"
        )
    return ctx.xp.repeat(X, times, axis=axis)


@repeat_interleave.infer
def _(ctx: InferContext, X: TensorMeta, RepeatsTensor: TensorMeta | None, *, Repeats: int, dim: int) -> TensorMeta:
    axis, shape = axis_in(ctx, dim, X.rank, "dim"), list(X.shape)
    shape[axis] = -1 if RepeatsTensor is not None or shape[axis] < 0 else shape[axis] * Repeats
    return X.with_shape(shape).with_lod_level(0)
