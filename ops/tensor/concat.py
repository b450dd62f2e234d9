"""concat, split, stack, unstack and unbind: tensors joined along an axis and taken apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.math.wiring import wired
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, USE_MKLDNN, TensorMeta, ints, required
from fluidtool.ops.tensor.arguments import Context, axis_in, may_be_same, number, same_dtype
from fluidtool.ops.traits import Traits
from fluidtool.shapes import shape_text, shapes_text
from fluidtool.tensor import lengths_to_offsets, offsets_to_lengths


def _axis(ctx: OpContext, tensor: Any, axis: int, rank: int) -> int:
    return axis_in(ctx, axis if tensor is None else number(ctx, tensor, "AxisTensor"), rank)


def joined_shape(ctx: Context, shapes: Sequence[Sequence[int]], axis: int) -> tuple[int, ...]:
    """The shape of a concatenation; unknown sizes are -1."""
    out = list(shapes[0])
    for i, shape in enumerate(shapes[1:], 1):
        if len(shape) != len(out):
            raise ctx.error(
                f"X[{i}] of shape {shape_text(shape)} and X[0] of shape {shape_text(shapes[0])} differ in rank"
            )
        for j, size in enumerate(shape):
            if j == axis:
                out[j] = -1 if size < 0 or out[j] < 0 else out[j] + size
            elif out[j] < 0:
                out[j] = size
            else:
                if size not in (out[j], -1):
                    raise ctx.error(
                        f"X[{i}] of shape {shape_text(shape)} and X[0] of shape {shape_text(shapes[0])} differ at axis {j}; "
                        f"only axis {axis} may differ"
                    )
    return tuple(out)


def _joined_lod(ctx: OpContext, count: int, rows: int) -> list[list[int]]:
    """The LoD of tensors concatenated along axis 0; none if some tensor has none."""
    lods = [offsets_to_lengths(ctx.lod("X", i)) for i in range(count)]
    depth = len(lods[0])
    if depth == 0 or any(not lod for lod in lods):
        return []
    if not all(len(lod) == depth for lod in lods):
        raise ctx.error(f"the tensors of X must have the same number of LoD levels, found {[len(d) for d in lods]}")
    return lengths_to_offsets([[length for lod in lods for length in lod[level]] for level in range(depth)])


@op("concat", inputs="X* AxisTensor?", outputs="Out", attrs={"axis": 0, "use_quantizer": False, **USE_MKLDNN})
def concat(ctx: OpContext, X: list[Any], AxisTensor: Any, *, axis: int) -> Any:
    """The tensors X concatenated along `axis`; along axis 0, so are their sequences.

    Paddle 1.8.5 concat_op.h; if only some of X have a LoD, it keeps X[0]'s, which no longer fits: here there is none.
    """
    if not X:
        raise ctx.error("X must have at least one tensor")
    if not all(x is not None for x in X):
        raise ctx.error("a tensor of X holds no value")
    place = _axis(ctx, AxisTensor, axis, X[0].ndim)
    joined_shape(ctx, [x.shape for x in X], place)
    same_dtype(ctx, X[0], X, "the tensors of X")
    out = X[0] if len(X) == 1 else ctx.xp.concatenate(X, axis=place)
    ctx.set_lod("Out", _joined_lod(ctx, len(X), len(out)) if place == 0 else ctx.lod("X"))
    return out


@concat.infer
def _(ctx: InferContext, X: list[TensorMeta], AxisTensor: TensorMeta | None, *, axis: int) -> TensorMeta | None:
    if not X:
        return None
    if AxisTensor is not None:
        return X[0].with_shape((-1,) * X[0].rank)
    return X[0].with_shape(joined_shape(ctx, [x.shape for x in X], axis_in(ctx, axis, X[0].rank)))


@concat.grad(inputs="X* AxisTensor? Out@GRAD", outputs="X@GRAD*", lod="X", traits=Traits(shapes=("X",)))
def concat_grad(ctx: OpContext, X: list[Any], AxisTensor: Any, Out_grad: Any, *, axis: int) -> Any:
    """dOut cut at the sizes of X."""
    place = _axis(ctx, AxisTensor, axis, X[0].ndim)
    return {"X@GRAD": _pieces(Out_grad, [x.shape[place] for x in X], place)}


@concat.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    inputs = {
        "X": context.input("X"),
        "AxisTensor": context.input("AxisTensor"),
        "Out@GRAD": context.output_grad("Out"),
    }
    return [context.describe("concat_grad", inputs, {"X@GRAD": context.input_grad("X", drop_empty=False)})]


def _pieces(x: Any, sizes: Sequence[int], axis: int) -> list[Any]:
    pieces, begin = [], 0
    for size in sizes:
        pieces.append(x[(slice(None),) * axis + (slice(begin, begin + size),)])
        begin += size
    return pieces


def split_sizes(ctx: Context, size: int, num: int, sections: Sequence[int]) -> list[int]:
    """The sizes of the parts of an axis: `num` equal ones, or `sections`, of which one may be -1 (the rest)."""
    if num > 0:
        if not (size < 0 or size % num == 0):
            raise ctx.error(f"{num} equal parts requested, but the axis to be split has size {size}")
        return [size // num if size >= 0 else -1] * num
    sizes, unknown = list(sections), [i for i, section in enumerate(sections) if section == -1]
    if len(unknown) > 1:
        raise ctx.error(f"only one of sections can be -1, found {sizes}")
    if not all(section >= -1 for section in sizes):
        raise ctx.error(f"sections must be at least 0, or one -1, found {sizes}")
    if size < 0:
        return sizes
    known = sum(section for section in sizes if section != -1)
    fits = known < size if unknown else known == size
    if not fits:
        raise ctx.error(f"sections {sizes} do not add up to the size {size} of the axis to be split")
    for i in unknown:
        sizes[i] = size - known
    return sizes


@op(
    "split",
    inputs="X AxisTensor? SectionsTensorList*?",
    outputs="Out*",
    attrs={"sections": ints(), "num": 0, "axis": 0},
)
def split(
    ctx: OpContext, X: Any, AxisTensor: Any, SectionsTensorList: list[Any], *, sections: list[int], num: int, axis: int
) -> Any:
    """X split along `axis` into `num` equal parts, or into parts of the sizes `sections` (Paddle 1.8.5 split_op.h)."""
    place = _axis(ctx, AxisTensor, axis, X.ndim)
    asked = [number(ctx, item, "SectionsTensorList") for item in SectionsTensorList] or sections
    count = len(ctx.op.output("Out"))
    sizes = split_sizes(ctx, X.shape[place], num, asked)
    if len(sizes) != count:
        raise ctx.error(f"num and sections {[num, asked]} need {len(sizes)} outputs, but Out has {count}")
    if place != 0:
        for i in range(count):
            ctx.set_lod("Out", ctx.lod("X"), i)
    return {"Out": _pieces(X, sizes, place)}


@split.infer
def _(
    ctx: InferContext,
    X: TensorMeta,
    AxisTensor: TensorMeta | None,
    SectionsTensorList: list[TensorMeta],
    *,
    sections: list[int],
    num: int,
    axis: int,
) -> dict[str, list[TensorMeta]]:
    count = ctx.count("Out")
    if AxisTensor is not None:
        return {"Out": [X.with_shape((-1,) * X.rank)] * count}
    place = axis_in(ctx, axis, X.rank)
    if SectionsTensorList:  # -1 stands for what a tensor says
        sizes = [size if size > 0 else -1 for size in sections] or [-1] * count
    else:
        sizes = split_sizes(ctx, X.shape[place], num, sections)
    level = X.lod_level if place else 0
    return {"Out": [X.with_shape((*X.shape[:place], s, *X.shape[place + 1 :])).with_lod_level(level) for s in sizes]}


split.grad_maker(wired("concat", "X=Out@GRAD AxisTensor", "Out=X@GRAD"))


@op("stack", inputs="X*", outputs="Y", attrs={"axis": 0})
def stack(ctx: OpContext, X: list[Any], *, axis: int) -> Any:
    """The tensors X, all of one shape, along a new axis; the LoD is X[0]'s (Paddle 1.8.5 stack_op.cc)."""
    if not X:
        raise ctx.error("X must have at least one tensor")
    shapes = [tuple(x.shape) for x in X]
    if len(set(shapes)) != 1:
        raise ctx.error(f"the tensors of X must have one shape, found {shapes_text(sorted(set(shapes)))}")
    same_dtype(ctx, X[0], X, "the tensors of X")
    ctx.set_lod("Y", ctx.lod("X"))
    return ctx.xp.stack(X, axis=axis_in(ctx, axis, X[0].ndim + 1))


