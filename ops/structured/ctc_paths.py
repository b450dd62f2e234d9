"""The sums over all paths of a CTC lattice, in the log domain and for a whole batch at once.

A label a b c becomes the states _ a _ b _ c _ (`_` the blank). A path starts in one of the first two states, ends in one
of the last two, and at each step stays, moves on by one, or by two over a blank between two different labels.
"""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import OpContext

NOTHING = -1e30


def ctc_loss(ctx: OpContext, logits: Any, labels: Any, lengths: Any, label_lengths: Any, blank: int) -> tuple[Any, Any]:
    """Loss [N] and its gradient by logits [T, N, classes].

    labels [N, longest label], lengths and label_lengths [N] are host integers. Sequences too short for their label cost
    0 and have no gradient, as with warp-ctc. Computed in float64, returned in the type of logits.
    """
    xp, np = ctx.xp, ctx.np
    longest, sequences = logits.shape[:2]
    log_probs = _log_softmax(xp, logits)
    repeats = ((labels[:, 1:] == labels[:, :-1]) & (np.arange(1, labels.shape[1]) < label_lengths[:, None])).sum(axis=1)
    feasible = (label_lengths + repeats <= lengths) & (lengths > 0)

    forward = _log_scores(ctx, log_probs, labels, lengths, label_lengths, blank, backward=False)
    backward = _log_scores(ctx, log_probs, labels, lengths, label_lengths, blank, backward=True)
    states = ctx.array(_states(np, labels, label_lengths, blank))
    at_state = _at_states(xp, log_probs, states)
    total = xp.where(ctx.array(feasible), _at_end(ctx, forward, lengths, label_lengths), 0)

    alive = ctx.array((np.arange(longest)[:, None] < lengths) & feasible)
    weight = xp.exp(forward + backward - at_state - total[:, None]) * alive[:, :, None]
    gradient = xp.exp(log_probs) * alive[:, :, None]
    gradient[:, :, blank] -= weight[:, :, ::2].sum(axis=2)
    row = xp.arange(sequences)
    for position in range(labels.shape[1]):
        gradient[:, row, states[:, 2 * position + 1]] -= weight[:, :, 2 * position + 1]
    return (0 - total).astype(logits.dtype), gradient.astype(logits.dtype)


def _at_end(ctx: OpContext, forward: Any, lengths: Any, label_lengths: Any) -> Any:
    """[N]: the log of the sum over all paths. Backward scores do not count here: where a label has the class of the blank, they
    take other steps than forward scores, and warp-ctc takes the loss from the latter.
    """
    xp, np = ctx.xp, ctx.np
    if not len(forward):
        return xp.zeros(len(lengths))
    last = forward[ctx.array(np.maximum(lengths - 1, 0)), xp.arange(len(lengths))]
    behind = 2 * label_lengths[:, None] - np.arange(last.shape[1])
    return _log_sum(xp, xp.where(ctx.array((behind == 0) | (behind == 1)), last, NOTHING), axis=1)


def _log_softmax(xp: Any, logits: Any) -> Any:
    """log softmax in float64, not below the logarithm of the smallest normal number of the logits' type."""
    shifted = logits.astype(xp.float64)
    if not shifted.size:
        return shifted
    shifted -= shifted.max(axis=2, keepdims=True)
    shifted -= xp.log(xp.exp(shifted).sum(axis=2, keepdims=True))
    return xp.maximum(shifted, float(xp.log(xp.asarray(xp.finfo(logits.dtype).tiny, dtype=xp.float64))))


def _states(np: Any, labels: Any, label_lengths: Any, blank: int) -> Any:
    """The class of every state [N, 2 * longest label + 1]."""
    states = np.full((len(labels), 2 * labels.shape[1] + 1), blank, dtype=np.int64)
    states[:, 1::2] = np.where(np.arange(labels.shape[1]) < label_lengths[:, None], labels, blank)
    return states


def _at_states(xp: Any, log_probs: Any, states: Any) -> Any:
    """[T, N, states]: the log probability of every state's class."""
    return log_probs[:, xp.arange(len(states))[:, None], states]


def _log_sum(xp: Any, scores: Any, axis: int) -> Any:
    highest = scores.max(axis=axis, keepdims=True)
    return (highest + xp.log(xp.exp(scores - highest).sum(axis=axis, keepdims=True))).squeeze(axis)


def _log_scores(
    ctx: OpContext, log_probs: Any, labels: Any, lengths: Any, label_lengths: Any, blank: int, backward: bool
) -> Any:
    """[T, N, states]: the log of the sum over all paths from the start to each state (backward: from the end).

    Backward scores are the forward scores of the reversed inputs and labels, read in reverse.
    """
    xp, np = ctx.xp, ctx.np
    longest, sequences, _ = log_probs.shape
    count = 2 * label_lengths + 1
    state, time = np.arange(2 * labels.shape[1] + 1), np.arange(longest)
    classes = _states(np, labels, label_lengths, blank)
    states = classes
    if backward:
        state_back, time_back = count[:, None] - 1 - state, lengths - 1 - time[:, None]
        states = np.take_along_axis(classes, state_back % classes.shape[1], axis=1)
        back = ctx.array(time_back % max(longest, 1))
        log_probs = log_probs[back, xp.arange(sequences)]
    inside = ctx.array(state < count[:, None])
    skips = np.zeros(states.shape, dtype=bool)
    skips[:, 2:] = (states[:, 2:] != blank) & (states[:, 2:] != states[:, :-2])
    at_state = xp.where(inside, _at_states(xp, log_probs, ctx.array(states)), NOTHING)
    scores = _advance(xp, at_state, ctx.array(skips))
    if backward:
        mirrored = ctx.array(state_back % classes.shape[1])
        scores = scores[back[:, :, None], xp.arange(sequences)[:, None], mirrored]
        scores = xp.where(inside, scores, NOTHING)
    return scores


def _advance(xp: Any, at_state: Any, skips: Any) -> Any:
    """The recursion over time: at_state [T, N, states], skips [N, states] where a state may follow the last but one."""
    scores = xp.empty_like(at_state)
    if not len(scores):
        return scores
    scores[0] = NOTHING
    scores[0, :, :2] = at_state[0, :, :2]
    one = xp.full(skips.shape, NOTHING)
    two = xp.full(skips.shape, NOTHING)
    for step in range(1, len(scores)):
        stay = scores[step - 1]
        one[:, 1:] = stay[:, :-1]
        two[:, 2:] = stay[:, :-2]
        leap = xp.where(skips, two, NOTHING)
        highest = xp.maximum(xp.maximum(stay, one), leap)
        total = xp.exp(stay - highest) + xp.exp(one - highest) + xp.exp(leap - highest)
        scores[step] = xp.maximum(highest + xp.log(total) + at_state[step], NOTHING)
    return scores
