"""Between sequences and padded tensors: sequence_pad, sequence_unpad, sequence_mask."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, TensorMeta, required
from fluidtool.ops.sequence.picking import offsets_of, row_positions, row_sequences, single_level
from fluidtool.ops.tensor.arguments import may_be_same
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text


@op("sequence_pad", inputs="X PadValue", outputs="Out Length", attrs={"padded_length": -1})
def sequence_pad(ctx: OpContext, X: Any, PadValue: Any, *, padded_length: int) -> dict[str, Any]:
    """Sequences [T, …] -> Out [n, length, …] filled up with PadValue, and Length [n] int64.

    PadValue has one value or the shape of a row; `padded_length` -1 is the longest length (Paddle 1.8.5
    sequence_pad_op.cc).
    """
    if X.ndim < 2:
        raise ctx.error(f"X must have at least 2 dimensions, found shape {X.shape}")
    if PadValue.size != 1 and PadValue.shape != X.shape[1:]:
        raise ctx.error(
            f"PadValue must have one value or the shape of a row of X, {X.shape[1:]}, found {PadValue.shape}"
        )
    offsets = single_level(ctx, "X", X.shape[0])
    lengths = ctx.np.diff(offsets)
    longest = int(lengths.max(initial=0))
    size = longest if padded_length == -1 else padded_length
    if size < longest:
        raise ctx.error(f"padded_length must be -1 or at least the longest sequence, {longest}, found {padded_length}")
    filler = PadValue.reshape(()) if PadValue.size == 1 else PadValue
    out = ctx.xp.empty((len(lengths), size, *X.shape[1:]), dtype=X.dtype)
    out[...] = filler
    out[_cells(ctx, offsets)] = X
    return {"Out": out, "Length": ctx.array(lengths.astype(ctx.np.int64))}


@sequence_pad.infer
def _(ctx: InferContext, X: TensorMeta, PadValue: TensorMeta, *, padded_length: int) -> dict[str, TensorMeta]:
    if X.rank < 2:
        raise ctx.error(f"X must have at least 2 dimensions, found shape {X.shape}")
    if not (may_be_same(PadValue.shape, (1,)) or may_be_same(PadValue.shape, X.shape[1:])):
        raise ctx.error(
            f"PadValue must have one value or the shape of a row of X, {shape_text(X.shape[1:])}, "
            f"found {shape_text(PadValue.shape)}"
        )
    steps = 1 if padded_length == -1 else padded_length  # what Paddle writes for a length known only at run time
    out = TensorMeta((-1, steps, *X.shape[1:]), X.dtype)
    return {"Out": out, "Length": TensorMeta((-1,), VarType.INT64)}


@sequence_pad.grad(inputs="X Out@GRAD", outputs="X@GRAD", lod="X")
def sequence_pad_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """The gradient without its padding."""
    return Out_grad[_cells(ctx, single_level(ctx, "X", X.shape[0]))]


@op("sequence_unpad", inputs="X Length", outputs="Out")
def sequence_unpad(ctx: OpContext, X: Any, Length: Any) -> Any:
    """X [n, length, …] -> the first Length[i] steps of every item, as sequences [T, …] (Paddle 1.8.5 sequence_unpad_op.cc)."""
    offsets = _unpadded_offsets(ctx, X, Length)
    ctx.set_lod("Out", [offsets])
    out = X[_cells(ctx, offsets)]
    return out if X.ndim > 2 else out.reshape(-1, 1)


@sequence_unpad.infer
def _(ctx: InferContext, X: TensorMeta, Length: TensorMeta) -> TensorMeta:
    if X.rank < 2:
        raise ctx.error(f"X must have at least 2 dimensions, found shape {X.shape}")
    if not may_be_same(Length.shape, X.shape[:1]):
        raise ctx.error(
            f"Length must have one value for each of the {X.shape[0]} items of X, found shape {shape_text(Length.shape)}"
        )
    return TensorMeta((-1, *(X.shape[2:] or (1,))), X.dtype, 1)


@sequence_unpad.grad(inputs="X Out@GRAD", outputs="X@GRAD", lod="X")
def sequence_unpad_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """The gradient padded with zeros; its LoD tells the lengths."""
    offsets = single_level(ctx, "Out@GRAD", Out_grad.shape[0])
    longest = max((end - start for start, end in pairwise(offsets)), default=0)
    if len(offsets) - 1 != X.shape[0] or longest > X.shape[1]:
        raise ctx.error(
            f"Out@GRAD has {len(offsets) - 1} sequences of up to {longest} rows, which do not fit X {X.shape}"
        )
    grad = ctx.xp.zeros(X.shape, dtype=Out_grad.dtype)
    grad[_cells(ctx, offsets)] = Out_grad.reshape(-1, *X.shape[2:])
    return grad


def _unpadded_offsets(ctx: OpContext, X: Any, Length: Any) -> list[int]:
    if X.ndim < 2:
        raise ctx.error(f"X must have at least 2 dimensions, found shape {X.shape}")
    if Length.size != X.shape[0]:
        raise ctx.error(f"Length must have one value for each of {X.shape[0]} items of X, found {Length.size}")
    lengths = ctx.host(Length).reshape(-1)
    if not ((lengths >= 0) & (lengths <= X.shape[1])).all():
        raise ctx.error(f"Length must lie in [0, {X.shape[1]}], the padded length, found {lengths[:12].tolist()}")
    return offsets_of(lengths)


def _cells(ctx: OpContext, offsets: list[int]) -> tuple[Any, Any]:
    """Where every row stands in the padded tensor."""
    return ctx.array(row_sequences(ctx, offsets)), ctx.array(row_positions(ctx, offsets))


@op("sequence_mask", inputs="X MaxLenTensor?", outputs="Y", attrs={"maxlen": -1, "out_dtype": required(INT)})
def sequence_mask(ctx: OpContext, X: Any, MaxLenTensor: Any, *, maxlen: int, out_dtype: int) -> Any:
    """Lengths of any shape -> Y[…, j] = 1 where j < X[…], else 0, for j < maxlen (Paddle 1.8.5 sequence_mask_op.h).

    `maxlen` negative and no MaxLenTensor: the largest length.
    """
    if MaxLenTensor is not None:
        maxlen = int(ctx.host(MaxLenTensor).reshape(-1)[0])
        if maxlen <= 0:
            raise ctx.error(f"MaxLenTensor must be positive, found {maxlen}")
    elif maxlen < 0:
        maxlen = int(X.max()) if X.size else 0
    steps = ctx.xp.arange(maxlen, dtype=X.dtype)
    return (steps < X[..., None]).astype(ctx.dtype(out_dtype))


@sequence_mask.infer
def _(ctx: InferContext, X: TensorMeta, MaxLenTensor: TensorMeta | None, *, maxlen: int, out_dtype: int) -> TensorMeta:
    if maxlen == 0 and MaxLenTensor is None:
        raise ctx.error("maxlen must be negative or at least 1, found 0")
    size = maxlen if maxlen > 0 and MaxLenTensor is None else -1
    return TensorMeta((*X.shape, size), VarType(out_dtype))
