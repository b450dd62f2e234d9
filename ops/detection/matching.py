"""SSD's assignment of ground truth to priors: bipartite_match, target_assign, mine_hard_examples."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.detection.suppression import descending
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta, one_of
from fluidtool.ops.traits import Traits
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text, shapes_text

MANY_ROWS = 130  # from here on Paddle sorts all pairs instead of searching; equal distances then go by rows first
SMALLEST = 1e-6


def match(np: Any, distances: Any) -> tuple[Any, Any]:
    """Row and distance for each column of [K, M]: again and again the largest distance left takes its row and column."""
    rows, columns = distances.shape
    many = rows >= MANY_ROWS
    usable = distances > 0 if many else distances >= distances.dtype.type(SMALLEST)
    left = np.where(usable, distances, -np.inf)
    left = left.copy() if many else left.T.copy()
    indices, matched = np.full(columns, -1, "int32"), np.zeros(columns, distances.dtype)
    for _ in range(min(rows, columns)):
        place = np.unravel_index(left.argmax(), left.shape)
        if left[place] == -np.inf:
            break
        row, column = place if many else place[::-1]
        indices[column], matched[column] = row, distances[row, column]
        left[place[0]] = -np.inf
        left[:, place[1]] = -np.inf
    return indices, matched


def match_rest(np: Any, distances: Any, indices: Any, matched: Any, threshold: float) -> tuple[Any, Any]:
    """Give each column that is still free its best row, if the distance is at least the threshold."""
    number = distances.dtype.type
    usable = (distances >= number(SMALLEST)) & (distances >= number(threshold))
    left = np.where(usable, distances, -np.inf)
    best = left.argmax(axis=0) if len(distances) else np.zeros(distances.shape[1], "int64")
    free = (indices == -1) & usable.any(axis=0)
    top = np.take_along_axis(distances, best[None], axis=0)[0] if len(distances) else matched
    return np.where(free, best, indices).astype("int32"), np.where(free, top, matched)


@op(
    "bipartite_match",
    inputs="DistMat",
    outputs="ColToRowMatchIndices ColToRowMatchDist",
    attrs={"match_type": one_of("bipartite", "bipartite", "per_prediction"), "dist_threshold": 0.5},
    traits=Traits(lod_branch="DistMat"),
)
def bipartite_match(ctx: OpContext, DistMat: Any, *, match_type: str, dist_threshold: float) -> dict[str, Any]:
    """For each of N sequences of DistMat [K, M] the row that each column is matched to, [N, M] int32, -1 for none.

    Greedy from the largest distance down, no row twice; 'per_prediction' then gives free columns their best row from
    dist_threshold on. Without LoD DistMat is one sequence (Paddle 1.8.5 bipartite_match_op.cc).
    """
    if DistMat.ndim != 2:
        raise ctx.error(f"input DistMat must be (K, M), found shape {DistMat.shape}")
    if match_type not in ("bipartite", "per_prediction"):
        raise ctx.error(f"attribute match_type must be 'bipartite' or 'per_prediction', found {match_type!r}")
    levels = ctx.lod("DistMat")
    if len(levels) > 1:
        raise ctx.error(f"input DistMat takes one level of LoD, found {len(levels)}")
    np, distances = ctx.np, ctx.host(DistMat)
    indices, matched = [], []
    for start, end in pairwise(levels[0] if levels else [0, len(distances)]):
        found = match(np, distances[start:end])
        if match_type == "per_prediction":
            found = match_rest(np, distances[start:end], *found, dist_threshold)
        indices.append(found[0])
        matched.append(found[1])
    return {
        "ColToRowMatchIndices": ctx.array(np.stack(indices)),
        "ColToRowMatchDist": ctx.array(np.stack(matched)),
    }


@bipartite_match.infer
def _(ctx: InferContext, DistMat: TensorMeta) -> dict[str, TensorMeta]:
    if DistMat.rank != 2:
        raise ctx.error(f"input DistMat must be (K, M), found shape {DistMat.shape}")
    return {
        "ColToRowMatchIndices": TensorMeta(DistMat.shape, VarType.INT32),
        "ColToRowMatchDist": TensorMeta(DistMat.shape, DistMat.dtype),
    }


@op("target_assign", inputs="X MatchIndices NegIndices?", outputs="Out OutWeight", attrs={"mismatch_value": 0})
def target_assign(ctx: OpContext, X: Any, MatchIndices: Any, NegIndices: Any, *, mismatch_value: int) -> dict[str, Any]:
    """Out [N, M, K]: for prior m of image n row MatchIndices[n, m] of that image's sequence of X [G, P, K], column m % P.

    Where nothing matches (-1) Out is mismatch_value and OutWeight [N, M, 1] float32 is 0; it is 1 for matches and for the
    priors that NegIndices [Neg, 1] (one sequence per image) names (Paddle 1.8.5 target_assign_op.h).
    """
    _check_assign(ctx, X, MatchIndices)
    xp = ctx.xp
    starts = ctx.sequences("X")
    batch, priors = MatchIndices.shape
    if len(starts) - 1 != batch:
        raise ctx.error(
            f"input X must have one sequence for each of the {batch} rows of MatchIndices, found {len(starts) - 1}"
        )
    first = ctx.array(starts)[:-1, None]
    matched = MatchIndices > -1
    rows = xp.where(matched, first + MatchIndices, 0)
    if bool((matched & (rows >= ctx.array(starts)[1:, None])).any()):
        raise ctx.error(f"input MatchIndices names a row beyond an image's sequence of X; the LoD of X is {starts}")
    column = xp.arange(priors) % X.shape[1]
    weight = matched.astype("float32")
    if X.shape[0] == 0:
        taken = xp.full((batch, priors, X.shape[2]), mismatch_value, X.dtype)
    else:
        taken = xp.where(matched[..., None], X[rows, column], xp.asarray(mismatch_value, X.dtype))
    if NegIndices is not None:
        bounds = ctx.sequences("NegIndices")
        if len(bounds) - 1 != batch:
            raise ctx.error(f"input NegIndices needs {batch} sequences, found {len(bounds) - 1}")
        image = ctx.array(ctx.np.repeat(ctx.np.arange(batch), ctx.np.diff(bounds)))
        prior = NegIndices.reshape(-1)
        if not (prior.size == 0 or (int(prior.min()) >= 0 and int(prior.max()) < priors)):
            raise ctx.error(
                f"input NegIndices must name priors 0 to {priors - 1}, found {int(prior.min())} to {int(prior.max())}"
            )
        taken[image, prior] = mismatch_value
        weight[image, prior] = 1.0
    return {"Out": taken, "OutWeight": weight[..., None]}


def _check_assign(ctx: OpContext | InferContext, x: Any, indices: Any) -> None:
    if len(x.shape) != 3:
        raise ctx.error(f"input X must be (G, P, K), found shape {shape_text(x.shape)}")
    if len(indices.shape) != 2:
        raise ctx.error(f"input MatchIndices must be (N, M), found shape {shape_text(indices.shape)}")


@target_assign.infer
def _(
    ctx: InferContext, X: TensorMeta, MatchIndices: TensorMeta, NegIndices: TensorMeta | None
) -> dict[str, TensorMeta]:
    _check_assign(ctx, X, MatchIndices)
    return {
        "Out": TensorMeta((*MatchIndices.shape, X.shape[2]), X.dtype),
        "OutWeight": TensorMeta((*MatchIndices.shape, 1), VarType.FP32),
    }


@op(
    "mine_hard_examples",
    inputs="ClsLoss LocLoss? MatchIndices MatchDist",
    outputs="NegIndices UpdatedMatchIndices",
    attrs={"neg_pos_ratio": 1.0, "neg_dist_threshold": 0.5, "sample_size": 0, "mining_type": "max_negative"},
)
def mine_hard_examples(
    ctx: OpContext,
    ClsLoss: Any,
    LocLoss: Any,
    MatchIndices: Any,
    MatchDist: Any,
    *,
    neg_pos_ratio: float,
    neg_dist_threshold: float,
    sample_size: int,
    mining_type: str,
) -> dict[str, Any]:
    """The negative priors with the largest loss, NegIndices [Neg, 1] int32 with one sequence per image; all inputs [N, M].

    max_negative: of the unmatched ones nearer than neg_dist_threshold, neg_pos_ratio as many as are matched. hard_example:
    the sample_size largest of all; matches that are not among them become -1 in UpdatedMatchIndices. Equal losses go by
    position (Paddle 1.8.5 mine_hard_examples_op.cc).
    """
    _check_mining(ctx, ClsLoss, MatchIndices, MatchDist, mining_type, neg_pos_ratio, neg_dist_threshold, sample_size)
    np = ctx.np
    losses, indices, distances = map(ctx.host, (ClsLoss, MatchIndices, MatchDist))
    hard = mining_type == "hard_example"
    if hard and LocLoss is not None:
        losses = losses + ctx.host(LocLoss)
    negatives, updated = [], indices.copy()
    for image in range(len(losses)):
        matched = indices[image] != -1
        if hard:
            eligible, wanted = np.arange(losses.shape[1]), sample_size
        else:
            eligible = np.flatnonzero(~matched & (distances[image] < distances.dtype.type(neg_dist_threshold)))
            wanted = int(np.float32(matched.sum()) * np.float32(neg_pos_ratio))
        chosen = np.sort(eligible[descending(np, losses[image, eligible])[:wanted]])
        if hard:
            selected = np.zeros(losses.shape[1], bool)
            selected[chosen] = True
            updated[image, (indices[image] > -1) & ~selected] = -1
            chosen = np.flatnonzero(selected & (indices[image] <= -1))
        negatives.append(chosen)
    ctx.set_lod("NegIndices", [list(accumulate(map(len, negatives), initial=0))])
    found = np.concatenate([np.zeros(0, "int64"), *negatives]).astype("int32")[:, None]
    return {"NegIndices": ctx.array(found), "UpdatedMatchIndices": ctx.array(updated)}


def _check_mining(
    ctx: OpContext | InferContext,
    loss: Any,
    indices: Any,
    distances: Any,
    mining_type: str,
    ratio: float,
    threshold: float,
    sample_size: int,
) -> None:
    shapes = tuple(loss.shape), tuple(indices.shape), tuple(distances.shape)
    # Before a run sizes may be declared wrongly: ssd_loss reshapes ClsLoss by a tensor, and its declaration says [-1, 1].
    known = isinstance(ctx, OpContext)
    if not (all(len(shape) == 2 for shape in shapes) and (not known or len(set(shapes)) == 1)):
        raise ctx.error(
            f"inputs ClsLoss, MatchIndices and MatchDist must all be (N, M), found shapes {shapes_text(shapes)}"
        )
    if mining_type == "hard_example":
        if sample_size <= 0:
            raise ctx.error(f"attribute sample_size must be above 0 for hard_example, found {sample_size}")
        return
    if mining_type != "max_negative":
        raise ctx.error(f"attribute mining_type must be 'max_negative' or 'hard_example', found {mining_type!r}")
    if not ratio > 0:
        raise ctx.error(f"attribute neg_pos_ratio must be above 0, found {ratio}")
    if not 0 < threshold < 1:
        raise ctx.error(f"attribute neg_dist_threshold must lie between 0 and 1, found {threshold}")


@mine_hard_examples.infer
def _(
    ctx: InferContext,
    ClsLoss: TensorMeta,
    LocLoss: TensorMeta | None,
    MatchIndices: TensorMeta,
    MatchDist: TensorMeta,
    *,
    neg_pos_ratio: float,
    neg_dist_threshold: float,
    sample_size: int,
    mining_type: str,
) -> dict[str, TensorMeta]:
    _check_mining(ctx, ClsLoss, MatchIndices, MatchDist, mining_type, neg_pos_ratio, neg_dist_threshold, sample_size)
    return {"NegIndices": TensorMeta((-1, 1), VarType.INT32), "UpdatedMatchIndices": MatchIndices}
