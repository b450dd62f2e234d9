"""range, linspace, eye: numbers that follow from their place."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.versions import later_attr, saved_since
from fluidtool.ops.registry import op
from fluidtool.ops.schema import LONG, TensorMeta, long, or_variable, required
from fluidtool.ops.tensor.arguments import number
from fluidtool.proto.enums import VarType


def _scalar(ctx: OpContext, values: Any, slot: str) -> Any:
    """The one number of a tensor, on the host, in its data type."""
    if values.size != 1:
        raise ctx.error(f"input {slot} must hold one number, found a tensor of shape {values.shape}")
    return ctx.host(values).reshape(-1)[0]


@op("range", inputs="Start End Step", outputs="Out")
def range_(ctx: OpContext, Start: Any, End: Any, Step: Any) -> Any:
    """Start, Start + Step, ... up to End, End excluded; data type of Start (Paddle 1.8.5 range_op.h).

    As in Paddle each number is the one before plus Step, rounding included.
    """
    start, end, step = _scalar(ctx, Start, "Start"), _scalar(ctx, End, "End"), _scalar(ctx, Step, "Step")
    if step == 0:
        raise ctx.error("Step must not be 0")
    if start != end and (start < end) != (step > 0):
        raise ctx.error(f"Step {step} does not lead from Start {start} to End {end}")
    if Start.dtype.kind == "f":
        count = int(ctx.np.ceil(abs((end - start) / step)))
    else:
        count = (abs(int(end) - int(start)) + abs(int(step)) - 1) // abs(int(step))
    steps = ctx.np.full(count, step, Start.dtype)
    steps[:1] = start
    return ctx.array(ctx.np.cumsum(steps, dtype=Start.dtype))


@range_.infer
def _(ctx: InferContext, Start: TensorMeta, End: TensorMeta, Step: TensorMeta) -> TensorMeta:
    return Start.with_shape((-1,)).with_lod_level(0)


@op("linspace", inputs="Start Stop Num", outputs="Out")
def linspace(ctx: OpContext, Start: Any, Stop: Any, Num: Any) -> Any:
    """Num numbers from Start to Stop, evenly spaced (Paddle 1.8.5 linspace_op.h).

    From Paddle 2.0 on the second half counts back from Stop, and the attribute dtype says the data type, which Start and Stop
    are converted to first (Paddle 2.6.2 linspace_kernel.cc).
    """
    count = number(ctx, Num, "Num")
    if not count > 0:
        raise ctx.error(f"Num must be positive, found {count}")
    dtype = ctx.dtype(later_attr(ctx, "dtype", None)) if ctx.op.has_attr("dtype") else Start.dtype
    exact = dtype if dtype.kind == "f" else ctx.np.dtype("float64")
    start, stop = (exact.type(dtype.type(_scalar(ctx, v, slot))) for v, slot in ((Start, "Start"), (Stop, "Stop")))
    if count == 1:
        return ctx.array([start], dtype)
    places = ctx.xp.arange(count).astype(exact)
    step = (stop - start) / exact.type(count - 1)
    out = start + step * places
    if saved_since(ctx, 2, 0) or ctx.op.has_attr("dtype"):
        half = count // 2
        out[half:] = stop - step * (exact.type(count - 1) - places[half:])
    return out.astype(dtype)


@linspace.infer
def _(ctx: InferContext, Start: TensorMeta, Stop: TensorMeta, Num: TensorMeta) -> TensorMeta:
    return TensorMeta((-1,), VarType(later_attr(ctx, "dtype", Start.dtype)))


@op(
    "eye",
    inputs="",
    outputs="Out",
    attrs={"dtype": 5, "num_rows": or_variable(required(LONG)), "num_columns": or_variable(long(-1))},
)
def eye(ctx: OpContext, *, dtype: int, num_rows: int, num_columns: int) -> Any:
    """Ones on the diagonal of a num_rows x num_columns matrix of zeros; -1 columns: as many as rows (1.8.5 eye_op.h)."""
    columns = num_rows if num_columns == -1 else num_columns
    if not (num_rows >= 0 and columns >= 0):
        raise ctx.error(f"num_rows must be at least 0 and num_columns at least -1, found {num_rows} and {num_columns}")
    return ctx.xp.eye(num_rows, columns, dtype=ctx.dtype(dtype))


@eye.infer
def _(ctx: InferContext, *, dtype: int, num_rows: int, num_columns: int) -> TensorMeta:
    return TensorMeta((num_rows, num_rows if num_columns == -1 else num_columns), VarType(dtype))


@op("logspace", inputs="Start Stop Num Base", outputs="Out", attrs={"dtype": 5})
def logspace(ctx: OpContext, Start: Any, Stop: Any, Num: Any, Base: Any, *, dtype: int) -> Any:
    """Base to the power of Num numbers evenly spaced from Start to Stop (Paddle 2.6.2 logspace_kernel.cc)."""
    count = number(ctx, Num, "Num")
    if not count > 0:
        raise ctx.error(f"Num must be positive, found {count}")
    start, stop, base = (float(_scalar(ctx, v, s)) for v, s in ((Start, "Start"), (Stop, "Stop"), (Base, "Base")))
    return ctx.array(base ** ctx.np.linspace(start, stop, count), dtype)


@logspace.infer
def _(
    ctx: InferContext, Start: TensorMeta, Stop: TensorMeta, Num: TensorMeta, Base: TensorMeta, *, dtype: int
) -> TensorMeta:
    return TensorMeta((-1,), VarType(dtype))