@stack.infer
def _(ctx: InferContext, X: list[TensorMeta], *, axis: int) -> TensorMeta | None:
    if not X:
        return None
    for x in X[1:]:
        if not may_be_same(x.shape, X[0].shape):
            raise ctx.error(f"the tensors of X must have one shape, found {shapes_text([X[0].shape, x.shape])}")
    shape = list(X[0].shape)
    shape.insert(axis_in(ctx, axis, X[0].rank + 1), len(X))
    return X[0].with_shape(shape)


@op("stack_grad", inputs="Y@GRAD", outputs="X@GRAD*", attrs={"axis": 0})
def stack_grad(ctx: OpContext, Y_grad: Any, *, axis: int) -> Any:
    """dY split along the axis."""
    return {"X@GRAD": _unstacked(ctx, Y_grad, axis)}


@stack.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    grads = {"X@GRAD": context.input_grad("X", drop_empty=False)}
    return [context.describe("stack_grad", {"Y@GRAD": context.output_grad("Y")}, grads)]


def _unstacked(ctx: OpContext, x: Any, axis: int) -> list[Any]:
    place = axis_in(ctx, axis, x.ndim)
    return [x[(slice(None),) * place + (i,)] for i in range(x.shape[place])]


def _unstacked_meta(ctx: InferContext, X: TensorMeta, axis: int, slot: str) -> list[TensorMeta]:
    place = axis_in(ctx, axis, X.rank)
    return [X.with_shape((*X.shape[:place], *X.shape[place + 1 :]))] * ctx.count(slot)


