"""hierarchical_sigmoid: classes as leaves of a binary tree, a sigmoid at every node on the way to them."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.distributed.tables import rows_of, table_shape
from fluidtool.ops.embedding.nce import weight_gradient
from fluidtool.ops.embedding.rows import add_rows
from fluidtool.ops.loss.labels import check_classes
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta, longs, strings
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass

LARGEST_LOGIT = 40.0


@dataclass(frozen=True, slots=True)
class Paths:
    """The way of each sample: row of the weights, bit, and whether the node exists, each [N, longest path]."""

    rows: Any
    bits: Any
    valid: Any


def _paths(ctx: OpContext, W: Any, Label: Any, PathTable: Any, PathCode: Any, num_classes: int) -> Paths:
    """Given paths, or those of a complete tree: class c is node c + num_classes, its ancestors are the halves of that."""
    xp = ctx.xp
    if PathTable is not None:
        if PathCode is None or PathCode.shape != PathTable.shape:
            raise ctx.error(
                f"inputs PathTable and PathCode must have the same shape, found {PathTable.shape} and "
                f"{None if PathCode is None else PathCode.shape}"
            )
        valid = xp.cumsum(PathTable < 0, axis=1) == 0
        rows, bits = xp.where(valid, PathTable, 0), (PathCode != 0) & valid
    else:
        if num_classes < 2:
            raise ctx.error(f"attribute num_classes must be at least 2, found {num_classes}")
        labels = Label.reshape(-1, 1)
        check_classes(ctx, labels, num_classes)
        depth = xp.arange((num_classes - 1).bit_length())
        nodes = labels + num_classes
        rows, bits = (nodes >> (depth + 1)) - 1, (nodes >> depth) & 1 == 1
        valid = rows >= 0
        rows, bits = xp.where(valid, rows, 0), bits & valid
    height = table_shape(W)[0]
    if rows.size and int(rows.max()) >= height:
        raise ctx.error(
            f"a path goes to row {int(rows.max())}, but W has {height} rows; check num_classes and PathTable"
        )
    return Paths(rows, bits, valid)


@op(
    "hierarchical_sigmoid",
    inputs="X W Label PathTable? PathCode? Bias?",
    outputs="Out PreOut~ W_Out~",
    attrs={
        "num_classes": 2,
        "remote_prefetch": False,
        "trainer_id": 0,
        "height_sections": longs(),
        "epmap": strings(),
        "table_names": strings(),
        "is_sparse": False,
    },
    lod="X->Out",
)
def hierarchical_sigmoid(
    ctx: OpContext, X: Any, W: Any, Label: Any, PathTable: Any, PathCode: Any, Bias: Any, *, num_classes: int
) -> Any:
    """Out [N, 1] = sum over the path of log(1 + exp(z)) - bit * z, z = x · w + bias clipped to ±40.

    X [N, D], W [inner nodes, D], Label [N, 1]; PathTable and PathCode [N, longest path] give the nodes and bits of a
    custom tree, ended by a negative node. Places after a path's end add log 2, as in Paddle (1.8.5
    hierarchical_sigmoid_op.h).
    """
    xp, paths = ctx.xp, _paths(ctx, W, Label, PathTable, PathCode, num_classes)
    if len(paths.rows) != len(X):
        raise ctx.error(f"X and Label must have one row per sample, found {X.shape}, {Label.shape}")
    logits = xp.matmul(rows_of(ctx, W, paths.rows), X[:, :, None])[..., 0]
    if Bias is not None:
        logits = logits + Bias.reshape(-1)[paths.rows]
    logits = xp.clip(xp.where(paths.valid, logits, X.dtype.type(0)), -LARGEST_LOGIT, LARGEST_LOGIT)
    pre_out = xp.log(1 + xp.exp(logits))
    return {"Out": (pre_out - paths.bits * logits).sum(axis=1, keepdims=True), "PreOut": pre_out}


@hierarchical_sigmoid.infer
def _(
    ctx: InferContext,
    X: TensorMeta,
    W: TensorMeta,
    Label: TensorMeta,
    PathTable: TensorMeta | None,
    PathCode: TensorMeta | None,
    Bias: TensorMeta | None,
    *,
    num_classes: int,
) -> dict[str, TensorMeta]:
    length = (num_classes - 1).bit_length() if PathTable is None else PathTable.shape[1]
    return {"Out": TensorMeta((X.shape[0], 1), X.dtype), "PreOut": TensorMeta((X.shape[0], length), X.dtype)}


@hierarchical_sigmoid.grad(
    inputs="X W Label PathTable? PathCode? Bias? PreOut Out@GRAD",
    outputs="X@GRAD W@GRAD Bias@GRAD?",
    lod="X->X@GRAD",
)
def hierarchical_sigmoid_grad(
    ctx: OpContext,
    X: Any,
    W: Any,
    Label: Any,
    PathTable: Any,
    PathCode: Any,
    Bias: Any,
    PreOut: Any,
    Out_grad: Any,
    *,
    num_classes: int,
    is_sparse: bool,
) -> Any:
    """dz = dOut * (sigmoid(z) - bit) along each path; W@GRAD is SelectedRows of the nodes in PathTable when is_sparse."""
    xp, paths = ctx.xp, _paths(ctx, W, Label, PathTable, PathCode, num_classes)
    slope = (1 - xp.exp(-PreOut) - paths.bits) * Out_grad.reshape(-1, 1)
    slope = xp.where(paths.valid, slope, slope.dtype.type(0))
    results: dict[str, Any] = {"X@GRAD": xp.matmul(slope[:, None], rows_of(ctx, W, paths.rows))[:, 0]}
    rows = paths.rows.reshape(-1)
    if ctx.wants("Bias@GRAD"):
        if Bias is None:
            raise ctx.error("Bias@GRAD is requested, but the input Bias is missing")
        results["Bias@GRAD"] = add_rows(ctx, Bias.size, rows, slope.reshape(-1)).reshape(Bias.shape)
    if ctx.wants("W@GRAD"):
        if is_sparse and PathTable is None:
            raise ctx.error("is_sparse=True needs a custom tree: pass PathTable and PathCode")
        values = (slope[..., None] * X[:, None, :]).reshape(-1, X.shape[1])
        on_path = paths.valid.reshape(-1)
        results["W@GRAD"] = weight_gradient(ctx, table_shape(W)[0], rows[on_path], values[on_path], is_sparse)
    return results


@hierarchical_sigmoid_grad.infer
def _(
    ctx: InferContext,
    X: TensorMeta,
    W: TensorMeta,
    Label: TensorMeta,
    PathTable: TensorMeta | None,
    PathCode: TensorMeta | None,
    Bias: TensorMeta | None,
    PreOut: TensorMeta,
    Out_grad: TensorMeta,
    *,
    is_sparse: bool,
) -> dict[str, TensorMeta]:
    kind = VarType.SELECTED_ROWS if is_sparse else VarType.LOD_TENSOR
    metas = {"X@GRAD": X, "W@GRAD": TensorMeta(W.shape, W.dtype, 0, kind)}
    return metas if Bias is None else metas | {"Bias@GRAD": Bias}
