"""One direction of one layer of a stacked recurrent network: LSTM, GRU or plain, over packed rows, forward and backward.

These follow cuDNN's formulas: weights [gates * H, inputs] and [gates * H, H] and two biases, one for the input's part and
one for the recurrent part of the sums.
"""

from __future__ import annotations

from typing import Any, Protocol

from fluidtool.ops.rnn.activations import FULL_SIGMOID, TANH, Activation
from fluidtool.ops.rnn.lstm_cell import LstmCell
from fluidtool.ops.rnn.lstm_layer import LstmRun, run_backward, run_forward
from fluidtool.ops.rnn.packing import Packing
from fluidtool.records import dataclass


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """The parameters of one direction of one layer, or their gradients."""

    inputs: Any
    recurrent: Any
    input_bias: Any
    recurrent_bias: Any


@dataclass(frozen=True, slots=True)
class LayerRun:
    """What a forward run leaves: hidden states (packed), the states per sequence at its end, and what backward needs."""

    hidden: Any
    final: tuple[Any, ...]
    kept: Any


@dataclass(frozen=True, slots=True)
class LayerGradients:
    """Gradients of the layer's packed input, of its initial states (ordered) and of its weights."""

    inputs: Any
    initial: tuple[Any, ...]
    weights: LayerWeights


class Layer(Protocol):
    """A kind of layer. Initial and final states are ordered: longest sequence first."""

    @property
    def gates(self) -> int:
        """How many gates: the weights have that many times the hidden size of rows."""

    def forward(
        self, xp: Any, packing: Packing, inputs: Any, weights: LayerWeights, initial: tuple[Any, ...]
    ) -> LayerRun:
        """Run over packed inputs."""

    def backward(
        self,
        xp: Any,
        packing: Packing,
        inputs: Any,
        weights: LayerWeights,
        initial: tuple[Any, ...],
        run: LayerRun,
        hidden_grad: Any,
        final_grad: tuple[Any, ...],
    ) -> LayerGradients:
        """Gradients; hidden_grad is packed and may be written into."""


def _final(packing: Packing, packed: Any, initial: Any) -> Any:
    """The last row of each sequence, the initial state of an empty one."""
    final = initial.copy()
    final[: packing.first] = packed[packing.last_index]
    return final


def _initial_gradient(packing: Packing, final_grad: Any, initial_grad: Any) -> Any:
    """Empty sequences hand the gradient of their final state straight on."""
    initial_grad[packing.first :] = final_grad[packing.first :]
    return initial_grad


def _weight_gradients(inputs: Any, before: Any, sums_grad: Any, recurrent_grad: Any) -> LayerWeights:
    return LayerWeights(
        sums_grad.T @ inputs, recurrent_grad.T @ before, sums_grad.sum(axis=0), recurrent_grad.sum(axis=0)
    )


def _reordered(xp: Any, array: Any, order: tuple[int, ...]) -> Any:
    """Blocks of rows in another order."""
    size = array.shape[0] // len(order)
    return xp.concatenate([array[i * size : (i + 1) * size] for i in order])


@dataclass(frozen=True, slots=True)
class LstmLayer:
    """Gates stand as input, forget, candidate, output; states are hidden and cell."""

    gates: int = 4
    cell: LstmCell = LstmCell(FULL_SIGMOID, TANH, TANH)

    def forward(
        self, xp: Any, packing: Packing, inputs: Any, weights: LayerWeights, initial: tuple[Any, ...]
    ) -> LayerRun:
        """h = o * tanh(c), c = f * c' + i * g."""
        inner = (2, 0, 1, 3)
        bias = _reordered(xp, weights.input_bias + weights.recurrent_bias, inner)
        sums = inputs @ _reordered(xp, weights.inputs, inner).T + bias
        recurrent = _reordered(xp, weights.recurrent, inner).T
        run = run_forward(xp, packing, sums, recurrent, self.cell, *initial)
        final = (_final(packing, run.hidden, initial[0]), _final(packing, run.state, initial[1]))
        return LayerRun(run.hidden, final, run)

    def backward(
        self,
        xp: Any,
        packing: Packing,
        inputs: Any,
        weights: LayerWeights,
        initial: tuple[Any, ...],
        run: LayerRun,
        hidden_grad: Any,
        final_grad: tuple[Any, ...],
    ) -> LayerGradients:
        """Backpropagation through time."""
        kept: LstmRun = run.kept
        state_grad = xp.zeros_like(kept.state)
        hidden_grad[packing.last_index] += final_grad[0][: packing.first]
        state_grad[packing.last_index] = final_grad[1][: packing.first]
        recurrent = _reordered(xp, weights.recurrent, (2, 0, 1, 3)).T
        grads = run_backward(xp, packing, kept, recurrent, self.cell, initial[1], hidden_grad, state_grad=state_grad)
        sums_grad = _reordered(xp, grads.gates.T, (1, 2, 0, 3)).T
        before = packing.one_step_before(xp, run.hidden, initial[0])
        first = (
            _initial_gradient(packing, final_grad[0], grads.h0),
            _initial_gradient(packing, final_grad[1], grads.c0),
        )
        return LayerGradients(
            sums_grad @ weights.inputs, first, _weight_gradients(inputs, before, sums_grad, sums_grad)
        )


