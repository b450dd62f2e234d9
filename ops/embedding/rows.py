"""Work on the rows of SelectedRows, shared by tables, sampled losses and optimizers."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import OpContext
from fluidtool.tensor import SelectedRows


def merge_rows(ctx: OpContext, rows: Any, values: Any) -> tuple[Any, Any]:
    """Row numbers (on the host) ascending and once each, and the sums of the values of equal rows."""
    if (rows[1:] > rows[:-1]).all():
        return rows, values
    unique, inverse = ctx.np.unique(rows, return_inverse=True)
    return unique, add_rows(ctx, len(unique), inverse, values)


def add_rows(ctx: OpContext, height: int, rows: Any, values: Any) -> Any:
    """An array of `height` rows: each is the sum of the values that go there."""
    out = ctx.xp.zeros((height, *values.shape[1:]), values.dtype)
    ctx.add_rows(out, ctx.array(rows), values)
    return out


def check_rows(ctx: OpContext, selected: SelectedRows, slot: str, height: int | None = None) -> None:
    """Fail unless there is one value per row number, and each number is a row of the table."""
    rows, value = selected.row_ids, selected.value
    height = selected.table_height if height is None else height
    if len(rows) != len(value):
        raise ctx.error(
            f"{slot} (SelectedRows) must have one value per row, found {len(rows)} rows and values of shape {value.shape}"
        )
    if len(rows) and not (rows.min() >= 0 and rows.max() < height):
        wrong = rows.min() if rows.min() < 0 else rows.max()
        raise ctx.error(
            f"{slot} (SelectedRows) names row {int(wrong)}, but the table has {height} rows, 0 to {height - 1}"
        )


def find_rows(ctx: OpContext, table: SelectedRows, ids: Any) -> Any:
    """Where the ids (on the host, any shape) are stored in `table`; -1 for ids that it does not hold."""
    np = ctx.np
    if not len(table.row_ids):
        return np.full(ids.shape, -1, np.int64)
    order = np.argsort(table.row_ids, kind="stable")
    found = np.searchsorted(table.row_ids, ids, sorter=order).clip(max=len(order) - 1)
    places = order[found]
    return np.where(table.row_ids[places] == ids, places, -1)
