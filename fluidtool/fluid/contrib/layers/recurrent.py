"""Recurrent networks of plain operators: basic_gru, basic_lstm and their units (Paddle 1.8.5 contrib rnn_impl.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fluidtool.fluid.layers import (
    GRUCell,
    LSTMCell,
    StaticRNN,
    concat,
    dropout,
    elementwise_mul,
    reshape,
    reverse,
    sequence_mask,
    shape,
    transpose,
)
from fluidtool.fluid.param_attr import ParamAttr
from fluidtool.ir import Variable
from fluidtool.records import dataclass

Activation = Callable[[Any], Any]
Step = Callable[[Variable, list[Variable]], list[Variable]]


class BasicGRUUnit:
    """One step of a GRU, whose parameters are created by the first call: unit(input, pre_hidden) is the new hidden state.

    Gates r, u and candidate c as `fluid.layers.GRUCell` computes them; names start with name_scope.
    """

    def __init__(
        self,
        name_scope: str,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Activation | None = None,
        activation: Activation | None = None,
        dtype: Any = "float32",
    ) -> None:
        self._cell = GRUCell(hidden_size, param_attr, bias_attr, gate_activation, activation, dtype, name_scope)

    def __call__(self, input: Variable, pre_hidden: Variable) -> Variable:
        """input [n, features], pre_hidden [n, hidden_size]."""
        return self._cell.call(input, pre_hidden)[0]


class BasicLSTMUnit:
    """One step of an LSTM: unit(input, pre_hidden, pre_cell) returns the new hidden state and the new cell state."""

    def __init__(
        self,
        name_scope: str,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Activation | None = None,
        activation: Activation | None = None,
        forget_bias: float = 1.0,
        dtype: Any = "float32",
    ) -> None:
        self._cell = LSTMCell(
            hidden_size, param_attr, bias_attr, gate_activation, activation, forget_bias, dtype, name_scope
        )

    def __call__(self, input: Variable, pre_hidden: Variable, pre_cell: Variable) -> tuple[Variable, Variable]:
        """input [n, features], both states [n, hidden_size]."""
        hidden, states = self._cell.call(input, [pre_hidden, pre_cell])
        return hidden, states[1]


@dataclass(frozen=True, slots=True)
class _Network:
    """The sizes that all directions and layers share; states: how many each layer has (1 GRU, 2 LSTM)."""

    hidden_size: int
    num_layers: int
    directions: int
    states: int
    dropout_prob: float | None
    dropout_implementation: str

    def initial(self, rnn: StaticRNN, rnn_input: Variable, given: list[Any], layer: int, direction: int) -> list[Any]:
        """The initial states of a layer: those given, or zeros."""
        if given:
            return [rnn.memory(init=state[layer, direction]) for state in given]
        sizes = [-1, self.hidden_size]
        return [rnn.memory(batch_ref=rnn_input, shape=sizes, ref_batch_dim_idx=1) for _ in range(self.states)]

    def one_way(
        self, rnn_input: Variable, steps: Sequence[Step], mask: Variable | None, given: list[Any], direction: int
    ) -> list[Variable]:
        """[outputs [steps, n, hidden], the last states [layers, n, hidden] …] of one direction."""
        rnn = StaticRNN()
        with rnn.step():
            step_input = rnn.step_input(rnn_input)
            step_mask = rnn.step_input(mask) if mask is not None else None
            for layer, step in enumerate(steps):
                before = self.initial(rnn, rnn_input, given, layer, direction)
                after = step(step_input, before)
                if step_mask is not None:
                    after = [_choose(new, old, step_mask) for new, old in zip(after, before, strict=True)]
                for old, new in zip(before, after, strict=True):
                    rnn.update_memory(old, new)
                for new in after:
                    rnn.step_output(new)
                step_input = after[0]
                if self.dropout_prob is not None and self.dropout_prob > 0.0:
                    step_input = dropout(
                        step_input, self.dropout_prob, dropout_implementation=self.dropout_implementation
                    )
            rnn.step_output(step_input)
        outputs: Any = rnn()
        last = [
            [outputs[layer * self.states + state][-1] for state in range(self.states)]
            for layer in range(self.num_layers)
        ]
        sizes = [self.num_layers, -1, self.hidden_size]
        return [outputs[-1], *(reshape(concat(list(states), axis=0), sizes) for states in zip(*last, strict=True))]

    def both_ways(self, forward: list[Variable], backward: list[Variable]) -> list[Variable]:
        """Outputs side by side, and the last states of both directions, layer by layer."""
        outputs = concat([forward[0], reverse(backward[0], axis=[0])], axis=2)
        sizes = [self.num_layers * self.directions, -1, self.hidden_size]
        pairs = zip(forward[1:], backward[1:], strict=True)
        return [outputs, *(reshape(concat(list(pair), axis=1), sizes) for pair in pairs)]


def _choose(new: Variable, old: Variable, mask: Any) -> Any:
    """`new` in rows where mask [n] is 1, `old` where it is 0."""
    kept: Any = elementwise_mul(new, mask, axis=0)
    return kept - elementwise_mul(old, mask - 1, axis=0)


def _named(attr: Any, suffix: str) -> Any:
    """A ParamAttr whose name is specific to the layer."""
    if not isinstance(attr, ParamAttr) or attr.name is None:
        return attr
    attr = attr.copy()
    attr.name += suffix
    return attr


def _run(
    network: _Network,
    input: Variable,
    initial: list[Variable | None],
    make_step: Callable[[str, str, int], Step],
    name: str,
    sequence_length: Variable | None,
    batch_first: bool,
) -> list[Variable]:
    """The whole network; make_step(name, 'fw' or 'bw', layer) creates a layer's unit."""
    layers = range(network.num_layers)
    forward = [make_step(f"{name}_layers_{layer}", "fw", layer) for layer in layers]
    backward: list[Step] = []
    if network.directions == 2:
        backward = [make_step(f"{name}_reverse_layers_{layer}", "bw", layer) for layer in layers]
    if batch_first:
        input = transpose(input, [1, 0, 2])
    mask = None
    if sequence_length is not None:
        longest: Any = shape(input)
        mask = transpose(sequence_mask(sequence_length, maxlen=longest[0], dtype="float32"), [1, 0])
    sizes = [network.num_layers, network.directions, -1, network.hidden_size]
    given = [reshape(state, sizes) for state in initial if state is not None]
    results = network.one_way(input, forward, mask, given, 0)
    if network.directions == 2:
        reversed_input = reverse(input, axis=[0])
        reversed_mask = reverse(mask, axis=[0]) if mask is not None else None
        results = network.both_ways(results, network.one_way(reversed_input, backward, reversed_mask, given, 1))
    if batch_first:
        results[0] = transpose(results[0], [1, 0, 2])
    return results


