"""One step of an LSTM, forward and backward, over packed rows. Gates stand as candidate, input, forget, output."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.rnn.activations import Activation
from fluidtool.records import dataclass


def quarters(gates: Any) -> tuple[Any, Any, Any, Any]:
    """Views of [rows, 4 * size] as four of [rows, size]."""
    size = gates.shape[1] // 4
    return gates[:, :size], gates[:, size : 2 * size], gates[:, 2 * size : 3 * size], gates[:, 3 * size :]


@dataclass(frozen=True, slots=True)
class LstmCell:
    """Activations, peephole weights (input, forget, output gate; each [size]) and the bound on the cell state.

    vectorized: see `_state_gradient`.
    """

    gate: Activation
    cell: Activation
    candidate: Activation
    peepholes: tuple[Any, Any, Any] | None = None
    clip: float = 0.0
    vectorized: bool = False

    def forward(self, xp: Any, gates: Any, before: Any) -> tuple[Any, Any, Any]:
        """Cell state, activated cell state and hidden state of one step.

        gates [rows, 4 * size]: the sums, replaced by their activations in place. before: the cell state of the step
        before, or None for zeros.
        """
        size = gates.shape[1] // 4
        candidate, input_gate, forget_gate, output_gate = quarters(gates)
        candidate[...] = self.candidate.forward(xp, candidate)
        if self.peepholes is None:
            gates[:, size:] = self.gate.forward(xp, gates[:, size:])
        else:
            if before is not None:
                input_gate += before * self.peepholes[0]
                forget_gate += before * self.peepholes[1]
            gates[:, size : 3 * size] = self.gate.forward(xp, gates[:, size : 3 * size])
        state = candidate * input_gate
        if before is not None:
            state += before * forget_gate
        if self.clip > 0:
            state = xp.minimum(xp.maximum(state, -self.clip), self.clip)
        if self.peepholes is not None:
            output_gate[...] = self.gate.forward(xp, output_gate + state * self.peepholes[2])
        activated = self.cell.forward(xp, state)
        return state, activated, output_gate * activated

    def backward(
        self, xp: Any, gates: Any, before: Any, state: Any, activated: Any, hidden_grad: Any, state_grad: Any
    ) -> tuple[Any, Any]:
        """Gradients of the gates' sums [rows, 4 * size] and of the cell state of the step before.

        gates: activated; state_grad: what the step after gave, or None for zeros.
        """
        candidate, input_gate, forget_gate, output_gate = quarters(gates)
        grads = xp.empty_like(gates)
        candidate_grad, input_grad, forget_grad, output_grad = quarters(grads)
        output_grad[...] = self.gate.backward(output_gate, hidden_grad * activated)
        state_grad = self._state_gradient(xp, state, activated, output_gate, output_grad, hidden_grad, state_grad)
        candidate_grad[...] = self.candidate.backward(candidate, state_grad * input_gate)
        input_grad[...] = self.gate.backward(input_gate, state_grad * candidate)
        forget_grad[...] = 0 if before is None else self.gate.backward(forget_gate, state_grad * before)
        before_grad = state_grad * forget_gate
        if self.peepholes is not None:
            before_grad += input_grad * self.peepholes[0] + forget_grad * self.peepholes[1]
        return grads, before_grad

    def _state_gradient(
        self, xp: Any, state: Any, activated: Any, output_gate: Any, output_grad: Any, hidden_grad: Any, later: Any
    ) -> Any:
        """The gradient of the cell state: through the hidden state, the output peephole and the step after.

        A clipped state passes no gradient. `vectorized` does as Paddle 1.8.5's AVX kernel (lstm_kernel.h, float32 on
        the CPU with a size divisible by 8): without a clip the step's own part is left out, with one the first of
        every eight states decides for all eight.
        """
        if self.vectorized and self.clip <= 0:
            return xp.zeros_like(state) if later is None else later
        own = self.cell.backward(activated, hidden_grad * output_gate)
        if self.peepholes is not None:
            own += output_grad * self.peepholes[2]
        if later is not None:
            own += later
        if self.clip <= 0:
            return own
        passes = xp.abs(state) < self.clip
        if self.vectorized:
            passes = xp.repeat(passes[:, ::8], 8, axis=1)
        return own * passes
