"""Recurrent cells, and `rnn`, which runs a cell over the steps of its inputs (Paddle 1.8.5 layers/rnn.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fluidtool.errors import UsageError
from fluidtool.fluid.checks import check_dtype, check_type, check_variable_and_dtype
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.arithmetic import elementwise_add, elementwise_mul, matmul
from fluidtool.fluid.layers.control_flow.static_rnn import StaticRNN
from fluidtool.fluid.layers.creation import fill_constant, fill_constant_batch_size_like
from fluidtool.fluid.layers.elementary import sigmoid, tanh
from fluidtool.fluid.layers.indexing import reverse
from fluidtool.fluid.layers.sequence import sequence_mask
from fluidtool.fluid.layers.shape import concat, shape, split, transpose
from fluidtool.fluid.nested import assert_same_structure, flatten, is_sequence, map_structure, pack_sequence_as
from fluidtool.fluid.param_attr import ParamAttr
from fluidtool.ir import Variable, unique_name

REAL = ("float32", "float64")
Activation = Callable[[Variable], Variable]


# ---------------------------------------------------------------- cells
class RNNCell:
    """The base of cells: `call(inputs, states)` returns a step's outputs and its new states."""

    def call(self, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any]:
        """One step; overridden by every cell."""
        raise NotImplementedError("RNNCell must implement the call function.")

    def __call__(self, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any]:
        return self.call(inputs, states, **kwargs)

    def get_initial_states(
        self, batch_ref: Any, shape: Any = None, dtype: Any = "float32", init_value: float = 0, batch_dim_idx: int = 0
    ) -> Any:
        """States of `shape` (default: the cell's state_shape) filled with init_value, one row per row of batch_ref.

        shape nests lists of numbers, without the batch dimension or with -1 for it; dtype: one for all, or None for
        the cell's state_dtype.
        """
        reference = flatten(batch_ref)[0]
        check_variable_and_dtype(reference, "batch_ref", (*REAL, "int32", "int64"), "RNNCell")
        shapes = self.state_shape if shape is None else shape
        dtype = self._own_dtype() if dtype is None else dtype
        dtypes = iter(flatten(dtype) * len(_shapes(shapes)) if len(flatten(dtype)) == 1 else flatten(dtype))

        def filled(sizes: Sequence[int]) -> Variable:
            kind = next(dtypes)
            check_dtype(kind, "dtype", REAL, "RNNCell")
            full = list(sizes) if sizes[0] == -1 else [-1, *sizes]
            return fill_constant_batch_size_like(reference, full, kind, init_value, input_dim_idx=batch_dim_idx)

        return _map_shapes(filled, shapes)

    def _own_dtype(self) -> Any:
        try:
            return self.state_dtype
        except NotImplementedError:
            return "float32"

    @property
    def state_shape(self) -> Any:
        """The shapes of the states, without the batch dimension, nested as the states are."""
        raise NotImplementedError("Please add implementation for `state_shape` in the used cell.")

    @property
    def state_dtype(self) -> Any:
        """The data types of the states, nested as the states are, or one for all."""
        raise NotImplementedError("Please add implementation for `state_dtype` in the used cell.")


def _is_shape(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(size, int) for size in value)


def _map_shapes(function: Callable[[Sequence[int]], Any], shapes: Any) -> Any:
    if _is_shape(shapes):
        return function(shapes)
    if isinstance(shapes, dict):
        done = {key: _map_shapes(function, shapes[key]) for key in sorted(shapes)}
        return type(shapes)((key, done[key]) for key in shapes)
    if not is_sequence(shapes):
        raise UsageError(f"the shapes of states must be lists of numbers, found {shapes!r}")
    return type(shapes)([_map_shapes(function, part) for part in shapes])


def _shapes(shapes: Any) -> list[Any]:
    found: list[Any] = []
    _map_shapes(found.append, shapes)
    return found


class _Parameters:
    """The parameters of a cell: named after it, created when the size of its input is known."""

    def __init__(self, name: str, kind: str, param_attr: Any, bias_attr: Any, dtype: Any) -> None:
        unique_name.generate(name)
        self.helper = LayerHelper(kind, name=unique_name.generate(f"{name}/{kind}"))
        self.param_attr, self.bias_attr, self.dtype = param_attr, bias_attr, dtype

    def weight(self, shape: list[int], suffix: str = "") -> Variable:
        """A weight; its suffix is appended to the name in the cell's param_attr."""
        return self._create(self.param_attr, shape, suffix, is_bias=False)

    def bias(self, shape: list[int], suffix: str = "") -> Variable:
        """A bias; its suffix is appended to the name in the cell's bias_attr."""
        return self._create(self.bias_attr, shape, suffix, is_bias=True)

    def _create(self, argument: Any, shape: list[int], suffix: str, is_bias: bool) -> Variable:
        attr = ParamAttr.to_attr(argument)
        if not attr:
            raise UsageError(
                "the cells GRUCell and LSTMCell have weights and biases, found False for one of their attrs"
            )
        attr = attr.copy()
        attr.name = attr.name and attr.name + suffix
        created: Variable = self.helper.create_parameter(attr, shape, self.dtype, is_bias=is_bias)
        return created


