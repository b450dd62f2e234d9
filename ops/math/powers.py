"""Powers, roots, exponentials and logarithms."""

from __future__ import annotations

import math
from typing import Any

from fluidtool.ops.activation.unary import FROM_OUT, FROM_X, LIBRARIES, activation
from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.wiring import wired
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.shapes import shape_text


@activation("exp", LIBRARIES, integers=True)
def exp(ctx: OpContext, X: Any) -> Any:
    """e to the X; integers are cut towards zero."""
    return ctx.xp.exp(X).astype(X.dtype, copy=False)


@exp.grad(**FROM_OUT)
def exp_grad(ctx: OpContext, Out: Any, Out_grad: Any) -> Any:
    """dX = dOut * Out."""
    return Out_grad * Out


@activation("expm1", LIBRARIES)
def expm1(ctx: OpContext, X: Any) -> Any:
    """e to the X, less 1 (Paddle 2.x)."""
    return ctx.xp.expm1(X)


@expm1.grad(**FROM_OUT)
def expm1_grad(ctx: OpContext, Out: Any, Out_grad: Any) -> Any:
    """dX = dOut * (Out + 1)."""
    return Out_grad * (Out + 1)


@activation("log", LIBRARIES)
def log(ctx: OpContext, X: Any) -> Any:
    """The natural logarithm."""
    return ctx.xp.log(X)


@log.grad(**FROM_X)
def log_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dX = dOut / X."""
    return Out_grad / X


@activation("log2", LIBRARIES)
def log2(ctx: OpContext, X: Any) -> Any:
    """The logarithm to base 2 (Paddle 2.x)."""
    return ctx.xp.log2(X)


@log2.grad(**FROM_X)
def log2_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dX = dOut / (X * ln 2)."""
    return Out_grad / (X * X.dtype.type(math.log(2)))


@activation("log10", LIBRARIES)
def log10(ctx: OpContext, X: Any) -> Any:
    """The logarithm to base 10 (Paddle 2.x)."""
    return ctx.xp.log10(X)


@log10.grad(**FROM_X)
def log10_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dX = dOut / (X * ln 10)."""
    return Out_grad / (X * X.dtype.type(math.log(10)))


@activation("log1p", LIBRARIES)
def log1p(ctx: OpContext, X: Any) -> Any:
    """log(1 + X)."""
    return ctx.xp.log1p(X)


@log1p.grad(**FROM_X)
def log1p_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dX = dOut / (1 + X)."""
    return Out_grad / (X + 1)


@activation("abs", LIBRARIES, integers=True, sparse=True)
def abs(ctx: OpContext, X: Any) -> Any:
    """|X|."""
    return ctx.xp.absolute(X)


@abs.grad(**FROM_X)
def abs_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dX = dOut * sign(X)."""
    return Out_grad * ctx.xp.sign(X)


@activation("square", LIBRARIES, integers=True, sparse=True)
def square(ctx: OpContext, X: Any) -> Any:
    """X²."""
    return X * X


@square.grad(**FROM_X)
def square_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dX = 2 * dOut * X."""
    return Out_grad * X * 2


square_grad.grad_maker(wired("square_grad_grad", "X DOut=Out@GRAD DDX=X@GRAD@GRAD", "DDOut=Out@GRAD@GRAD DX=X@GRAD"))


@op("square_grad_grad", inputs="X DOut DDX", outputs="DX DDOut", attrs=LIBRARIES, lod="X")
def square_grad_grad(ctx: OpContext, X: Any, DOut: Any, DDX: Any) -> dict[str, Any]:
    """ddOut = 2 * X * ddX, dX = 2 * dOut * ddX."""
    return {"DX": DOut * DDX * 2, "DDOut": X * DDX * 2}


@square_grad_grad.infer
def _(ctx: InferContext, X: TensorMeta, DOut: TensorMeta, DDX: TensorMeta) -> dict[str, TensorMeta]:
    return {"DX": X, "DDOut": X}


