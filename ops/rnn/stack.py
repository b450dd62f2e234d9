"""A stack of recurrent layers, one or two directions each, with dropout between them: what rnn and cudnn_lstm share."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import OpContext
from fluidtool.ops.rnn.packing import Packing, pack_runs
from fluidtool.ops.rnn.stacked_layers import Layer, LayerRun, LayerWeights
from fluidtool.records import dataclass


@dataclass(frozen=True, slots=True)
class Stack:
    """layers[layer][direction]: weights. masks [layers - 1, rows, width]: dropout masks, already scaled, or None."""

    kind: Layer
    layers: list[list[LayerWeights]]
    packings: list[Packing]
    masks: Any = None

    def initial(self, states: list[Any], layer: int, direction: int) -> tuple[Any, ...]:
        """The initial states (each [layers * directions, N, H]) of one run, ordered."""
        index = layer * len(self.packings) + direction
        return tuple(self.packings[direction].ordered(state[index]) for state in states)


@dataclass(frozen=True, slots=True)
class StackRun:
    """Outputs [rows, directions * H], final states like the initial ones; per layer its input; per run its record."""

    out: Any
    final: list[Any]
    inputs: list[Any]
    runs: list[list[LayerRun]]


def sequence_lengths(ctx: OpContext, SequenceLength: Any, steps: int, sequences: int) -> Any:
    """The lengths of all sequences on the host; raises OperatorError where they do not fit."""
    lengths = ctx.np.asarray(ctx.host(SequenceLength)).reshape(-1).astype(ctx.np.int64)
    fits = len(lengths) == sequences and bool(((lengths >= 0) & (lengths <= steps)).all())
    if not fits:
        raise ctx.error(f"input SequenceLength must be {sequences} numbers from 0 to {steps}, found {lengths.tolist()}")
    return lengths


def packings(ctx: OpContext, steps: int, sequences: int, lengths: Any, directions: int) -> list[Packing]:
    """The packing of [steps, sequences] rows for each direction; lengths: host integers or None for all of them."""
    np = ctx.np
    if lengths is None:
        lengths = np.full(sequences, steps, dtype=np.int64)
    firsts = np.arange(sequences)
    return [pack_runs(ctx, firsts, lengths, is_reverse, stride=sequences) for is_reverse in (False, True)[:directions]]


def dropout_masks(ctx: OpContext, shape: tuple[int, int, int], probability: float, seed: int, dtype: Any) -> Any:
    """Masks of 0 and 1 / (1 - probability)."""
    kept = ctx.random(shape, "float64", max(seed, 0)) >= probability
    scale = 1 / (1 - probability) if probability < 1 else 0.0
    return kept.astype(dtype) * ctx.np.dtype(dtype).type(scale)


def run_stack(xp: Any, stack: Stack, rows: Any, states: list[Any]) -> StackRun:
    """Run rows [steps * N, inputs] through every layer."""
    final = [xp.empty_like(state) for state in states]
    inputs: list[Any] = []
    runs: list[list[LayerRun]] = []
    for layer, weights in enumerate(stack.layers):
        if layer and stack.masks is not None:
            rows = rows * stack.masks[layer - 1]
        inputs.append(rows)
        runs.append([])
        outs = []
        for direction, packing in enumerate(stack.packings):
            run = stack.kind.forward(
                xp, packing, packing.pack(rows), weights[direction], stack.initial(states, layer, direction)
            )
            runs[-1].append(run)
            outs.append(packing.unpack(xp, run.hidden, len(rows)))
            for target, value in zip(final, run.final, strict=True):
                target[layer * len(stack.packings) + direction] = packing.unordered(xp, value)
        rows = outs[0] if len(outs) == 1 else xp.concatenate(outs, axis=1)
    return StackRun(rows, final, inputs, runs)


def stack_gradients(
    xp: Any, stack: Stack, run: StackRun, states: list[Any], out_grad: Any, final_grads: list[Any]
) -> tuple[Any, list[Any], list[list[LayerWeights]]]:
    """Gradients of the rows, of the initial states, and of the weights."""
    state_grads = [xp.empty_like(state) for state in states]
    weight_grads: list[list[LayerWeights]] = []
    for layer in reversed(range(len(stack.layers))):
        inputs = run.inputs[layer]
        inputs_grad = xp.zeros_like(inputs)
        weight_grads.insert(0, [])
        for direction, packing in enumerate(stack.packings):
            size = states[0].shape[2]
            index = layer * len(stack.packings) + direction
            grads = stack.kind.backward(
                xp,
                packing,
                packing.pack(inputs),
                stack.layers[layer][direction],
                stack.initial(states, layer, direction),
                run.runs[layer][direction],
                packing.pack(out_grad[:, direction * size : (direction + 1) * size]),
                tuple(packing.ordered(grad[index]) for grad in final_grads),
            )
            inputs_grad += packing.unpack(xp, grads.inputs, len(inputs))
            weight_grads[0].append(grads.weights)
            for target, value in zip(state_grads, grads.initial, strict=True):
                target[index] = packing.unordered(xp, value)
        out_grad = inputs_grad
        if layer and stack.masks is not None:
            out_grad = out_grad * stack.masks[layer - 1]
    return out_grad, state_grads, weight_grads
