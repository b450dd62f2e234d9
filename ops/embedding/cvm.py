"""cvm: the two leading columns of an embedding are show and click counts, taken as logarithms or cut off."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.shapes import shape_text


@op("cvm", inputs="X CVM", outputs="Y", attrs={"use_cvm": True}, lod="X")
def cvm(ctx: OpContext, X: Any, CVM: Any, *, use_cvm: bool) -> Any:
    """Y = X with columns 0 and 1 as log(show + 1) and log(click + 1) - log(show + 1), or X without them.

    X [N, width], width >= 2; CVM [sequences, 2] serves the gradient only (Paddle 1.8.5 cvm_op.h).
    """
    _check(ctx, X)
    if not use_cvm:
        return X[:, 2:]
    show = ctx.xp.log(X[:, :1] + 1)
    return ctx.xp.concatenate([show, ctx.xp.log(X[:, 1:2] + 1) - show, X[:, 2:]], axis=1)


def _check(ctx: OpContext | InferContext, X: Any) -> None:
    shape = tuple(X.shape)
    if not (len(shape) == 2 and (shape[1] >= 2 or shape[1] == -1)):
        raise ctx.error(
            f"input X must be (N, width) with at least the two columns show and click, found shape {shape_text(shape)}"
        )


@cvm.infer
def _(ctx: InferContext, X: TensorMeta, CVM: TensorMeta, *, use_cvm: bool) -> TensorMeta:
    _check(ctx, X)
    return X if use_cvm or X.shape[1] < 0 else X.with_shape((X.shape[0], X.shape[1] - 2))


@cvm.grad(inputs="X CVM Y@GRAD", outputs="X@GRAD", lod="X")
def cvm_grad(ctx: OpContext, X: Any, CVM: Any, Y_grad: Any, *, use_cvm: bool) -> Any:
    """dX = the row's sequence's CVM in columns 0 and 1, dY in the others."""
    xp, counts = ctx.xp, CVM
    if ctx.lod("X"):
        lengths = ctx.np.diff(ctx.sequences("X"))
        if len(lengths) != len(CVM):
            raise ctx.error(f"input CVM must have one row per sequence of X ({len(lengths)}), found shape {CVM.shape}")
        counts = CVM[ctx.array(ctx.np.repeat(ctx.np.arange(len(lengths)), lengths))]
    if len(counts) != len(X):
        raise ctx.error(f"input CVM must have one row per row of X ({len(X)}), found shape {CVM.shape}")
    return xp.concatenate([counts.astype(X.dtype, copy=False), Y_grad[:, 2:] if use_cvm else Y_grad], axis=1)
