"""Common code of optimizers: checks, gradients that are SelectedRows, inference."""

from __future__ import annotations

from typing import Any

from fluidtool.errors import UnsupportedOperatorError
from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.embedding.rows import check_rows, merge_rows
from fluidtool.ops.registry import OpInfo
from fluidtool.ops.schema import TensorMeta
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text
from fluidtool.tensor import SelectedRows

DENSE = VarType.LOD_TENSOR


def like_inputs(info: OpInfo, **pairs: str) -> None:
    """Let each output (`ParamOut="Param"`) have the shape and data type of one input, when inferred and when run.

    A dense gradient must have the Param's shape. The data type needs care where bfloat16 meets Python numbers, which
    makes float32. Master weights are refused.
    """
    kernel, places = info.kernel, {slot.name: i for i, slot in enumerate(info.inputs)}

    def infer(ctx: InferContext, *metas: Any) -> dict[str, TensorMeta]:
        by_slot = {slot: metas[i] for slot, i in places.items()}
        param, grad = by_slot.get("Param"), by_slot.get("Grad")
        if isinstance(param, TensorMeta) and isinstance(grad, TensorMeta) and param.kind == grad.kind == DENSE:
            check_shapes(ctx, Param=param, Grad=grad)
        return {target: by_slot[source] for target, source in pairs.items() if by_slot[source] is not None}

    def run(ctx: OpContext, *inputs: Any, **attrs: Any) -> Any:
        refuse_master_weights(ctx)
        result = kernel(ctx, *inputs, **attrs)
        if isinstance(result, dict):
            return {slot: _typed_like(value, inputs[places[pairs[slot]]]) for slot, value in result.items()}
        return _typed_like(result, inputs[places[next(iter(pairs.values()))]])

    info.infer_by_kernel, info.kernel = infer, run


def _typed_like(value: Any, like: Any) -> Any:
    if isinstance(value, list):
        return [_typed_like(item, other) for item, other in zip(value, like, strict=True)]
    if value is None or isinstance(value, SelectedRows) or isinstance(like, SelectedRows) or value.dtype == like.dtype:
        return value
    return value.astype(like.dtype)


def check_shapes(ctx: OpContext | InferContext, **inputs: Any) -> None:
    """Fail unless all inputs (slot=value) have the shape of the first."""
    (first, base), *others = ((slot, tuple(value.shape)) for slot, value in inputs.items())
    for slot, shape in others:
        fits = len(shape) == len(base) and all(a == b or -1 in (a, b) for a, b in zip(base, shape, strict=True))
        if not fits:
            raise ctx.error(
                f"inputs {first} and {slot} must have the same shape, found {shape_text(base)} and {shape_text(shape)}"
            )


def number(ctx: OpContext, value: Any, like: Any, slot: str = "LearningRate") -> Any:
    """The single number that an input holds, as a scalar array of the data type of `like`."""
    if value.size != 1:
        raise ctx.error(f"input {slot} must hold one number, found shape {value.shape}")
    return value.reshape(()).astype(like.dtype, copy=False)


def option(ctx: OpContext, name: str, default: Any) -> Any:
    """An attribute that only later versions write, or its default."""
    return ctx.op.attr(name) if ctx.op.has_attr(name) else default


def refuse_master_weights(ctx: OpContext) -> None:
    """Fail for the mixed-precision form of Paddle 2.x, which keeps a float32 copy of the parameter."""
    if option(ctx, "multi_precision", False):
        raise UnsupportedOperatorError(
            f"operator {ctx.op.type} with multi_precision=True updates a float32 copy of its parameter, which is not "
            "supported; train in float32"
        )


def later_number(ctx: OpContext, slot: str, otherwise: Any, like: Any) -> Any:
    """The single number of an input that only later versions have, or what stands for it without."""
    return number(ctx, ctx.value(slot).array, like, slot) if ctx.has(slot) else otherwise


def skips_update(ctx: OpContext) -> bool:
    """Whether the SkipUpdate input of Paddle 2.x says to leave everything as it is."""
    return ctx.has("SkipUpdate") and bool(ctx.host(ctx.value("SkipUpdate").array).reshape(-1)[0])


def check_gradient(ctx: OpContext, Param: Any, Grad: Any) -> None:
    """Fail unless the gradient fits the parameter: the same shape, or rows of it."""
    if not isinstance(Grad, SelectedRows):
        check_shapes(ctx, Param=Param, Grad=Grad)
        return
    check_rows(ctx, Grad, "input Grad", len(Param))
    if tuple(Grad.value.shape[1:]) != tuple(Param.shape[1:]):
        raise ctx.error(
            f"input Grad (SelectedRows) must have rows of shape {shape_text(Param.shape[1:])} like Param, "
            f"found {shape_text(Grad.value.shape[1:])}"
        )


def dense_gradient(ctx: OpContext, Param: Any, Grad: Any) -> Any:
    """The gradient as an array like Param: equal rows of SelectedRows add up, rows that it does not name are 0."""
    check_gradient(ctx, Param, Grad)
    if not isinstance(Grad, SelectedRows):
        return Grad
    out = ctx.xp.zeros_like(Param)
    ctx.add_rows(out, ctx.array(Grad.row_ids), Grad.value.astype(Param.dtype, copy=False))
    return out


def merged_gradient(ctx: OpContext, Param: Any, Grad: SelectedRows) -> tuple[Any, Any]:
    """The rows that a sparse gradient names, each once, and their summed values."""
    check_gradient(ctx, Param, Grad)
    rows, values = merge_rows(ctx, Grad.row_ids, Grad.value)
    return ctx.array(rows), values


def is_empty(Grad: Any) -> bool:
    """Whether the gradient is SelectedRows without rows: Paddle then changes nothing."""
    return isinstance(Grad, SelectedRows) and len(Grad.row_ids) == 0


def with_rows(array: Any, rows: Any, values: Any) -> Any:
    """A copy of `array` with these rows replaced."""
    out = array.copy()
    out[rows] = values
    return out