@activation("sqrt", LIBRARIES, sparse=True)
def sqrt(ctx: OpContext, X: Any) -> Any:
    """The square root."""
    return ctx.xp.sqrt(X)


@sqrt.grad(**FROM_OUT)
def sqrt_grad(ctx: OpContext, Out: Any, Out_grad: Any) -> Any:
    """dX = dOut / (2 * Out)."""
    return Out_grad * 0.5 / Out


sqrt_grad.grad_maker(wired("sqrt_grad_grad", "Out DX=X@GRAD DDX=X@GRAD@GRAD", "DDOut=Out@GRAD@GRAD DOut=Out@GRAD"))


@op("sqrt_grad_grad", inputs="Out DX DDX", outputs="DOut DDOut", attrs=LIBRARIES, lod="Out")
def sqrt_grad_grad(ctx: OpContext, Out: Any, DX: Any, DDX: Any) -> dict[str, Any]:
    """ddOut = ddX / (2 * Out), dOut = -dX * ddX / Out."""
    return {"DOut": -DX * DDX / Out, "DDOut": DDX * 0.5 / Out}


@sqrt_grad_grad.infer
def _(ctx: InferContext, Out: TensorMeta, DX: TensorMeta, DDX: TensorMeta) -> dict[str, TensorMeta]:
    return {"DOut": Out, "DDOut": Out}


@activation("rsqrt", LIBRARIES)
def rsqrt(ctx: OpContext, X: Any) -> Any:
    """1 / sqrt(X), infinite at both zeros."""
    return 1 / (ctx.xp.sqrt(X) + 0)


@rsqrt.grad(**FROM_OUT)
def rsqrt_grad(ctx: OpContext, Out: Any, Out_grad: Any) -> Any:
    """dX = -dOut * Out³ / 2."""
    return Out_grad * -0.5 * Out * Out * Out


@activation("reciprocal", LIBRARIES)
def reciprocal(ctx: OpContext, X: Any) -> Any:
    """1 / X."""
    return 1 / X


@reciprocal.grad(**FROM_OUT)
def reciprocal_grad(ctx: OpContext, Out: Any, Out_grad: Any) -> Any:
    """dX = -dOut * Out²."""
    return -Out_grad * Out * Out


@op("pow", inputs="X FactorTensor?", outputs="Out", attrs={"factor": 1.0}, lod="X")
def pow(ctx: OpContext, X: Any, FactorTensor: Any, *, factor: float) -> Any:
    """X to the power `factor`, or the one number in FactorTensor, taken in the data type of X (integers cut it)."""
    return _power(ctx, X, _factor(ctx, FactorTensor, factor))


pow.infer(lambda ctx, X, FactorTensor: X)


@pow.grad(inputs="X FactorTensor? Out@GRAD", outputs="X@GRAD", lod="Out@GRAD")
def pow_grad(ctx: OpContext, X: Any, FactorTensor: Any, Out_grad: Any, *, factor: float) -> Any:
    """dX = dOut * factor * X^(factor - 1)."""
    exponent = _factor(ctx, FactorTensor, factor)
    return Out_grad * X.dtype.type(exponent) * _power(ctx, X, exponent - 1)


def _factor(ctx: OpContext, tensor: Any, factor: float) -> float:
    if tensor is None:
        return factor
    if tensor.size != 1:
        raise ctx.error(f"FactorTensor must hold one number, found shape {shape_text(tensor.shape)}")
    return float(ctx.host(tensor).reshape(()))


def _power(ctx: OpContext, X: Any, exponent: float) -> Any:
    if X.dtype.kind in "iub":
        return _cut(ctx, ctx.xp.power(X.astype("float64"), float(int(exponent))), X.dtype)
    if exponent == 2:
        return X * X
    return ctx.xp.power(X, X.dtype.type(exponent))


def _cut(ctx: OpContext, values: Any, dtype: Any) -> Any:
    return ctx.xp.where(ctx.xp.isfinite(values), values, 0).astype(dtype)