def _check_count(ctx: Context, shape: Sequence[int], axis: int, num: int) -> None:
    """Fail unless `num` may be the size of the axis; 0 stands for whatever that is."""
    size = shape[axis_in(ctx, axis, len(shape))]
    if num not in (size, 0) and not (size < 0 < num):
        raise ctx.error(f"num must be the size {size} of axis {axis} of X, found {num}")


@op("unstack", inputs="X", outputs="Y*", attrs={"axis": 0, "num": required(INT)})
def unstack(ctx: OpContext, X: Any, *, axis: int, num: int) -> Any:
    """X split along `axis` of size `num`, which the parts do not have (Paddle 1.8.5 unstack_op.h)."""
    _check_count(ctx, X.shape, axis, num)
    return {"Y": _unstacked(ctx, X, axis)}


@unstack.infer
def _(ctx: InferContext, X: TensorMeta, *, axis: int, num: int) -> dict[str, list[TensorMeta]]:
    _check_count(ctx, X.shape, axis, num)
    return {"Y": [meta.with_lod_level(0) for meta in _unstacked_meta(ctx, X, axis, "Y")]}


@unstack.grad(inputs="Y@GRAD*", outputs="X@GRAD")
def unstack_grad(ctx: OpContext, Y_grad: list[Any], *, axis: int) -> Any:
    """dY stacked."""
    return ctx.xp.stack(Y_grad, axis=axis_in(ctx, axis, Y_grad[0].ndim + 1))


@op("unbind", inputs="X", outputs="Out*", attrs={"axis": 0})
def unbind(ctx: OpContext, X: Any, *, axis: int) -> Any:
    """X split along `axis`, which the parts do not have; they get X's LoD unless axis is 0 (Paddle 1.8.5 unbind_op.h)."""
    pieces = _unstacked(ctx, X, axis)
    if axis_in(ctx, axis, X.ndim):
        for i in range(len(pieces)):
            ctx.set_lod("Out", ctx.lod("X"), i)
    return {"Out": pieces}


@unbind.infer
def _(ctx: InferContext, X: TensorMeta, *, axis: int) -> dict[str, list[TensorMeta]]:
    level = X.lod_level if axis_in(ctx, axis, X.rank) else 0
    return {"Out": [meta.with_lod_level(level) for meta in _unstacked_meta(ctx, X, axis, "Out")]}


unbind.grad_maker(wired("stack", "X=Out@GRAD", "Y=X@GRAD"))
