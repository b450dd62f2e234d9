"""One step of a GRU, forward and backward, over rows. Gates stand as update, reset, candidate."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.rnn.activations import Activation
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text


@dataclass(frozen=True, slots=True)
class GruWeights:
    """The two matrices that lie one after the other in Weight [size, 3 * size]: [size, 2 * size] for the update and the
    reset gate, [size, size] for the candidate.
    """

    gates: Any
    candidate: Any

    @classmethod
    def split(cls, weight: Any) -> GruWeights:
        """From the flat memory of Weight."""
        size, flat = weight.shape[0], weight.reshape(-1)
        return cls(flat[: 2 * size * size].reshape(size, 2 * size), flat[2 * size * size :].reshape(size, size))

    @staticmethod
    def join(xp: Any, gates: Any, candidate: Any) -> Any:
        """The gradient of Weight from the gradients of the two."""
        size = candidate.shape[0]
        return xp.concatenate([gates.reshape(-1), candidate.reshape(-1)]).reshape(size, 3 * size)


@dataclass(frozen=True, slots=True)
class GruCell:
    """h = (1 - u) * h' + u * c, or with origin_mode h = u * h' + (1 - u) * c; c = candidate(x + (r * h') W)."""

    gate: Activation
    candidate: Activation
    origin_mode: bool

    def forward(self, xp: Any, gates: Any, before: Any, weights: GruWeights) -> tuple[Any, Any]:
        """Hidden state and reset hidden state of one step.

        gates [rows, 3 * size]: the inputs' part of the sums, replaced by the activated gates in place. before: the
        hidden state of the step before, or None for zeros.
        """
        size = gates.shape[1] // 3
        if before is not None:
            gates[:, : 2 * size] += before @ weights.gates
        gates[:, : 2 * size] = self.gate.forward(xp, gates[:, : 2 * size])
        update, reset, candidate = gates[:, :size], gates[:, size : 2 * size], gates[:, 2 * size :]
        if before is None:
            candidate[...] = self.candidate.forward(xp, candidate)
            return (candidate - update * candidate if self.origin_mode else update * candidate), xp.zeros_like(update)
        reset_hidden = reset * before
        candidate[...] = self.candidate.forward(xp, candidate + reset_hidden @ weights.candidate)
        if self.origin_mode:
            return candidate + update * (before - candidate), reset_hidden
        return before + update * (candidate - before), reset_hidden

    def backward(self, xp: Any, gates: Any, before: Any, hidden_grad: Any, weights: GruWeights) -> tuple[Any, Any]:
        """Gradients of the gates' sums [rows, 3 * size] and of the hidden state of the step before."""
        size = gates.shape[1] // 3
        update, reset, candidate = gates[:, :size], gates[:, size : 2 * size], gates[:, 2 * size :]
        if before is None:
            before = xp.zeros_like(update)
        grads = xp.empty_like(gates)
        towards, kept = (before - candidate, 1 - update) if self.origin_mode else (candidate - before, update)
        grads[:, :size] = self.gate.backward(update, hidden_grad * towards)
        grads[:, 2 * size :] = self.candidate.backward(candidate, hidden_grad * kept)
        reset_grad = grads[:, 2 * size :] @ weights.candidate.T
        grads[:, size : 2 * size] = self.gate.backward(reset, reset_grad * before)
        before_grad = hidden_grad * (1 - kept) + reset_grad * reset
        before_grad += grads[:, : 2 * size] @ weights.gates.T
        return grads, before_grad


def check_gru_shapes(
    ctx: OpContext | InferContext,
    Input: Any,
    Weight: Any,
    Bias: Any,
    weight_slot: str = "Weight",
    input_slot: str = "Input",
) -> int:
    """The hidden size of Weight [size, 3 * size]; raises OperatorError when Input or Bias does not fit it."""
    weight, given = tuple(Weight.shape), tuple(Input.shape)
    if len(weight) != 2 or weight[1] != 3 * weight[0]:
        raise ctx.error(f"input {weight_slot} must be (hidden size, 3 * hidden size), found shape {weight}")
    width = weight[1]
    if len(given) != 2 or given[1] not in (width, -1):
        raise ctx.error(
            f"input {input_slot} must have {width} columns for {weight_slot} of shape {weight}, found shape {given}"
        )
    if Bias is not None and tuple(Bias.shape) != (1, width):
        raise ctx.error(f"input Bias must have shape (1, {width}), found {shape_text(Bias.shape)}")
    return int(weight[0])
