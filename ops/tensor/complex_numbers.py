"""Complex numbers of 2.x programs: as_complex, as_real, complex, real, imag, conj."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.ops.tensor.arguments import same_dtype
from fluidtool.proto.enums import VarType

COMPLEX = {VarType.FP32: VarType.COMPLEX64, VarType.FP64: VarType.COMPLEX128}
REAL = {complex_type: real_type for real_type, complex_type in COMPLEX.items()}


def _complex_dtype(ctx: OpContext, dtype: Any, slot: str) -> Any:
    if dtype not in ("float32", "float64"):
        raise ctx.error(f"{slot} must be float32 or float64, found {dtype}")
    return "complex64" if dtype == "float32" else "complex128"


@op("as_complex", inputs="X", outputs="Out")
def as_complex(ctx: OpContext, X: Any) -> Any:
    """The pairs in the last axis of X (size 2) as complex numbers (Paddle 2.6.2 as_complex_kernel.cc)."""
    if X.ndim <= 0 or X.shape[-1] != 2:
        raise ctx.error(f"the last size of X must be 2, found shape {X.shape}")
    return ctx.xp.ascontiguousarray(X).view(_complex_dtype(ctx, X.dtype, "X"))[..., 0]


@as_complex.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return X.with_shape(X.shape[:-1]).with_dtype(COMPLEX.get(X.dtype, X.dtype))


@as_complex.grad(inputs="Out@GRAD", outputs="X@GRAD")
def as_complex_grad(ctx: OpContext, Out_grad: Any) -> Any:
    """dOut as pairs."""
    return ctx.xp.stack([Out_grad.real, Out_grad.imag], axis=-1)


@op("as_real", inputs="X", outputs="Out")
def as_real(ctx: OpContext, X: Any) -> Any:
    """Complex numbers as pairs in a new last axis (Paddle 2.6.2 as_real_kernel.cc)."""
    if X.dtype.kind != "c":
        raise ctx.error(f"X must be complex, found {X.dtype}")
    return ctx.xp.stack([X.real, X.imag], axis=-1)


@as_real.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return X.with_shape((*X.shape, 2)).with_dtype(REAL.get(X.dtype, X.dtype))


@op("complex", inputs="X Y", outputs="Out")
def complex_(ctx: OpContext, X: Any, Y: Any) -> Any:
    """X + Y i, broadcast to one shape (Paddle 2.6.2 complex_kernel.cc)."""
    same_dtype(ctx, X, [Y], "X and Y")
    wanted = _complex_dtype(ctx, X.dtype, "X")
    out = ctx.xp.empty(ctx.np.broadcast_shapes(X.shape, Y.shape), wanted)
    out.real, out.imag = X, Y
    return out


@complex_.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta) -> TensorMeta:
    return (X if X.rank >= Y.rank else Y).with_dtype(COMPLEX.get(X.dtype, X.dtype))


@op("real", inputs="X", outputs="Out")
def real(ctx: OpContext, X: Any) -> Any:
    """The real parts (Paddle 2.6.2 complex_kernel.cc)."""
    return X.real


@op("imag", inputs="X", outputs="Out")
def imag(ctx: OpContext, X: Any) -> Any:
    """The imaginary parts (Paddle 2.6.2 complex_kernel.cc)."""
    return X.imag


@real.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return X.with_dtype(REAL.get(X.dtype, X.dtype))


@imag.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return X.with_dtype(REAL.get(X.dtype, X.dtype))


@op("conj", inputs="X", outputs="Out")
def conj(ctx: OpContext, X: Any) -> Any:
    """The complex conjugates; real numbers stay (Paddle 2.6.2 complex_kernel.cc)."""
    return X.conj()


@conj.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return X


@op("angle", inputs="X", outputs="Out")
def angle(ctx: OpContext, X: Any) -> Any:
    """The angles of complex numbers; 0 or pi of real ones (Paddle 2.6.2 angle_kernel.cc)."""
    return ctx.xp.angle(X).astype(X.real.dtype, copy=False)


@angle.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return X.with_dtype(REAL.get(X.dtype, X.dtype))
