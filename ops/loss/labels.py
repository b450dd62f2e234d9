"""Labels that are class numbers: checking them, and reading one value per label."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import OpContext


def check_classes(
    ctx: OpContext, labels: Any, classes: int, ignore_index: int | None = None, slot: str = "Label"
) -> Any:
    """Where `labels` count (are not `ignore_index`); fails when one of them is not in [0, classes)."""
    if labels.dtype.kind not in "iu":
        raise ctx.error(f"input {slot} must hold class numbers (int64), found {labels.dtype}; cast it to int64")
    allowed = "" if ignore_index is None else f" or ignore_index ({ignore_index})"
    ctx.require_within(
        labels,
        classes,
        lambda found: (
            f"input {slot} holds class {found}, expected 0 to {classes - 1}{allowed}; "
            "correct the labels or the number of classes"
        ),
        ignored=ignore_index,
    )
    return ctx.xp.ones(labels.shape, bool) if ignore_index is None else labels != ignore_index


def pick(ctx: OpContext, values: Any, labels: Any, counted: Any, axis: int) -> Any:
    """values[..., label, ...] along `axis`, where `labels` have size 1; class 0 where a label does not count."""
    return ctx.xp.take_along_axis(values, ctx.xp.where(counted, labels, 0), axis)


def spread(ctx: OpContext, values: Any, labels: Any, counted: Any, classes: int) -> Any:
    """Zeros, and `values` at the labels that count; all of size 1 along the last axis, of which the result has `classes`."""
    xp = ctx.xp
    out = xp.zeros((*labels.shape[:-1], classes), values.dtype)
    rows = out.reshape(-1, classes)
    rows[xp.arange(len(rows)), xp.where(counted, labels, 0).reshape(-1)] = xp.where(counted, values, 0).reshape(-1)
    return out


def one_hot(ctx: OpContext, labels: Any, counted: Any, classes: int, axis: int) -> Any:
    """True at the class of each label that counts; `labels` have size 1 along `axis`, the result has `classes`."""
    shape = [1] * labels.ndim
    shape[axis] = classes
    return (labels == ctx.xp.arange(classes, dtype=labels.dtype).reshape(shape)) & counted


def finite(ctx: OpContext, values: Any) -> Any:
    """Infinities become ±1e20, as in Paddle's losses (TolerableValue); NaN stays."""
    xp = ctx.xp
    limit = 1e20 if values.dtype.itemsize > 2 else 65504.0
    return xp.where(xp.isinf(values), xp.copysign(values.dtype.type(limit), values), values)