class GRUCell(RNNCell):
    """A GRU: its output is its state, [n, hidden_size].

    r, u = gate_activation([x, h] W_g + b_g); c = activation([x, r * h] W_c + b_c); new h = u * h + (1 - u) * c.
    """

    def __init__(
        self,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Activation | None = None,
        activation: Activation | None = None,
        dtype: Any = "float32",
        name: str = "GRUCell",
    ) -> None:
        check_type(hidden_size, "hidden_size", int, "GRUCell")
        check_dtype(dtype, "dtype", REAL, "GRUCell")
        self.hidden_size = hidden_size
        self.gate_activation, self.activation = gate_activation or sigmoid, activation or tanh
        self._parameters = _Parameters(name, "BasicGRUUnit", param_attr, bias_attr, dtype)
        self._made: tuple[Variable, Variable, Variable, Variable] | None = None

    def _weights(self, input_size: int) -> tuple[Variable, Variable, Variable, Variable]:
        if self._made is None:
            make, size, rows = self._parameters, self.hidden_size, input_size + self.hidden_size
            self._made = (
                make.weight([rows, 2 * size], "_gate"),
                make.weight([rows, size], "_candidate"),
                make.bias([2 * size], "_gate"),
                make.bias([size], "_candidate"),
            )
        return self._made

    def call(self, inputs: Variable, states: Variable, **kwargs: Any) -> tuple[Variable, Variable]:
        """One step: inputs [n, features], states [n, hidden_size]."""
        check_variable_and_dtype(inputs, "inputs", REAL, "GRUCell")
        check_variable_and_dtype(states, "states", REAL, "GRUCell")
        gate_weight, weight, gate_bias, bias = self._weights(inputs.shape[-1])
        gates = elementwise_add(matmul(concat([inputs, states], 1), gate_weight), gate_bias)
        reset, update = split(self.gate_activation(gates), num_or_sections=2, dim=1)
        kept = reset * states  # type: ignore[operator]
        candidate = elementwise_add(matmul(concat([inputs, kept], 1), weight), bias)
        candidate = self.activation(candidate)
        hidden = update * states + (1 - update) * candidate  # type: ignore[operator]
        return hidden, hidden

    @property
    def state_shape(self) -> list[int]:
        """[hidden_size]."""
        return [self.hidden_size]


class LSTMCell(RNNCell):
    """An LSTM: its output is the hidden state, its states are [hidden, cell], [n, hidden_size] each.

    i, j, f, o = [x, h] W + b; new c = c * sigmoid(f + forget_bias) + sigmoid(i) * tanh(j); new h = tanh(c) * sigmoid(o).
    As in Paddle 1.8.5, these functions are used whatever activations are given.
    """

    def __init__(
        self,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Activation | None = None,
        activation: Activation | None = None,
        forget_bias: float = 1.0,
        dtype: Any = "float32",
        name: str = "LSTMCell",
    ) -> None:
        check_type(hidden_size, "hidden_size", int, "LSTMCell")
        check_dtype(dtype, "dtype", REAL, "LSTMCell")
        self.hidden_size = hidden_size
        self._parameters = _Parameters(name, "BasicLSTMUnit", param_attr, bias_attr, dtype)
        self._forget_bias = fill_constant([1], dtype=dtype, value=forget_bias)
        self._forget_bias.stop_gradient = False
        self._made: tuple[Variable, Variable] | None = None

    def _weights(self, input_size: int) -> tuple[Variable, Variable]:
        if self._made is None:
            make, size = self._parameters, self.hidden_size
            self._made = make.weight([input_size + size, 4 * size]), make.bias([4 * size])
        return self._made

    def call(self, inputs: Variable, states: Any, **kwargs: Any) -> tuple[Variable, list[Variable]]:
        """One step: inputs [n, features], states [hidden, cell]."""
        check_variable_and_dtype(inputs, "inputs", REAL, "LSTMCell")
        check_type(states, "states", list, "LSTMCell")
        for index, state in enumerate(states):
            check_variable_and_dtype(state, f"state[{index}]", REAL, "LSTMCell")
        hidden, cell = states
        weight, bias = self._weights(inputs.shape[-1])
        gates = elementwise_add(matmul(concat([inputs, hidden], 1), weight), bias)
        i, j, f, o = split(gates, num_or_sections=4, dim=-1)
        kept = elementwise_mul(cell, sigmoid(elementwise_add(f, self._forget_bias)))
        new_cell = elementwise_add(kept, elementwise_mul(sigmoid(i), tanh(j)))
        new_hidden = tanh(new_cell) * sigmoid(o)  # type: ignore[operator]
        return new_hidden, [new_hidden, new_cell]

    @property
    def state_shape(self) -> list[list[int]]:
        """[[hidden_size], [hidden_size]]."""
        return [[self.hidden_size], [self.hidden_size]]


