"""Common code of activation operators: one input, one output like it, a gradient from the input or from the output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.values import require_tensor
from fluidtool.ops.registry import Kernel, OpInfo, op
from fluidtool.ops.schema import USE_CUDNN, USE_MKLDNN, TensorMeta
from fluidtool.tensor import SelectedRows

LIBRARIES: dict[str, Any] = {**USE_CUDNN, **USE_MKLDNN}
FROM_X: dict[str, Any] = {"inputs": "X Out@GRAD", "outputs": "X@GRAD", "lod": "Out@GRAD"}
FROM_OUT: dict[str, Any] = {"inputs": "Out Out@GRAD", "outputs": "X@GRAD", "lod": "Out@GRAD"}
FROM_GRAD: dict[str, Any] = {"inputs": "Out@GRAD", "outputs": "X@GRAD", "lod": "Out@GRAD"}


def activation(
    type: str, attrs: Mapping[str, Any] | None = None, *, integers: bool = False, sparse: bool = False
) -> Callable[[Kernel], OpInfo]:
    """Register `kernel(ctx, X, **attrs)` as an operator from X to Out of the same shape, data type and LoD.

    X must be floating point unless `integers`; `sparse` lets it be SelectedRows, whose rows are computed on.
    """

    def register(kernel: Kernel) -> OpInfo:
        @wraps(kernel)
        def checked(ctx: OpContext, X: Any, **values: Any) -> Any:
            if isinstance(X, SelectedRows) and sparse:
                return SelectedRows(X.row_ids, X.table_height, checked(ctx, X.value, **values))
            require_tensor(ctx, "X", X)
            if X.dtype.kind in "iub" and not integers:
                raise ctx.error(f"X must be floating point, found {X.dtype}; insert a cast")
            return kernel(ctx, X, **values)

        info = op(type, inputs="X", outputs="Out", attrs=attrs or {}, lod="X")(checked)
        info.infer(like_x)
        return info

    return register


def like_x(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    """Inference of an output with the metadata of X."""
    return X


def clipped(ctx: OpContext, x: Any, low: float, high: float) -> Any:
    """x clipped to low … high, in its data type."""
    return ctx.xp.clip(x, x.dtype.type(low), x.dtype.type(high))
