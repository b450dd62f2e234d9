"""accuracy: the share of samples whose label is among the classes predicted for them."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.versions import saved_since, scalar_shape
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text


@op("accuracy", inputs="Out Indices Label", outputs="Accuracy Correct Total", lod="Out->Accuracy")
def accuracy(ctx: OpContext, Out: Any, Indices: Any, Label: Any) -> Any:
    """Correct = samples with Label in their row of Indices, Total = all, Accuracy = their ratio; each [1], from Paddle 2.5 on [].

    Indices [N, k] of top_k, Label [N, 1] integers; Accuracy is float32, the counts int32 (Paddle 1.8.5 accuracy_op.h).
    """
    if Indices.ndim != 2 or Label.size != len(Indices):
        raise ctx.error(
            f"inputs Indices (N, k) and Label (N, 1) must agree in N, found {Indices.shape} and {Label.shape}"
        )
    xp, total, one = ctx.xp, len(Indices), scalar_shape(ctx)
    correct = (Indices == Label.reshape(-1, 1)).any(axis=1).sum()
    return {
        "Accuracy": (correct / max(total, 1)).astype(xp.float32).reshape(one),
        "Correct": correct.astype(xp.int32).reshape(one),
        "Total": xp.full(one, total, xp.int32),
    }


@accuracy.infer
def _(ctx: InferContext, Out: TensorMeta, Indices: TensorMeta, Label: TensorMeta) -> dict[str, TensorMeta]:
    if not saved_since(ctx, 2, 0) and not (Label.rank == 2 and Label.shape[1] in (1, -1)):
        raise ctx.error(f"Label must have the shape (samples, 1), found {shape_text(Label.shape)}")
    one = scalar_shape(ctx)
    count = TensorMeta(one, VarType.INT32)
    return {"Accuracy": TensorMeta(one, VarType.FP32), "Correct": count, "Total": count}
