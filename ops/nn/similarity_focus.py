"""similarity_focus: mark, slice by slice, the largest cells that share no row and no column."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.nn.precision import require_rank
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, INTS, TensorMeta, required


@op(
    "similarity_focus",
    inputs="X",
    outputs="Out",
    attrs={"axis": required(INT), "indexes": required(INTS)},
    lod="X",
)
def similarity_focus(ctx: OpContext, X: Any, *, axis: int, indexes: list[int]) -> Any:
    """Ones along `axis` through the cells chosen in the slices `indexes` of X (4 dimensions), zeros elsewhere.

    In each slice the largest cell is taken, then the largest one in no row or column taken before, and so on (Paddle 1.8.5
    similarity_focus_op.h). The choice is sequential and runs on the host.
    """
    require_rank(ctx, "X", X, 4)
    if axis not in (1, 2, 3):
        raise ctx.error(f"attribute axis must be 1, 2 or 3, found {axis}")
    if not (bool(indexes) and all(0 <= index < X.shape[axis] for index in indexes)):
        raise ctx.error(f"attribute indexes must be indexes of axis {axis} of X {X.shape}, found {indexes}")
    x = ctx.np.moveaxis(ctx.host(X), axis, 1)
    focus = ctx.np.zeros((len(x), 1, *x.shape[2:]), dtype=X.dtype)
    for image, marks in zip(x, focus[:, 0], strict=True):
        for index in indexes:
            for row, column in _greedy(ctx.np, image[index]):
                marks[row, column] = 1
    return ctx.array(ctx.np.moveaxis(ctx.np.broadcast_to(focus, x.shape), 1, axis).copy())


def _greedy(np: Any, cells: Any) -> list[tuple[int, int]]:
    """The cells taken, largest first; equal ones in row-major order."""
    rows, columns, taken = set(range(cells.shape[0])), set(range(cells.shape[1])), []
    for flat in np.argsort(-cells.reshape(-1), kind="stable"):
        row, column = divmod(int(flat), cells.shape[1])
        if row in rows and column in columns:
            taken.append((row, column))
            rows.discard(row)
            columns.discard(column)
            if not rows or not columns:
                break
    return taken


@similarity_focus.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    if X.rank != 4:
        raise ctx.error(f"input X must have 4 dimensions, found shape {X.shape}")
    return X
