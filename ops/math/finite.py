"""Questions about a whole tensor: infinite, NaN, empty; and their elementwise forms of Paddle 2.x."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.versions import scalar_shape
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.proto.enums import VarType
from fluidtool.tensor import SelectedRows


@op("isfinite", inputs="X", outputs="Out")
def isfinite(ctx: OpContext, X: Any) -> Any:
    """Whether all numbers of X (tensor or SelectedRows) are finite; one bool (isfinite_op.cc)."""
    return ctx.xp.isfinite(_numbers(X)).all().reshape(1)


@op("isinf", inputs="X", outputs="Out")
def isinf(ctx: OpContext, X: Any) -> Any:
    """Whether any number of X (tensor or SelectedRows) is infinite; one bool."""
    return ctx.xp.isinf(_numbers(X)).any().reshape(1)


@op("isnan", inputs="X", outputs="Out")
def isnan(ctx: OpContext, X: Any) -> Any:
    """Whether any number of X (tensor or SelectedRows) is NaN; one bool."""
    return ctx.xp.isnan(_numbers(X)).any().reshape(1)


def _numbers(X: Any) -> Any:
    return X.value if isinstance(X, SelectedRows) else X


@op("isfinite_v2", inputs="X", outputs="Out")
def isfinite_v2(ctx: OpContext, X: Any) -> Any:
    """Whether each number of X is finite, as bool (Paddle 2.x)."""
    return ctx.xp.isfinite(X)


@op("isinf_v2", inputs="X", outputs="Out")
def isinf_v2(ctx: OpContext, X: Any) -> Any:
    """Whether each number of X is infinite, as bool (Paddle 2.x)."""
    return ctx.xp.isinf(X)


@op("isnan_v2", inputs="X", outputs="Out")
def isnan_v2(ctx: OpContext, X: Any) -> Any:
    """Whether each number of X is NaN, as bool (Paddle 2.x)."""
    return ctx.xp.isnan(X)


@op("is_empty", inputs="X", outputs="Out")
def is_empty(ctx: OpContext, X: Any) -> Any:
    """Whether X has no elements; one bool (is_empty_op.cc)."""
    return ctx.xp.full(scalar_shape(ctx), X.size == 0)


@is_empty.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return TensorMeta(scalar_shape(ctx), VarType.BOOL)


def _one_bool(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return TensorMeta((1,), VarType.BOOL)


def _bools(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return X.with_dtype(VarType.BOOL)


for _info in (isfinite, isinf, isnan):
    _info.infer(_one_bool)
for _info in (isfinite_v2, isinf_v2, isnan_v2):
    _info.infer(_bools)
