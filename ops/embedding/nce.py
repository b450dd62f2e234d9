"""nce: noise-contrastive estimation, the true classes against sampled ones."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.distributed.tables import rows_of, table_shape
from fluidtool.ops.embedding.rows import add_rows, merge_rows
from fluidtool.ops.embedding.samplers import (
    CUSTOM,
    LOG_UNIFORM,
    CustomSampler,
    LogUniformSampler,
    Sampler,
    UniformSampler,
)
from fluidtool.ops.loss.binary import sigmoid
from fluidtool.ops.loss.labels import check_classes
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, TensorMeta, ints, longs, required, strings
from fluidtool.ops.traits import Traits
from fluidtool.proto.enums import VarType
from fluidtool.tensor import SelectedRows


def _sampler(ctx: OpContext, probabilities: Any, alias: Any, stay: Any) -> Sampler:
    kind, classes = ctx.attr("sampler"), ctx.attr("num_total_classes")
    if kind not in (0, 1, 2):
        raise ctx.error(f"attribute sampler must be 0 (uniform), 1 (log-uniform) or 2 (custom), found {kind}")
    if kind == LOG_UNIFORM:
        return LogUniformSampler(ctx.np, classes - 1)
    if kind != CUSTOM:
        return UniformSampler(classes)
    tables = {"CustomDistProbs": probabilities, "CustomDistAlias": alias, "CustomDistAliasProbs": stay}
    for slot, table in tables.items():
        if table is None or table.size != classes:
            raise ctx.error(
                f"sampler 2 (custom) needs the input {slot} with one number per class ({classes}), "
                f"found {'none' if table is None else table.shape}"
            )
    return CustomSampler(*(ctx.host(table).reshape(-1) for table in tables.values()))


@op(
    "nce",
    inputs="Input Label Weight Bias? SampleWeight? CustomDistProbs? CustomDistAlias? CustomDistAliasProbs?",
    outputs="Cost SampleLogits~ SampleLabels~",
    attrs={
        "num_total_classes": required(INT),
        "num_neg_samples": 10,
        "sampler": 0,
        "seed": 0,
        "is_sparse": False,
        "remote_prefetch": False,
        "trainer_id": 0,
        "height_sections": longs(),
        "epmap": strings(),
        "table_names": strings(),
        "custom_neg_classes": ints(),
    },
    random=True,
    traits=Traits(table="Weight"),
)
def nce(
    ctx: OpContext,
    Input: Any,
    Label: Any,
    Weight: Any,
    Bias: Any,
    SampleWeight: Any,
    CustomDistProbs: Any,
    CustomDistAlias: Any,
    CustomDistAliasProbs: Any,
    *,
    num_total_classes: int,
    num_neg_samples: int,
    seed: int,
    custom_neg_classes: list[int],
) -> Any:
    """Cost [N, 1] = weight * (sum over true classes of -log(o / (o + b)) + sum over drawn ones of -log(b / (o + b))).

    o = sigmoid(x · w + bias) is SampleLogits, b = num_neg_samples * the sampler's probability. Input [N, D], Label
    [N, true classes], Weight [classes, D]; custom_neg_classes stand for drawn ones (Paddle 1.8.5 nce_op.h).
    """
    labels = Label.reshape(len(Label), -1)
    if len(labels) != len(Input):
        raise ctx.error(f"Input and Label must have one row per sample: {Input.shape}, {Label.shape}")
    check_classes(ctx, labels, num_total_classes)
    sampler = _sampler(ctx, CustomDistProbs, CustomDistAlias, CustomDistAliasProbs)
    negatives = ctx.np.array([custom_neg_classes] * len(labels), ctx.np.int64)
    if not custom_neg_classes:
        negatives = sampler.draw(ctx.generator(seed), (len(labels), num_neg_samples))
    samples = ctx.xp.concatenate([labels, ctx.array(negatives).reshape(len(labels), -1)], axis=1)
    logits = ctx.xp.matmul(rows_of(ctx, Weight, samples), Input[:, :, None])[..., 0]
    if Bias is not None:
        logits = logits + Bias.reshape(-1)[samples]
    out = sigmoid(ctx, logits)
    noise = (sampler.probability(ctx.xp, samples) * num_neg_samples).astype(out.dtype)
    true = ctx.xp.arange(samples.shape[1]) < labels.shape[1]
    costs = -ctx.xp.log(ctx.xp.where(true, out, noise) / (out + noise))
    if SampleWeight is not None:
        costs = costs * SampleWeight.reshape(-1, 1)
    return {"Cost": costs.sum(axis=1, keepdims=True), "SampleLogits": out, "SampleLabels": samples}


@nce.infer
def _(
    ctx: InferContext,
    Input: TensorMeta,
    Label: TensorMeta,
    Weight: TensorMeta,
    Bias: TensorMeta | None,
    SampleWeight: TensorMeta | None,
    CustomDistProbs: TensorMeta | None,
    CustomDistAlias: TensorMeta | None,
    CustomDistAliasProbs: TensorMeta | None,
    *,
    num_neg_samples: int,
    custom_neg_classes: list[int],
) -> dict[str, TensorMeta]:
    if custom_neg_classes and len(custom_neg_classes) != num_neg_samples:
        raise ctx.error(
            f"custom_neg_classes must be num_neg_samples={num_neg_samples} classes, found {len(custom_neg_classes)}"
        )
    true = Label.shape[1] if Label.rank == 2 else 1
    samples = (Label.shape[0], true + num_neg_samples if true >= 0 else -1)
    return {
        "Cost": TensorMeta((Input.shape[0], 1), Input.dtype),
        "SampleLogits": TensorMeta(samples, Input.dtype),
        "SampleLabels": TensorMeta(samples, VarType.INT64),
    }


@nce.grad(
    inputs="Input Label Weight Bias? SampleWeight? CustomDistProbs? CustomDistAlias? CustomDistAliasProbs? SampleLogits "
    "SampleLabels Cost@GRAD",
    outputs="Input@GRAD Weight@GRAD Bias@GRAD?",
)
def nce_grad(
    ctx: OpContext,
    Input: Any,
    Label: Any,
    Weight: Any,
    Bias: Any,
    SampleWeight: Any,
    CustomDistProbs: Any,
    CustomDistAlias: Any,
    CustomDistAliasProbs: Any,
    SampleLogits: Any,
    SampleLabels: Any,
    Cost_grad: Any,
    *,
    num_neg_samples: int,
    is_sparse: bool,
) -> Any:
    """Gradients of the cost through each logit; W@GRAD is SelectedRows of the classes that occurred when is_sparse."""
    sampler = _sampler(ctx, CustomDistProbs, CustomDistAlias, CustomDistAliasProbs)
    out, xp = SampleLogits, ctx.xp
    noise = (sampler.probability(xp, SampleLabels) * num_neg_samples).astype(out.dtype)
    true_classes = Label.size // max(len(Label), 1)
    true = xp.arange(out.shape[1]) < true_classes
    slope = xp.where(true, noise * (out - 1), out * (1 - out)) / (out + noise) * Cost_grad.reshape(-1, 1)
    if SampleWeight is not None:
        slope = slope * SampleWeight.reshape(-1, 1)
    samples, width = SampleLabels.reshape(-1), Input.shape[1]
    results: dict[str, Any] = {"Input@GRAD": xp.matmul(slope[:, None], rows_of(ctx, Weight, SampleLabels))[:, 0]}
    if ctx.wants("Bias@GRAD"):
        results["Bias@GRAD"] = add_rows(ctx, Bias.size, samples, slope.reshape(-1)).reshape(Bias.shape)
    if ctx.wants("Weight@GRAD"):
        values = (slope[..., None] * Input[:, None, :]).reshape(-1, width)
        results["Weight@GRAD"] = weight_gradient(ctx, table_shape(Weight)[0], samples, values, is_sparse)
    return results


def weight_gradient(ctx: OpContext, height: int, rows: Any, values: Any, is_sparse: bool) -> Any:
    """The values added up per row: SelectedRows of the rows that occur when is_sparse, else all rows."""
    if not is_sparse:
        return add_rows(ctx, height, rows, values)
    unique, sums = merge_rows(ctx, ctx.host(rows), values)
    return SelectedRows(unique, height, sums)


@nce_grad.infer
def _(
    ctx: InferContext,
    Input: TensorMeta,
    Label: TensorMeta,
    Weight: TensorMeta,
    Bias: TensorMeta | None,
    SampleWeight: TensorMeta | None,
    CustomDistProbs: TensorMeta | None,
    CustomDistAlias: TensorMeta | None,
    CustomDistAliasProbs: TensorMeta | None,
    SampleLogits: TensorMeta,
    SampleLabels: TensorMeta,
    Cost_grad: TensorMeta,
    *,
    is_sparse: bool,
) -> dict[str, TensorMeta]:
    kind = VarType.SELECTED_ROWS if is_sparse else VarType.LOD_TENSOR
    metas = {"Input@GRAD": Input, "Weight@GRAD": TensorMeta(Weight.shape, Weight.dtype, 0, kind)}
    return metas if Bias is None else metas | {"Bias@GRAD": Bias}
