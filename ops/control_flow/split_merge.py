"""split_lod_tensor and merge_lod_tensor: sequences split by a mask, and merged again (IfElse)."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.ops.sequence.picking import join_lods, take_sequences
from fluidtool.ops.traits import Traits
from fluidtool.tensor import LoDTensor

ATTRS: dict[str, Any] = {"level": 0}


@op("split_lod_tensor", inputs="X Mask", outputs="OutTrue OutFalse", attrs=ATTRS, traits=Traits(lod_branch="X"))
def split_lod_tensor(ctx: OpContext, X: Any, Mask: Any, *, level: int) -> dict[str, Any]:
    """The sequences of X at LoD level `level` (rows without a LoD) by Mask [n, 1]: OutTrue and OutFalse.

    (Paddle 1.8.5 split_lod_tensor_op.cc)
    """
    chosen, lod = _mask(ctx, Mask, level), ctx.lod("X")[level:]
    count = len(lod[0]) - 1 if lod else X.shape[0]
    if len(chosen) != count:
        raise ctx.error(
            f"Mask has {len(chosen)} rows, but X has {count} {'sequences' if lod else 'rows'}; the numbers must be equal"
        )
    outs = {}
    for slot, picks in (("OutTrue", chosen.nonzero()[0]), ("OutFalse", (~chosen).nonzero()[0])):
        taken, rows = take_sequences(ctx, lod, picks)
        ctx.set_lod(slot, taken)
        outs[slot] = X[ctx.array(rows)]
    return outs


@split_lod_tensor.infer
def _(ctx: InferContext, X: TensorMeta, Mask: TensorMeta) -> dict[str, TensorMeta]:
    out = X.with_lod_level(0)
    return {"OutTrue": out, "OutFalse": out}


@split_lod_tensor.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    inputs = {
        "InTrue": context.output_grad("OutTrue"),
        "InFalse": context.output_grad("OutFalse"),
        "Mask": context.input("Mask"),
        "X": context.input("X"),
    }
    return [context.describe("merge_lod_tensor", inputs, {"Out": context.input_grad("X")})]


@op(
    "merge_lod_tensor",
    inputs="X Mask InTrue InFalse",
    outputs="Out",
    attrs=ATTRS,
    raw=True,
    traits=Traits(lod_branch="X"),
)
def merge_lod_tensor(ctx: OpContext, *, level: int) -> Any:
    """The sequences of InTrue and InFalse in the order of Mask [n, 1]; X gives the LoD levels above `level`.

    A branch without rows may have no value, as it did not run. Rows beyond those that Mask selects are dropped, and
    without a LoD, Out is filled up with rows of zeros (Paddle 1.8.5 merge_lod_tensor_op.cc).
    """
    chosen = _mask(ctx, ctx.value("Mask").array, level)
    parts = [_branch(ctx, slot) for slot in ("InTrue", "InFalse")]
    counts = [len(part.offsets[0]) - 1 if part.offsets else part.shape()[0] for part in parts]
    expected = [int(chosen.sum()), int((~chosen).sum())]
    if counts[0] < expected[0] or counts[1] < expected[1]:
        raise ctx.error(
            f"Mask has {expected[0]} true and {expected[1]} false rows, but InTrue has {counts[0]} and InFalse {counts[1]} "
            "sequences or rows"
        )
    filled = [part for part, count in zip(parts, counts, strict=True) if count]
    if not filled:
        filled = [part for part in parts if part.array is not None][:1]
    if not filled:
        raise ctx.error("neither InTrue nor InFalse holds a value; one of the branches must run")
    place = ctx.np.where(chosen, chosen.cumsum() - 1, counts[0] + (~chosen).cumsum() - 1)
    deeper, rows = take_sequences(ctx, join_lods([part.offsets for part in filled]), place)
    ctx.set_lod("Out", [*ctx.lod("X")[:level], *deeper])
    values = ctx.xp.concatenate([part.array for part in filled])
    named, left = values[ctx.array(rows)], 0 if deeper else len(values) - len(rows)
    return named if not left else ctx.xp.concatenate([named, ctx.xp.zeros_like(values[:left])])


@merge_lod_tensor.infer
def _(ctx: InferContext) -> TensorMeta | None:
    meta: TensorMeta | None = ctx.meta(ctx.op.input("InTrue")[0])
    return None if meta is None else meta.with_lod_level(0)


@merge_lod_tensor.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    inputs = {"X": context.output_grad("Out"), "Mask": context.input("Mask")}
    outputs = {"OutTrue": context.input_grad("InTrue"), "OutFalse": context.input_grad("InFalse")}
    return [context.describe("split_lod_tensor", inputs, outputs)]


@op("merge_lod_tensor_infer", inputs="X Mask InTrue InFalse", outputs="Out", attrs=ATTRS, raw=True)
def merge_lod_tensor_infer(ctx: OpContext, *, level: int) -> Any:
    """merge_lod_tensor of programs without gradients (Paddle 1.8.5 merge_lod_tensor_op.cc)."""
    return merge_lod_tensor.kernel(ctx, level=level)


merge_lod_tensor_infer.infer_by_kernel = merge_lod_tensor.infer_by_kernel


def _branch(ctx: OpContext, slot: str) -> LoDTensor:
    """The value of a branch; an empty tensor if it did not run."""
    value = ctx.value(slot) if ctx.has(slot) else LoDTensor()
    if not isinstance(value, LoDTensor):
        raise ctx.error(f"input {slot} must hold a tensor, found {type(value).__name__}")
    tensor: LoDTensor = value
    return tensor


def _mask(ctx: OpContext, Mask: Any, level: int) -> Any:
    if level < 0:
        raise ctx.error(f"level must not be negative, found {level}")
    if Mask.ndim != 2 or Mask.shape[1] != 1:
        raise ctx.error(f"Mask must have shape (n, 1), found {Mask.shape}")
    return ctx.host(Mask)[:, 0].astype(bool)
