"""linear_chain_crf: the negative log-likelihood of tag sequences under a conditional random field."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.rnn.packing import Packing
from fluidtool.ops.schema import TensorMeta
from fluidtool.ops.structured.sequences import check_crf_shapes, pack_tagged

START, END, BETWEEN = 0, 1, 2


@op(
    "linear_chain_crf",
    inputs="Emission Transition Label Length?",
    outputs="Alpha~ EmissionExps~ TransitionExps~ LogLikelihood",
)
def linear_chain_crf(ctx: OpContext, Emission: Any, Transition: Any, Label: Any, Length: Any) -> dict[str, Any]:
    """LogLikelihood [sequences, 1] = -log p(Label | Emission), 0 for an empty sequence.

    Emission [rows, tags] and Label [rows, 1] with the LoD of Label, or [N, longest, tags] and [N, longest, 1] with
    Length. Rows 0 and 1 of Transition [tags + 2, tags] weigh the first and the last tag, row i + 2 what follows tag i.
    Alpha are the normalized forward scores, EmissionExps = exp(Emission - row maximum) (Paddle 1.8.5
    linear_chain_crf_op.h).
    """
    xp = ctx.xp
    tags = check_crf_shapes(ctx, Emission, Transition, Length)
    packing = pack_tagged(ctx, Emission, Length, "Label")
    flat = Emission.reshape(-1, tags)
    labels = packed_labels(ctx, packing, Label, len(flat), tags)
    highest = flat.max(axis=1, keepdims=True) if flat.size else xp.zeros((len(flat), 1), dtype=flat.dtype)
    emission_exps, transition_exps = xp.exp(flat - highest), xp.exp(Transition)
    alpha, scale = _forward_scores(xp, packing, packing.pack(emission_exps), transition_exps)
    row_cost = packing.pack(highest[:, 0]) + xp.log(scale) - packing.pack(flat)[xp.arange(len(labels)), labels]
    first = packing.first
    row_cost[:first] -= Transition[START][labels[:first]]
    row_cost[first:] -= Transition[BETWEEN + labels[packing.previous_index], labels[first:]]
    cost = _sum_by_sequence(xp, packing, row_cost)
    last = packing.last_index
    ending = (alpha[last] * transition_exps[END]).sum(axis=1)
    cost[: len(last)] += xp.log(ending) - Transition[END][labels[last]]
    positive = bool((scale > 0).all()) and bool((ending > 0).all())
    if not positive:
        raise ctx.error("the score of every path underflows to 0: the values of Emission and Transition are too low")
    return {
        "Alpha": packing.unpack(xp, alpha, len(flat)).reshape(Emission.shape),
        "EmissionExps": emission_exps.reshape(Emission.shape),
        "TransitionExps": transition_exps,
        "LogLikelihood": packing.unordered(xp, cost)[:, None],
    }


def packed_labels(ctx: OpContext, packing: Packing, Label: Any, rows: int, tags: int) -> Any:
    """Label as packed tag numbers; raises OperatorError for another number of rows or a tag out of range."""
    if Label.size != rows:
        raise ctx.error(f"input Label must have one tag per row of Emission ({rows}), found {Label.shape}")
    labels = packing.pack(Label.reshape(-1))
    if labels.size and not bool(((labels >= 0) & (labels < tags)).all()):
        raise ctx.error(
            f"input Label must hold tags from 0 to {tags - 1}, found {int(labels.min())} to {int(labels.max())}"
        )
    return labels


def _sum_by_sequence(xp: Any, packing: Packing, rows: Any) -> Any:
    sums = xp.zeros(len(packing.order), dtype=rows.dtype)
    for begin, end, _ in packing.steps():
        sums[: end - begin] += rows[begin:end]
    return sums


def _forward_scores(xp: Any, packing: Packing, emission_exps: Any, transition_exps: Any) -> tuple[Any, Any]:
    """Forward scores, each row normalized to sum 1, and the sums [rows] before that; all packed."""
    alpha = xp.empty_like(emission_exps)
    scale = xp.empty(len(alpha), dtype=alpha.dtype)
    for begin, end, before in packing.steps():
        coming = (
            transition_exps[START] if before < 0 else alpha[before : before + end - begin] @ transition_exps[BETWEEN:]
        )
        rows = emission_exps[begin:end] * coming
        scale[begin:end] = rows.sum(axis=1)
        alpha[begin:end] = rows / scale[begin:end, None]
    return alpha, scale


def _backward_scores(xp: Any, packing: Packing, emission_exps: Any, transition_exps: Any) -> Any:
    """Backward scores, each row normalized to sum 1; packed."""
    beta = xp.empty_like(emission_exps)
    ahead = xp.empty((0, beta.shape[1]), dtype=beta.dtype)
    for begin, end, _ in packing.backward_steps():
        rows = beta[begin:end]
        rows[: len(ahead)] = ahead @ transition_exps[BETWEEN:].T
        rows[len(ahead) :] = transition_exps[END]
        rows /= rows.sum(axis=1, keepdims=True)
        ahead = rows * emission_exps[begin:end]
    return beta


@linear_chain_crf.infer
def _(
    ctx: InferContext, Emission: TensorMeta, Transition: TensorMeta, Label: TensorMeta, Length: TensorMeta | None
) -> dict[str, TensorMeta]:
    check_crf_shapes(ctx, Emission, Transition, Length)
    plain = Emission.with_lod_level(0)
    return {
        "Alpha": plain,
        "EmissionExps": plain,
        "TransitionExps": Transition.with_lod_level(0),
        "LogLikelihood": plain.with_shape((Emission.shape[0], 1)),
    }


@linear_chain_crf.grad(
    inputs="Emission Transition Label Length? Alpha EmissionExps TransitionExps LogLikelihood@GRAD",
    outputs="Emission@GRAD Transition@GRAD",
    lod="Emission->Emission@GRAD",
)
def linear_chain_crf_grad(
    ctx: OpContext,
    Emission: Any,
    Transition: Any,
    Label: Any,
    Length: Any,
    Alpha: Any,
    EmissionExps: Any,
    TransitionExps: Any,
    LogLikelihood_grad: Any,
) -> dict[str, Any]:
    """Expected minus given tags and transitions, weighted by dLogLikelihood (Paddle 1.8.5 linear_chain_crf_op.h)."""
    xp = ctx.xp
    tags = Transition.shape[1]
    packing = pack_tagged(ctx, Emission, Length, "Label")
    rows = EmissionExps.size // tags
    labels = packed_labels(ctx, packing, Label, rows, tags)
    exps, alpha = (packing.pack(array.reshape(rows, tags)) for array in (EmissionExps, Alpha))
    beta = _backward_scores(xp, packing, exps, TransitionExps)
    ordered = packing.ordered(LogLikelihood_grad.reshape(-1))
    weight = xp.concatenate([ordered[: end - begin] for begin, end, _ in packing.steps()] or [ordered[:0]])

    given = labels[:, None] == xp.arange(tags)
    expected = alpha * beta
    expected /= expected.sum(axis=1, keepdims=True)
    emission_grad = (expected - given) * weight[:, None]

    first = packing.first
    old, new = alpha[packing.previous_index], (beta * exps)[first:]
    old_labels, new_labels, weight = labels[packing.previous_index], labels[first:], weight[first:]
    between = TransitionExps[BETWEEN:]
    pair_sum = ((old @ between) * new).sum(axis=1)
    pairs = between * (old.T @ (new * (weight / pair_sum)[:, None]))
    counts = ctx.sums_at(old_labels * tags + new_labels, weight.astype("float64"), tags * tags)
    pairs -= counts.reshape(tags, tags).astype(pairs.dtype)
    ends = xp.stack([emission_grad[:first].sum(axis=0), emission_grad[packing.last_index].sum(axis=0)])
    return {
        "Emission@GRAD": packing.unpack(xp, emission_grad, rows).reshape(EmissionExps.shape),
        "Transition@GRAD": xp.concatenate([ends, pairs]),
    }
