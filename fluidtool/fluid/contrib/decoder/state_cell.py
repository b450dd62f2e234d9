"""StateCell: what one step of a decoder computes, for training and for beam search (Paddle 1.8.5 contrib/decoder)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.fluid import layers
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.ir import Block, Variable, unique_name
from fluidtool.proto.enums import VarType

Updater = Callable[["StateCell"], None]


class State(Protocol):
    """One state between the steps of a decoder."""

    def get(self) -> Variable: ...
    def update(self, value: Variable) -> None: ...


class Decoder(Protocol):
    """What a StateCell requires of its decoder."""

    def make_state(self, start: InitState) -> State: ...


class InitState:
    """The initial value of a state: `init`, or `value` in the shape given, with as many rows as `init_boot`.

    need_reorder: the rows belong to sequences and are sorted as a DynamicRNN sorts them. Raises UsageError without both.
    """

    def __init__(
        self,
        init: Variable | None = None,
        shape: Any = None,
        value: float = 0.0,
        init_boot: Variable | None = None,
        need_reorder: bool = False,
        dtype: Any = "float32",
    ) -> None:
        if init is None:
            if init_boot is None:
                raise UsageError("init_boot must be provided to infer the shape of InitState .")
            init = layers.fill_constant_batch_size_like(input=init_boot, value=value, shape=shape, dtype=dtype)
        self.value, self.need_reorder = init, need_reorder


class MemoryState:
    """A state kept by a DynamicRNN."""

    def __init__(self, rnn: layers.DynamicRNN, start: InitState) -> None:
        self._rnn = rnn
        self._memory = rnn.memory(init=start.value, need_reorder=start.need_reorder)

    def get(self) -> Variable:
        """The state before this step."""
        memory: Variable = self._memory
        return memory

    def update(self, value: Variable) -> None:
        """The state after this step."""
        self._rnn.update_memory(self._memory, value)


class ArrayState:
    """A state kept in an array of the block around a loop."""

    def __init__(self, block: Block, start: InitState) -> None:
        self._array = block.create_var(
            name=unique_name.generate("array_state_array"), type=VarType.LOD_TENSOR_ARRAY, dtype=start.value.dtype
        )
        self._counter = block.create_var(
            name=unique_name.generate("array_state_counter"), type=VarType.LOD_TENSOR, dtype="int64"
        )
        attrs = {"shape": [1], "dtype": int(VarType.INT64), "value": 0.0, "force_cpu": True}
        block.append_op(type="fill_constant", inputs={}, outputs={"Out": [self._counter]}, attrs=attrs)
        self._counter.stop_gradient = True
        inputs = {"X": start.value, "I": self._counter}
        block.append_op(type="write_to_array", inputs=inputs, outputs={"Out": self._array})

    def get(self) -> Variable:
        """The state before this step."""
        state: Variable = layers.array_read(array=self._array, i=self._counter)
        return state

    def update(self, value: Variable) -> None:
        """The state after this step."""
        layers.increment(x=self._counter, value=1, in_place=True)
        layers.array_write(value, array=self._array, i=self._counter)


class StateCell:
    """inputs: input names of a step (with None); states: an InitState by name; out_state: the state that is the output.

    `@cell.state_updater` marks the function that computes the states of a step with `get_input`, `get_state` and
    `set_state`. Raises UsageError, ArgumentTypeError.
    """

    def __init__(
        self,
        inputs: Mapping[str, Variable | None],
        states: Mapping[str, InitState],
        out_state: str,
        name: str | None = None,
    ) -> None:
        LayerHelper("state_cell", name=name)
        if not all(isinstance(state, InitState) for state in states.values()):
            raise UsageError(
                f"state must be an InitState object, found {', '.join(type(state).__name__ for state in states.values())}"
            )
        if out_state not in states:
            raise UsageError(f"out_state must be one state in states, found {out_state!r} and {', '.join(states)}")
        self.inputs: dict[str, Variable | None] = dict(inputs)
        self.state_names = list(states)
        self._current: dict[str, Any] = dict(states)
        self._out_state = out_state
        self._decoder: Decoder | None = None
        self._switched = False
        self._states: dict[str, dict[int, State]] = {}
        self._updater: Updater | None = None

    # -- for decoders
    def enter(self, decoder: Decoder) -> None:
        """Attach to this decoder."""
        if self._decoder is not None:
            raise UsageError("StateCell has already entered a decoder.")
        self._decoder, self._switched = decoder, False

    def leave(self, decoder: Decoder) -> None:
        """Detach from this decoder."""
        if self._decoder is None:
            raise UsageError("StateCell not in decoder, invalid leaving operation.")
        if self._decoder is not decoder:
            raise UsageError("Inconsistent decoder object in StateCell.")
        self._decoder, self._switched = None, False

    def _switch(self) -> None:
        if self._decoder is None or self._switched:
            return
        for name in self.state_names:
            if name not in self._states:
                self._states[name] = {id(self._decoder): self._decoder.make_state(self._current[name])}
            self._current[name] = self._states[name][id(self._decoder)].get()
        self._switched = True

    # -- for users
    def get_state(self, state_name: str) -> Any:
        """The state before this step, or its replacement by `set_state`."""
        self._switch()
        if state_name not in self._current:
            raise UsageError(f"Unknown state {state_name}. There are {', '.join(self._current)}")
        return self._current[state_name]

    def get_input(self, input_name: str) -> Variable:
        """An input of this step."""
        found = self.inputs.get(input_name)
        if found is None:
            raise UsageError(f"Invalid input {input_name}.")
        return found

    def set_state(self, state_name: str, state_value: Variable) -> None:
        """The state after this step."""
        self._current[state_name] = state_value

    def state_updater(self, updater: Updater) -> Updater:
        """Decorator: the function that computes the states of a step from a StateCell."""
        self._updater = updater

        def update(cell: StateCell) -> None:
            if cell is self:
                raise ArgumentTypeError("Updater should only accept a StateCell object as argument.")
            updater(cell)

        return update

    def compute_state(self, inputs: Mapping[str, Variable]) -> None:
        """Run the updater with these inputs."""
        self._switch()
        for name, value in inputs.items():
            if name not in self.inputs:
                raise UsageError(f"Unknown input {name}. Please make sure {name} in input place holder.")
            self.inputs[name] = value
        if self._updater is None:
            raise UsageError("a StateCell needs a function decorated with @cell.state_updater")
        self._updater(self)

    def update_states(self) -> None:
        """Keep the states for the next step."""
        self._switch()
        for name, kept in self._states.items():
            if id(self._decoder) not in kept:
                raise UsageError("Unknown decoder object, please make sure switch_decoder been invoked.")
            kept[id(self._decoder)].update(self._current[name])

    def out_state(self) -> Any:
        """The state that is the output."""
        return self._current[self._out_state]