@dataclass(frozen=True, slots=True)
class GruLayer:
    """Gates stand as reset, update, candidate; h = (1 - z) * n + z * h', n = tanh(x W + b + r * (h' R + b'))."""

    gates: int = 3

    def forward(
        self, xp: Any, packing: Packing, inputs: Any, weights: LayerWeights, initial: tuple[Any, ...]
    ) -> LayerRun:
        """Keeps the activated gates and the recurrent part of the candidate's sum."""
        (h0,) = initial
        size = h0.shape[1]
        gates = inputs @ weights.inputs.T + weights.input_bias
        hidden, inner = (xp.empty((len(gates), size), dtype=gates.dtype) for _ in range(2))
        for begin, end, start in packing.steps():
            alive = end - begin
            old = hidden[start : start + alive] if start >= 0 else h0[:alive]
            step = gates[begin:end]
            recurrent = old @ weights.recurrent.T + weights.recurrent_bias
            step[:, : 2 * size] = FULL_SIGMOID.forward(xp, step[:, : 2 * size] + recurrent[:, : 2 * size])
            inner[begin:end] = recurrent[:, 2 * size :]
            reset, update = step[:, :size], step[:, size : 2 * size]
            candidate = xp.tanh(step[:, 2 * size :] + reset * inner[begin:end])
            step[:, 2 * size :] = candidate
            hidden[begin:end] = candidate + update * (old - candidate)
        return LayerRun(hidden, (_final(packing, hidden, h0),), (gates, inner))

    def backward(
        self,
        xp: Any,
        packing: Packing,
        inputs: Any,
        weights: LayerWeights,
        initial: tuple[Any, ...],
        run: LayerRun,
        hidden_grad: Any,
        final_grad: tuple[Any, ...],
    ) -> LayerGradients:
        """Backpropagation through time."""
        (h0,) = initial
        size, (gates, inner) = h0.shape[1], run.kept
        hidden_grad[packing.last_index] += final_grad[0][: packing.first]
        before = packing.one_step_before(xp, run.hidden, h0)
        sums_grad, recurrent_grad = xp.empty_like(gates), xp.empty_like(gates)
        h0_grad = xp.zeros_like(h0)
        for begin, end, start in packing.backward_steps():
            alive = end - begin
            grad, old = hidden_grad[begin:end], before[begin:end]
            reset, update, candidate = (gates[begin:end, i * size : (i + 1) * size] for i in range(3))
            candidate_grad = TANH.backward(candidate, grad * (1 - update))
            sums = sums_grad[begin:end]
            sums[:, :size] = FULL_SIGMOID.backward(reset, candidate_grad * inner[begin:end])
            sums[:, size : 2 * size] = FULL_SIGMOID.backward(update, grad * (old - candidate))
            sums[:, 2 * size :] = candidate_grad
            recurrent = recurrent_grad[begin:end]
            recurrent[...] = sums
            recurrent[:, 2 * size :] *= reset
            old_grad = grad * update + recurrent @ weights.recurrent
            if start >= 0:
                hidden_grad[start : start + alive] += old_grad
            else:
                h0_grad[:alive] = old_grad
        return LayerGradients(
            sums_grad @ weights.inputs,
            (_initial_gradient(packing, final_grad[0], h0_grad),),
            _weight_gradients(inputs, before, sums_grad, recurrent_grad),
        )


@dataclass(frozen=True, slots=True)
class PlainLayer:
    """h = activation(x W + b + h' R + b')."""

    activation: Activation
    gates: int = 1

    def forward(
        self, xp: Any, packing: Packing, inputs: Any, weights: LayerWeights, initial: tuple[Any, ...]
    ) -> LayerRun:
        """Keeps nothing but the hidden states."""
        (h0,) = initial
        hidden = inputs @ weights.inputs.T + (weights.input_bias + weights.recurrent_bias)
        for begin, end, start in packing.steps():
            alive = end - begin
            old = hidden[start : start + alive] if start >= 0 else h0[:alive]
            hidden[begin:end] = self.activation.forward(xp, hidden[begin:end] + old @ weights.recurrent.T)
        return LayerRun(hidden, (_final(packing, hidden, h0),), None)

    def backward(
        self,
        xp: Any,
        packing: Packing,
        inputs: Any,
        weights: LayerWeights,
        initial: tuple[Any, ...],
        run: LayerRun,
        hidden_grad: Any,
        final_grad: tuple[Any, ...],
    ) -> LayerGradients:
        """Backpropagation through time."""
        (h0,) = initial
        hidden_grad[packing.last_index] += final_grad[0][: packing.first]
        sums_grad, h0_grad = xp.empty_like(run.hidden), xp.zeros_like(h0)
        for begin, end, start in packing.backward_steps():
            alive = end - begin
            sums_grad[begin:end] = self.activation.backward(run.hidden[begin:end], hidden_grad[begin:end])
            old_grad = sums_grad[begin:end] @ weights.recurrent
            if start >= 0:
                hidden_grad[start : start + alive] += old_grad
            else:
                h0_grad[:alive] = old_grad
        before = packing.one_step_before(xp, run.hidden, h0)
        return LayerGradients(
            sums_grad @ weights.inputs,
            (_initial_gradient(packing, final_grad[0], h0_grad),),
            _weight_gradients(inputs, before, sums_grad, sums_grad),
        )
