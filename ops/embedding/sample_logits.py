"""sample_logits: the logits of the true classes and of sampled ones, corrected for how often these are drawn."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.embedding.samplers import LogUniformSampler
from fluidtool.ops.loss.labels import check_classes, finite
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, TensorMeta, required
from fluidtool.proto.enums import VarType
from fluidtool.tensor import LoDTensor


@op(
    "sample_logits",
    inputs="Logits Labels CustomizedSamples? CustomizedProbabilities?",
    outputs="Samples~ Probabilities~ LogitsDim~ LabelsDim~ SampledLogits~ SampledLabels",
    attrs={
        "use_customized_samples": False,
        "uniq": True,
        "remove_accidental_hits": True,
        "num_samples": required(INT),
        "seed": 0,
    },
    random=True,
)
def sample_logits(
    ctx: OpContext,
    Logits: Any,
    Labels: Any,
    CustomizedSamples: Any,
    CustomizedProbabilities: Any,
    *,
    use_customized_samples: bool,
    remove_accidental_hits: bool,
    num_samples: int,
    seed: int,
) -> Any:
    """SampledLogits [N, T + S] = logits of the T true and S drawn classes - log(probability).

    Drawn classes are the same for every row, each once, by a log-uniform distribution; they are Samples, or
    CustomizedSamples. remove_accidental_hits lowers drawn true classes by 1e20. SampledLabels [N, T] = 0 … T - 1
    (Paddle 1.8.5 sample_logits_op.h).
    """
    xp, (rows, classes) = ctx.xp, Logits.shape
    check_classes(ctx, Labels, classes, slot="Labels")
    if use_customized_samples:
        if CustomizedSamples is None or CustomizedProbabilities is None:
            raise ctx.error(
                "use_customized_samples=True needs the inputs CustomizedSamples and CustomizedProbabilities"
            )
        samples, probabilities = CustomizedSamples, CustomizedProbabilities
        check_classes(ctx, samples, classes, slot="CustomizedSamples")
    else:
        samples, probabilities = _drawn(ctx, Labels, classes, num_samples, seed, Logits.dtype)
    sampled = xp.take_along_axis(Logits, samples, 1)
    true = Labels.shape[1]
    if remove_accidental_hits:
        hits = (samples[:, true:, None] == samples[:, None, :true]).any(axis=-1)
        sampled[:, true:] -= hits.astype(sampled.dtype) * sampled.dtype.type(1e20)
    return {
        "Samples": samples,
        "Probabilities": probabilities,
        "LogitsDim": ctx.dims_only((*Logits.shape, 0)),
        "LabelsDim": ctx.dims_only((*Labels.shape, 0)),
        "SampledLogits": finite(ctx, sampled - finite(ctx, xp.log(probabilities))),
        "SampledLabels": xp.tile(xp.arange(true, dtype=xp.int64), (rows, 1)),
    }


def _drawn(ctx: OpContext, labels: Any, classes: int, count: int, seed: int, dtype: Any) -> tuple[Any, Any]:
    """True and drawn classes per row, and how likely each is to be among them."""
    xp, sampler = ctx.xp, LogUniformSampler(ctx.np, classes)
    if not 0 < count <= classes:
        raise ctx.error(f"num_samples must be between 1 and the {classes} classes, found {count}")
    negatives, tries = _distinct(ctx, sampler, count, seed)
    drawn = xp.broadcast_to(ctx.array(negatives), (len(labels), count))
    samples = xp.concatenate([labels, drawn], axis=1)
    single = sampler.probability(xp, samples).astype(dtype)
    return samples, single * count if tries == count else -xp.expm1(tries * xp.log1p(-single))


def _distinct(ctx: OpContext, sampler: LogUniformSampler, count: int, seed: int) -> tuple[Any, int]:
    """Draw until `count` different classes came up: these in order, and the number of draws."""
    np, generator = ctx.np, ctx.generator(seed)
    draws = np.zeros(0, np.int64)
    while True:
        draws = np.concatenate([draws, sampler.draw(generator, (2 * count,))])
        first = np.sort(np.unique(draws, return_index=True)[1])
        if len(first) >= count:
            return draws[first[:count]], int(first[count - 1]) + 1


@sample_logits.infer
def _(
    ctx: InferContext,
    Logits: TensorMeta,
    Labels: TensorMeta,
    CustomizedSamples: TensorMeta | None,
    CustomizedProbabilities: TensorMeta | None,
    *,
    num_samples: int,
) -> dict[str, TensorMeta]:
    if Logits.rank != 2 or Labels.rank != 2:
        raise ctx.error(
            f"inputs Logits (N, classes) and Labels (N, T) must have two dimensions, found {Logits.shape}, {Labels.shape}"
        )
    both = (Labels.shape[0], Labels.shape[1] + num_samples)
    return {
        "Samples": TensorMeta(both, VarType.INT64),
        "Probabilities": TensorMeta(both, Logits.dtype),
        "LogitsDim": TensorMeta((*Logits.shape, 0), Logits.dtype),
        "LabelsDim": TensorMeta((*Labels.shape, 0), ctx.declared_dtype("LabelsDim", Labels.dtype)),
        "SampledLogits": TensorMeta(both, Logits.dtype),
        "SampledLabels": TensorMeta(Labels.shape, VarType.INT64),
    }


@sample_logits.grad(inputs="Samples LogitsDim LabelsDim SampledLogits@GRAD", outputs="Logits@GRAD")
def sample_logits_grad(ctx: OpContext, Samples: Any, LogitsDim: Any, LabelsDim: Any, SampledLogits_grad: Any) -> Any:
    """dLogits = the gradients of the sampled logits, added up where a class was sampled twice."""
    shape = LogitsDim.shape() if isinstance(LogitsDim, LoDTensor) else LogitsDim.shape
    out = ctx.xp.zeros(tuple(shape[:2]), SampledLogits_grad.dtype)
    ctx.add_at(out, (ctx.xp.arange(len(out))[:, None], Samples), SampledLogits_grad)
    return out


@sample_logits_grad.infer
def _(
    ctx: InferContext, Samples: TensorMeta, LogitsDim: TensorMeta, LabelsDim: TensorMeta, SampledLogits_grad: TensorMeta
) -> TensorMeta:
    return TensorMeta(LogitsDim.shape[:2], SampledLogits_grad.dtype)
