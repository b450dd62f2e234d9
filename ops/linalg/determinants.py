"""Determinants, and their sign with the logarithm of their size."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.linalg.common import check_square, solved, turned
from fluidtool.ops.math.versions import scalar_shape
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta


@op("determinant", inputs="Input", outputs="Out")
def determinant(ctx: OpContext, Input: Any) -> Any:
    """The determinant of each matrix [..., n, n] (Paddle 2.6.2 determinant_kernel_impl.h)."""
    check_square(ctx, Input.shape, "Input")
    return ctx.xp.linalg.det(Input).reshape(Input.shape[:-2] or scalar_shape(ctx))


@determinant.infer
def _(ctx: InferContext, Input: TensorMeta) -> TensorMeta:
    check_square(ctx, Input.shape, "Input")
    return Input.with_shape(Input.shape[:-2] or scalar_shape(ctx)).with_lod_level(0)


@determinant.grad(inputs="Input Out Out@GRAD", outputs="Input@GRAD")
def determinant_grad(ctx: OpContext, Input: Any, Out: Any, Out_grad: Any) -> Any:
    """dInput = dOut * Out * Input⁻ᵀ."""
    factor = (Out_grad * Out).reshape((*Input.shape[:-2], 1, 1))
    return factor * turned(solved(ctx, ctx.xp.linalg.inv, Input))


@op("slogdeterminant", inputs="Input", outputs="Out")
def slogdeterminant(ctx: OpContext, Input: Any) -> Any:
    """Signs of the determinants of [..., n, n], and below them the logarithms of their sizes: [2, ...] (Paddle 2.6.2).

    Nothing is inferred, since Paddle declares the shape of Input.
    """
    check_square(ctx, Input.shape, "Input")
    sign, logarithm = ctx.xp.linalg.slogdet(Input)
    return ctx.xp.stack([sign.reshape(Input.shape[:-2]), logarithm.reshape(Input.shape[:-2])])


@slogdeterminant.grad(inputs="Input Out@GRAD", outputs="Input@GRAD")
def slogdeterminant_grad(ctx: OpContext, Input: Any, Out_grad: Any) -> Any:
    """dInput = dlogarithm * Input⁻ᵀ; the sign is flat."""
    return Out_grad[1].reshape((*Input.shape[:-2], 1, 1)) * turned(solved(ctx, ctx.xp.linalg.inv, Input))