# ---------------------------------------------------------------- a cell over steps
def rnn(
    cell: RNNCell,
    inputs: Any,
    initial_states: Any = None,
    sequence_length: Variable | None = None,
    time_major: bool = False,
    is_reverse: bool = False,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """The outputs of a cell over the steps of inputs, and its last states.

    inputs: [n, steps, …], or [steps, n, …] with time_major; outputs have the same layout. Beyond sequence_length [n], a row
    keeps its states. is_reverse: from the last step to the first.
    """
    check_type(inputs, "inputs", (Variable, list, tuple), "rnn")
    for index, each in enumerate(inputs if isinstance(inputs, (list, tuple)) else []):
        check_variable_and_dtype(each, f"inputs[{index}]", REAL, "rnn")
    check_type(initial_states, "initial_states", (Variable, list, tuple, type(None)), "rnn")
    check_type(sequence_length, "sequence_length", (Variable, type(None)), "rnn")
    if initial_states is None:
        initial_states = cell.get_initial_states(batch_ref=inputs, batch_dim_idx=1 if time_major else 0)
    for state in flatten(initial_states):
        state.stop_gradient = False
    if not time_major:
        inputs = map_structure(swap_batch_and_time, inputs)
    mask = None if sequence_length is None else _mask(sequence_length, inputs, initial_states)
    if is_reverse:
        inputs = map_structure(_backwards, inputs)
        mask = None if mask is None else _backwards(mask)
    outputs, new_states, collected = _run_steps(cell, inputs, initial_states, mask, kwargs)
    count = len(flatten(outputs))
    final_outputs = pack_sequence_as(outputs, collected[:count])
    final_states = pack_sequence_as(new_states, [state[-1] for state in collected[count:]])  # type: ignore[index]
    if is_reverse:
        final_outputs = map_structure(_backwards, final_outputs)
    if not time_major:
        final_outputs = map_structure(swap_batch_and_time, final_outputs)
    return final_outputs, final_states


def _run_steps(
    cell: RNNCell, inputs: Any, initial_states: Any, mask: Variable | None, kwargs: dict[str, Any]
) -> tuple[Any, Any, list[Variable]]:
    """One step's outputs and states, and all of them over the steps."""
    loop = StaticRNN()
    with loop.step():
        inputs = map_structure(loop.step_input, inputs)
        states = map_structure(loop.memory, initial_states)
        outputs, new_states = cell.call(inputs, map_structure(lambda state: state, states), **kwargs)
        assert_same_structure(states, new_states)
        if mask is not None:
            step_mask = loop.step_input(mask)
            new_states = map_structure(lambda old, new: _choose(new, old, step_mask), states, new_states)
        map_structure(loop.update_memory, states, new_states)
        map_structure(loop.step_output, outputs)
        map_structure(loop.step_output, new_states)
    collected = loop()
    return outputs, new_states, [collected] if isinstance(collected, Variable) else collected


def _choose(chosen: Variable, other: Variable, mask: Variable) -> Variable:
    """`chosen` in rows where mask [n] is 1, `other` where it is 0."""
    kept = elementwise_mul(chosen, mask, axis=0)
    negated: Variable = mask - 1  # type: ignore[operator, assignment]
    return kept - elementwise_mul(other, negated, axis=0)  # type: ignore[operator, no-any-return]


def _mask(sequence_length: Variable, inputs: Any, states: Any) -> Variable:
    """[steps, n]: 1 in the steps of each row's sequence."""
    steps = shape(flatten(inputs)[0])[0]  # type: ignore[index]
    dtype = flatten(states)[0].dtype
    return transpose(sequence_mask(sequence_length, maxlen=steps, dtype=dtype), [1, 0])


def swap_batch_and_time(x: Variable) -> Variable:
    """x with its first two dimensions exchanged."""
    return transpose(x, [1, 0, *range(2, len(x.shape))])


def _backwards(x: Variable) -> Variable:
    return reverse(x, axis=[0])
