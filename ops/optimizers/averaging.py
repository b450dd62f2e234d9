"""average_accumulates: running sums of a parameter, for the average over a window of steps."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import OpContext
from fluidtool.ops.optimizers.common import check_shapes, like_inputs
from fluidtool.ops.registry import op
from fluidtool.ops.schema import LONG, long, required

# After this many steps the first sum is added to the second, to keep precision for small parameters.
STEPS_IN_FIRST_SUM = 16384


@op(
    "average_accumulates",
    inputs="param in_sum_1 in_sum_2 in_sum_3 in_num_accumulates in_old_num_accumulates in_num_updates",
    outputs="out_sum_1 out_sum_2 out_sum_3 out_num_accumulates out_old_num_accumulates out_num_updates",
    attrs={"average_window": 0.0, "max_average_window": required(LONG), "min_average_window": long(10000)},
)
def average_accumulates(
    ctx: OpContext,
    param: Any,
    in_sum_1: Any,
    in_sum_2: Any,
    in_sum_3: Any,
    in_num_accumulates: Any,
    in_old_num_accumulates: Any,
    in_num_updates: Any,
    *,
    average_window: float,
    max_average_window: int,
    min_average_window: int,
) -> Any:
    """sum_1 += param; a full window moves sum_1 + sum_2 to sum_3 and starts over. The counters are int64 [1].

    The window is full after num_updates * average_window steps, at least min_ and at most max_average_window
    (Paddle 1.8.5 average_accumulates_op.h).
    """
    if min_average_window > max_average_window:
        raise ctx.error(
            f"attribute min_average_window ({min_average_window}) must not exceed max_average_window ({max_average_window})"
        )
    check_shapes(ctx, param=param, in_sum_1=in_sum_1, in_sum_2=in_sum_2, in_sum_3=in_sum_3)
    accumulated, old = _count(ctx, in_num_accumulates) + 1, _count(ctx, in_old_num_accumulates)
    updates = _count(ctx, in_num_updates) + 1
    nothing = ctx.xp.zeros_like(param)
    sum_1, sum_2, sum_3 = in_sum_1 + param, in_sum_2, in_sum_3
    if updates % STEPS_IN_FIRST_SUM == 0:
        sum_1, sum_2 = nothing, sum_2 + sum_1
    if accumulated >= min_average_window and accumulated >= min(max_average_window, int(updates * average_window)):
        sum_1, sum_2, sum_3 = nothing, nothing, sum_1 + sum_2
        old, accumulated = accumulated, 0
    return {
        "out_sum_1": sum_1,
        "out_sum_2": sum_2,
        "out_sum_3": sum_3,
        "out_num_accumulates": _as_count(ctx, accumulated),
        "out_old_num_accumulates": _as_count(ctx, old),
        "out_num_updates": _as_count(ctx, updates),
    }


def _count(ctx: OpContext, value: Any) -> int:
    return int(ctx.host(value).reshape(-1)[0])


def _as_count(ctx: OpContext, count: int) -> Any:
    return ctx.array(ctx.np.array([count], ctx.np.int64))


like_inputs(
    average_accumulates,
    out_sum_1="in_sum_1",
    out_sum_2="in_sum_2",
    out_sum_3="in_sum_3",
    out_num_accumulates="in_num_accumulates",
    out_old_num_accumulates="in_old_num_accumulates",
    out_num_updates="in_num_updates",
)
