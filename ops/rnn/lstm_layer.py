"""The loops over time that `lstm`, `lstmp` and the fused forms share, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.rnn.activations import activation
from fluidtool.ops.rnn.lstm_cell import LstmCell
from fluidtool.ops.rnn.packing import Packing
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text
from fluidtool.tensor import CPUPlace

LANES = 8


@dataclass(frozen=True, slots=True)
class LstmRun:
    """What a forward run leaves, all packed: activated gates, cell states, activated cell states, hidden states, and
    what is fed back (the hidden states, or their projection).
    """

    gates: Any
    state: Any
    activated: Any
    hidden: Any
    fed_back: Any


def make_cell(
    ctx: OpContext, bias: Any, use_peepholes: bool, names: tuple[str, str, str], clip: float = 0.0
) -> LstmCell:
    """The cell of these gate, cell and candidate activations; `bias` [1, 4 * size], or [1, 7 * size] with peepholes."""
    gate, cell, candidate = names
    peepholes = None
    size = bias.size // (7 if use_peepholes else 4)
    if use_peepholes:
        flat = bias.reshape(-1)
        peepholes = (flat[4 * size : 5 * size], flat[5 * size : 6 * size], flat[6 * size :])
    vectorized = isinstance(ctx.place, CPUPlace) and bias.dtype == ctx.np.float32 and size > 0 and size % LANES == 0
    return LstmCell(
        activation(ctx, "gate_activation", gate),
        activation(ctx, "cell_activation", cell),
        activation(ctx, "candidate_activation", candidate),
        peepholes,
        clip,
        vectorized,
    )


def run_forward(
    xp: Any,
    packing: Packing,
    gates: Any,
    weight: Any,
    cell: LstmCell,
    h0: Any,
    c0: Any,
    project: Callable[[Any], Any] | None = None,
) -> LstmRun:
    """Run every step. gates [rows, 4 * size]: packed inputs with bias, activated in place; h0, c0: ordered or None."""
    rows, size = gates.shape[0], gates.shape[1] // 4
    state, activated, hidden = (xp.empty((rows, size), dtype=gates.dtype) for _ in range(3))
    fed_back = hidden if project is None else xp.empty((rows, weight.shape[0]), dtype=gates.dtype)
    for begin, end, before in packing.steps():
        alive = end - begin
        if before >= 0:
            old_hidden, old_state = fed_back[before : before + alive], state[before : before + alive]
        else:
            old_hidden = None if h0 is None else h0[:alive]
            old_state = None if c0 is None else c0[:alive]
        step = gates[begin:end]
        if old_hidden is not None:
            step += old_hidden @ weight
        state[begin:end], activated[begin:end], hidden[begin:end] = cell.forward(xp, step, old_state)
        if project is not None:
            fed_back[begin:end] = project(hidden[begin:end])
    return LstmRun(gates, state, activated, hidden, fed_back)


@dataclass(frozen=True, slots=True)
class LstmGradients:
    """Gradients, packed or ordered: of the gates' sums, of h0 and of c0."""

    gates: Any
    h0: Any
    c0: Any


def run_backward(
    xp: Any,
    packing: Packing,
    run: LstmRun,
    weight: Any,
    cell: LstmCell,
    c0: Any,
    fed_back_grad: Any,
    through_projection: Callable[[int, int], Any] | None = None,
    state_grad: Any = None,
) -> LstmGradients:
    """Run every step backwards. fed_back_grad and state_grad (packed, own memory) grow by what later steps give.

    through_projection(begin, end): the gradient of the hidden rows once `fed_back_grad` of these rows is complete.
    state_grad: what the cell states get from outside; None for nothing.
    """
    gate_grads = xp.empty_like(run.gates)
    if state_grad is None:
        state_grad = xp.zeros_like(run.state)
    h0_grad = xp.zeros((len(packing.order), weight.shape[0]), dtype=weight.dtype)
    c0_grad = xp.zeros((len(packing.order), run.state.shape[1]), dtype=weight.dtype)
    for begin, end, before in packing.backward_steps():
        alive = end - begin
        if before >= 0:
            old_state = run.state[before : before + alive]
        else:
            old_state = None if c0 is None else c0[:alive]
        hidden_grad = fed_back_grad[begin:end] if through_projection is None else through_projection(begin, end)
        grads, old_state_grad = cell.backward(
            xp,
            run.gates[begin:end],
            old_state,
            run.state[begin:end],
            run.activated[begin:end],
            hidden_grad,
            state_grad[begin:end],
        )
        gate_grads[begin:end] = grads
        if before >= 0:
            state_grad[before : before + alive] += old_state_grad
            fed_back_grad[before : before + alive] += grads @ weight.T
        else:
            c0_grad[: packing.first] = old_state_grad
            h0_grad[: packing.first] = grads @ weight.T
    return LstmGradients(gate_grads, h0_grad, c0_grad)


def bias_gradient(xp: Any, packing: Packing, gate_grads: Any, run_state: Any, c0: Any, cell: LstmCell) -> Any:
    """The gradient of the bias [1, 4 * size], or [1, 7 * size] with peepholes."""
    sums = gate_grads.sum(axis=0)
    if cell.peepholes is None:
        return sums[None]
    size = run_state.shape[1]
    old_state = packing.one_step_before(xp, run_state, c0)
    checks = [
        (gate_grads[:, size : 2 * size] * old_state).sum(axis=0),
        (gate_grads[:, 2 * size : 3 * size] * old_state).sum(axis=0),
        (gate_grads[:, 3 * size :] * run_state).sum(axis=0),
    ]
    return xp.concatenate([sums, *checks])[None]


def check_initial(ctx: OpContext, sequences: int, slot: str, value: Any, width: int) -> None:
    """Raise OperatorError unless an initial state is absent or [sequences, width]."""
    if value is not None and tuple(value.shape) != (sequences, width):
        raise ctx.error(
            f"input {slot} must have one row per sequence, shape {shape_text((sequences, width))}, found {shape_text(value.shape)}"
        )


def check_pair(ctx: OpContext, H0: Any, C0: Any) -> None:
    """Raise OperatorError when H0 comes without C0."""
    if H0 is not None and C0 is None:
        raise ctx.error("input H0 needs input C0, found none; pass both or neither")


def check_gate_shapes(
    ctx: OpContext | InferContext,
    Input: Any,
    Weight: Any,
    Bias: Any,
    use_peepholes: bool,
    fed_back: int | None = None,
    weight_slot: str = "Weight",
) -> int:
    """The hidden size of Input [rows, 4 * size]; raises OperatorError when Weight or Bias does not fit it."""
    shape, weight, bias = tuple(Input.shape), tuple(Weight.shape), tuple(Bias.shape)
    if len(shape) != 2 or shape[1] % 4 or shape[1] == 0:
        raise ctx.error(f"input Input must be (rows, 4 * hidden size), found shape {shape_text(shape)}")
    size = shape[1] // 4
    if shape[1] > 0:
        expected = (size if fed_back is None else fed_back, 4 * size)
        if weight != expected:
            raise ctx.error(
                f"input {weight_slot} must have shape {expected} for gates of {shape_text(shape)}, found {weight}"
            )
        width = (7 if use_peepholes else 4) * size
        if bias != (1, width):
            raise ctx.error(f"input Bias must have shape (1, {width}) with use_peepholes={use_peepholes}, found {bias}")
    return int(size)
