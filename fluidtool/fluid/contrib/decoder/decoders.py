"""TrainingDecoder and BeamSearchDecoder: a StateCell over the steps of targets, or of a search (Paddle 1.8.5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.fluid import layers
from fluidtool.fluid.contrib.decoder.state_cell import ArrayState, InitState, MemoryState, State, StateCell
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.ir import Block, Variable, unique_name
from fluidtool.proto.enums import VarType

BEFORE, WITHIN, AFTER = range(3)


class TrainingDecoder:
    """Runs a StateCell over known sequences: `with decoder.block(): …` with `step_input` and `output`."""

    def __init__(self, state_cell: StateCell, name: str | None = None) -> None:
        LayerHelper("training_decoder", name=name)
        self._status = BEFORE
        self.dynamic_rnn = layers.DynamicRNN()
        self._state_cell = state_cell
        state_cell.enter(self)

    def make_state(self, start: InitState) -> State:
        """A state of this decoder."""
        return MemoryState(self.dynamic_rnn, start)

    @contextmanager
    def block(self) -> Iterator[None]:
        """The operators within are one step."""
        if self._status != BEFORE:
            raise UsageError("decoder.block() can only be invoked once")
        self._status = WITHIN
        with self.dynamic_rnn.block():
            yield
        self._status = AFTER
        self._state_cell.leave(self)

    @property
    def state_cell(self) -> StateCell:
        """The cell, within the block."""
        self._within("state_cell")
        return self._state_cell

    def step_input(self, x: Variable) -> Any:
        """The current step of sequences."""
        self._within("step_input")
        return self.dynamic_rnn.step_input(x)

    def static_input(self, x: Variable) -> Any:
        """A value that is the same in every step."""
        self._within("static_input")
        return self.dynamic_rnn.static_input(x)

    def output(self, *outputs: Variable) -> None:
        """The decoder's output of each step."""
        self._within("output")
        self.dynamic_rnn.output(*outputs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs of all steps."""
        if self._status != AFTER:
            raise UsageError("Output of training decoder can only be visited outside the block.")
        return self.dynamic_rnn(*args, **kwargs)

    def _within(self, method: str) -> None:
        if self._status != WITHIN:
            raise UsageError(f"{method} should be invoked inside block of TrainingDecoder object.")


class BeamSearchDecoder:
    """Searches the best sequences: each step continues with the words that the previous step found.

    init_ids, init_scores: int64 and float32 with two LoD levels. target_dict_dim, word_dim: the size of the embedding
    table. input_var_dict: further inputs of the cell. topk_size: words considered, beam_size: words kept. `decode`
    builds the search; calling the decoder returns (ids, scores) of the sentences found.
    """

    def __init__(
        self,
        state_cell: StateCell,
        init_ids: Variable,
        init_scores: Variable,
        target_dict_dim: int,
        word_dim: int,
        input_var_dict: Mapping[str, Variable] | None = None,
        topk_size: int = 50,
        sparse_emb: bool = True,
        max_len: int = 100,
        beam_size: int = 1,
        end_id: int = 1,
        name: str | None = None,
    ) -> None:
        self._helper = LayerHelper("beam_search_decoder", name=name)
        self._counter = layers.zeros(shape=[1], dtype="int64")
        self._counter.stop_gradient = True
        self._max_len = layers.fill_constant(shape=[1], dtype="int64", value=max_len)
        limit = layers.fill_constant(shape=[1], dtype="int64", value=max_len)
        self._condition = layers.less_than(x=self._counter, y=limit)
        self._loop = layers.While(self._condition)
        self._state_cell = state_cell
        state_cell.enter(self)
        self._status = BEFORE
        self._zero = layers.fill_constant(shape=[1], value=0, dtype="int64", force_cpu=True)
        self._arrays: dict[str, Variable] = {}
        self._links: list[tuple[Variable, Variable]] = []
        self._ids_array: Variable | None = None
        self._scores_array: Variable | None = None
        self._beam_size, self._end_id, self._topk_size = beam_size, end_id, topk_size
        self._init_ids, self._init_scores = init_ids, init_scores
        self._target_dict_dim, self._word_dim, self._sparse_emb = target_dict_dim, word_dim, sparse_emb
        self._input_var_dict = dict(input_var_dict or {})

    def make_state(self, start: InitState) -> State:
        """A state of this decoder."""
        return ArrayState(self._parent_block(), start)

    @contextmanager
    def block(self) -> Iterator[None]:
        """The operators within are one step of the search."""
        if self._status != BEFORE:
            raise UsageError("block() can only be invoke once.")
        self._status = WITHIN
        with self._loop.block():
            yield
            with layers.Switch() as switch, switch.case(self._condition):
                layers.increment(x=self._counter, value=1.0, in_place=True)
                for value, array in self._links:
                    layers.array_write(x=value, i=self._counter, array=array)
                layers.less_than(x=self._counter, y=self._max_len, cond=self._condition)
        self._status = AFTER
        self._state_cell.leave(self)

    @property
    def state_cell(self) -> StateCell:
        """The cell, within the block."""
        self._within("state_cell")
        return self._state_cell

    def early_stop(self) -> None:
        """End the search with this step."""
        layers.fill_constant(shape=[1], value=0, dtype="bool", force_cpu=True, out=self._condition)

    def decode(self) -> None:
        """The search; override it for a different one."""
        with self.block():
            ids = self.read_array(init=self._init_ids, is_ids=True)
            scores = self.read_array(init=self._init_scores, is_scores=True)
            size = [self._target_dict_dim, self._word_dim]
            words = layers.embedding(input=ids, size=size, dtype="float32", is_sparse=self._sparse_emb)
            inputs, read = self._inputs(scores)
            self._expand_states(scores)
            for name in self._state_cell.inputs:
                inputs.setdefault(name, words)
            self.state_cell.compute_state(inputs=inputs)
            found = self._search(ids, scores)
            with layers.Switch() as switch:
                with switch.case(layers.is_empty(found[0])):
                    self.early_stop()
                with switch.default():
                    self.state_cell.update_states()
                    self.update_array(ids, found[0])
                    self.update_array(scores, found[1])
                    for name, var in read.items():
                        self.update_array(var, inputs[name])

    def _inputs(self, scores: Variable) -> tuple[dict[str, Variable], dict[str, Variable]]:
        """The further inputs, expanded to the beams, and the form in which they are read."""
        inputs, read = {}, {}
        for name, var in self._input_var_dict.items():
            if name not in self.state_cell.inputs:
                raise UsageError(f"Variable {name} not found in StateCell!")
            read[name] = self.read_array(init=var)
            inputs[name] = layers.sequence_expand(read[name], scores)
        return inputs, read

    def _expand_states(self, scores: Variable) -> None:
        for name in self._state_cell.state_names:
            state = self.state_cell.get_state(name)
            self.state_cell.set_state(name, layers.sequence_expand(state, scores))

    def _search(self, ids: Variable, scores: Variable) -> Any:
        """(ids, scores) of the best continuations."""
        state = layers.lod_reset(x=self.state_cell.out_state(), y=scores)
        chances = layers.fc(input=state, size=self._target_dict_dim, act="softmax")
        best, indices = layers.topk(chances, k=self._topk_size)
        logarithms = layers.log(x=best)
        summed = layers.elementwise_add(x=logarithms, y=layers.reshape(scores, shape=[-1]), axis=0)
        return layers.beam_search(ids, scores, indices, summed, self._beam_size, end_id=1, level=0)

    def read_array(self, init: Variable, is_ids: bool = False, is_scores: bool = False) -> Variable:
        """The value that a step reads from an array that starts with `init`."""
        self._within("read_array")
        if is_ids and is_scores:
            raise UsageError("Shouldn't mark current array be ids array and scores array at the same time.")
        if not isinstance(init, Variable):
            raise ArgumentTypeError(f"The input argument `init` must be a Variable, found {type(init).__name__}.")
        block = self._parent_block()
        name = unique_name.generate("beam_search_decoder_array")
        array = block.create_var(name=name, type=VarType.LOD_TENSOR_ARRAY, dtype=init.dtype)
        block.append_op(type="write_to_array", inputs={"X": init, "I": self._zero}, outputs={"Out": array})
        if is_ids:
            self._ids_array = array
        elif is_scores:
            self._scores_array = array
        value: Variable = layers.array_read(array=array, i=self._counter)
        self._arrays[value.name] = array
        return value

    def update_array(self, array: Variable, value: Variable) -> None:
        """What the next step reads in place of the value from `read_array`."""
        self._within("update_array")
        for argument, given in (("array", array), ("value", value)):
            if not isinstance(given, Variable):
                raise ArgumentTypeError(f"The input argument `{argument}` must be a Variable.")
        if array.name not in self._arrays:
            raise UsageError("Please invoke read_array before update_array.")
        self._links.append((value, self._arrays[array.name]))

    def __call__(self) -> Any:
        """(ids, scores) of the sentences found."""
        if self._status != AFTER:
            raise UsageError("Output of BeamSearchDecoder object can only be visited outside the block.")
        if self._ids_array is None or self._scores_array is None:
            raise UsageError("the block of a BeamSearchDecoder must read its ids and its scores with read_array")
        return layers.beam_search_decode(
            ids=self._ids_array, scores=self._scores_array, beam_size=self._beam_size, end_id=self._end_id
        )

    def _parent_block(self) -> Block:
        block = self._helper.main_program.current_block().parent
        if block is None:
            raise UsageError("a BeamSearchDecoder reads its arrays within its block")
        return block

    def _within(self, method: str) -> None:
        if self._status != WITHIN:
            raise UsageError(f"{method} should be invoked inside block of BeamSearchDecoder object.")
