"""attention_lstm: an LSTM whose input at every step is a weighted mean of its whole sequence."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.rnn.activations import activation
from fluidtool.ops.rnn.lstm_cell import LstmCell
from fluidtool.ops.rnn.lstm_layer import check_initial
from fluidtool.ops.rnn.packing import Packing, pack_sequences
from fluidtool.ops.schema import TensorMeta
from fluidtool.shapes import shape_text


def _check(
    ctx: OpContext | InferContext, X: Any, C0: Any, H0: Any, AttentionWeight: Any, LSTMWeight: Any, LSTMBias: Any
) -> int:
    """The hidden size; raises OperatorError when the shapes do not fit."""
    x, weight = tuple(X.shape), tuple(LSTMWeight.shape)
    if len(x) != 2 or len(weight) != 2 or weight[1] % 4 or weight[0] != x[1] + weight[1] // 4:
        raise ctx.error(f"input LSTMWeight must be (D + M, 4 * D) for X (rows, M), found shapes {weight} and {x}")
    size = int(weight[1] // 4)
    for slot, value, expected in (
        ("LSTMBias", LSTMBias, (1, 4 * size)),
        ("AttentionWeight", AttentionWeight, (x[1] + size, 1)),
    ):
        if tuple(value.shape) != expected:
            raise ctx.error(f"input {slot} must have shape {expected}, found {shape_text(value.shape)}")
    return size


def _reordered(xp: Any, array: Any) -> Any:
    """Columns forget, input, output gate, candidate -> candidate, input, forget, output gate."""
    size = array.shape[1] // 4
    return xp.concatenate(
        [array[:, 3 * size :], array[:, size : 2 * size], array[:, :size], array[:, 2 * size : 3 * size]], 1
    )


def _by_sequence(xp: Any, packing: Packing, rows: Any) -> tuple[Any, Any]:
    """Rows as [sequences (longest first), longest, ...] with zeros, and which of them exist."""
    packed = packing.pack(rows)
    longest = len(packing.starts) - 1
    out = xp.zeros((len(packing.order), longest, *rows.shape[1:]), dtype=rows.dtype)
    exists = xp.zeros((len(packing.order), longest), dtype=bool)
    for step, (begin, end, _) in enumerate(packing.steps()):
        out[: end - begin, step] = packed[begin:end]
        exists[: end - begin, step] = True
    return out, exists


@op(
    "attention_lstm",
    inputs="X C0 H0? AttentionWeight AttentionBias? AttentionScalar? AttentionScalarBias? LSTMWeight LSTMBias",
    outputs="Hidden Cell AttentionedX~ AttentionFCOut~ LSTMX~ LSTMOUT~",
    attrs={"gate_activation": "sigmoid", "cell_activation": "tanh", "candidate_activation": "tanh"},
    lod="X->Hidden X->Cell",
)
def attention_lstm(
    ctx: OpContext,
    X: Any,
    C0: Any,
    H0: Any,
    AttentionWeight: Any,
    AttentionBias: Any,
    AttentionScalar: Any,
    AttentionScalarBias: Any,
    LSTMWeight: Any,
    LSTMBias: Any,
    *,
    gate_activation: str,
    cell_activation: str,
    candidate_activation: str,
) -> dict[str, Any]:
    """Hidden and Cell [rows, D] of X [rows, M] with LoD, C0 and H0 [sequences, D].

    Each step scores the rows of its sequence by relu([row, cell state] AttentionWeight + AttentionBias), then (with
    AttentionScalar) by relu(score * AttentionScalar + AttentionScalarBias); the softmax of the scores weighs the rows.
    LSTMWeight [D + M, 4D] (hidden rows first) and LSTMBias [1, 4D] stand as forget, input, output gate, candidate
    (Paddle 1.8.5 attention_lstm_op.cc, whose cell_activation "identity" does not copy the cell state; here it does).
    """
    xp = ctx.xp
    size = _check(ctx, X, C0, H0, AttentionWeight, LSTMWeight, LSTMBias)
    packing = pack_sequences(ctx, "X", len(X))
    check_initial(ctx, len(packing.order), "C0", C0, size)
    check_initial(ctx, len(packing.order), "H0", H0, size)
    width = X.shape[1]
    cell = LstmCell(
        activation(ctx, "gate_activation", gate_activation),
        activation(ctx, "cell_activation", cell_activation),
        activation(ctx, "candidate_activation", candidate_activation),
    )
    weight, bias = _reordered(xp, LSTMWeight), _reordered(xp, LSTMBias)
    row_scores = X @ AttentionWeight[:width]
    if AttentionBias is not None:
        row_scores += AttentionBias.reshape(-1)
    rows, exists = _by_sequence(xp, packing, X)
    scores, _ = _by_sequence(xp, packing, row_scores[:, 0])

    hidden, state = (xp.empty((len(X), size), dtype=X.dtype) for _ in range(2))
    old_hidden, old_state = packing.ordered(H0), packing.ordered(C0)
    for begin, end, _ in packing.steps():
        alive = end - begin
        old_state = old_state[:alive]
        weights = xp.maximum(scores[:alive] + old_state @ AttentionWeight[width:], 0)
        if AttentionScalar is not None:
            weights = weights * AttentionScalar.reshape(-1)
            if AttentionScalarBias is not None:
                weights = weights + AttentionScalarBias.reshape(-1)
            weights = xp.maximum(weights, 0)
        weights = xp.exp(weights - weights.max(axis=1, keepdims=True)) * exists[:alive]
        weights /= weights.sum(axis=1, keepdims=True)
        gates = (weights[:, None] @ rows[:alive])[:, 0] @ weight[size:] + bias
        if old_hidden is not None:
            gates += old_hidden[:alive] @ weight[:size]
        old_state, _, old_hidden = cell.forward(xp, gates, old_state)
        state[begin:end], hidden[begin:end] = old_state, old_hidden
    return {
        "Hidden": packing.unpack(xp, hidden),
        "Cell": packing.unpack(xp, state),
        "AttentionedX": row_scores,
        "AttentionFCOut": ctx.dims_only((len(packing.starts) - 1, 1)),
        "LSTMX": ctx.dims_only((1, width)),
        "LSTMOUT": ctx.dims_only((1, 4 * size)),
    }


@attention_lstm.infer
def _(
    ctx: InferContext,
    X: TensorMeta,
    C0: TensorMeta,
    H0: TensorMeta | None,
    AttentionWeight: TensorMeta,
    AttentionBias: TensorMeta | None,
    AttentionScalar: TensorMeta | None,
    AttentionScalarBias: TensorMeta | None,
    LSTMWeight: TensorMeta,
    LSTMBias: TensorMeta,
) -> dict[str, TensorMeta]:
    size = _check(ctx, X, C0, H0, AttentionWeight, LSTMWeight, LSTMBias)
    frame = X.with_shape((X.shape[0], size))
    plain = TensorMeta((X.shape[0], 1), X.dtype)
    return {
        "Hidden": frame,
        "Cell": frame,
        "AttentionedX": plain,
        "LSTMX": plain.with_shape((1, X.shape[1])),
        "LSTMOUT": plain.with_shape((1, 4 * size)),
    }