def basic_gru(
    input: Variable,
    init_hidden: Variable | None,
    hidden_size: int,
    num_layers: int = 1,
    sequence_length: Variable | None = None,
    dropout_prob: float | None = 0.0,
    bidirectional: bool = False,
    batch_first: bool = True,
    param_attr: Any = None,
    bias_attr: Any = None,
    gate_activation: Activation | None = None,
    activation: Activation | None = None,
    dtype: Any = "float32",
    name: str = "basic_gru",
) -> tuple[Variable, Variable]:
    """GRU layers over padded sequences: the outputs of the last layer and the last states of all.

    input: [n, steps, features], or [steps, n, features] without batch_first; outputs alike. init_hidden:
    [layers * directions, n, hidden_size], None for zeros; the last states alike. sequence_length [n]: beyond it a row
    keeps its state.
    """

    def make_step(scope: str, way: str, layer: int) -> Step:
        weights, biases = _named(param_attr, f"_{way}_w_{layer}"), _named(bias_attr, f"_{way}_b_{layer}")
        unit = BasicGRUUnit(scope, hidden_size, weights, biases, gate_activation, activation, dtype)
        return lambda step_input, states: [unit(step_input, states[0])]

    network = _Network(hidden_size, num_layers, 1 + bidirectional, 1, dropout_prob, "downgrade_in_infer")
    outputs, last = _run(network, input, [init_hidden], make_step, name, sequence_length, batch_first)
    return outputs, last


def basic_lstm(
    input: Variable,
    init_hidden: Variable | None,
    init_cell: Variable | None,
    hidden_size: int,
    num_layers: int = 1,
    sequence_length: Variable | None = None,
    dropout_prob: float | None = 0.0,
    bidirectional: bool = False,
    batch_first: bool = True,
    param_attr: Any = None,
    bias_attr: Any = None,
    gate_activation: Activation | None = None,
    activation: Activation | None = None,
    forget_bias: float = 1.0,
    dtype: Any = "float32",
    name: str = "basic_lstm",
) -> tuple[Variable, Variable, Variable]:
    """LSTM layers over padded sequences: outputs, last hidden states and last cell states, as `basic_gru` has them."""

    def make_step(scope: str, way: str, layer: int) -> Step:
        weights = _named(param_attr, f"_{way}_w_{layer}")
        named_bias = isinstance(bias_attr, ParamAttr) and bias_attr.name is not None
        # Paddle gives the backward direction's biases the weights' attribute when theirs has no name.
        biases = _named(bias_attr, f"_{way}_b_{layer}") if named_bias or way == "fw" else param_attr
        unit = BasicLSTMUnit(scope, hidden_size, weights, biases, gate_activation, activation, forget_bias, dtype)
        return lambda step_input, states: list(unit(step_input, states[0], states[1]))

    network = _Network(hidden_size, num_layers, 1 + bidirectional, 2, dropout_prob, "upscale_in_train")
    initial = [init_hidden, init_cell] if init_hidden is not None else []
    outputs, hidden, cell = _run(network, input, initial, make_step, name, sequence_length, batch_first)
    return outputs, hidden, cell
