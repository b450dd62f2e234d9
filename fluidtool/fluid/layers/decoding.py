"""dynamic_decode: a decoder that runs step by step until all of its sequences have ended (Paddle 1.8.5 layers/rnn.py)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from fluidtool.fluid.checks import convert_dtype
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.arithmetic import (
    elementwise_add,
    elementwise_mul,
    equal,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
)
from fluidtool.fluid.layers.cells import swap_batch_and_time
from fluidtool.fluid.layers.control_flow.arrays import array_read, array_write, increment
from fluidtool.fluid.layers.control_flow.blocks import parent_block
from fluidtool.fluid.layers.control_flow.while_loop import While
from fluidtool.fluid.layers.creation import assign, cast, fill_constant, fill_constant_batch_size_like, zeros_like
from fluidtool.fluid.layers.elementary import softmax
from fluidtool.fluid.layers.indexing import pad
from fluidtool.fluid.layers.random import sampling_id
from fluidtool.fluid.layers.reduction import argmax, reduce_all
from fluidtool.fluid.layers.shape import slice, squeeze, tensor_array_to_tensor
from fluidtool.fluid.nested import map_structure
from fluidtool.ir import Variable
from fluidtool.proto.enums import VarType


# ---------------------------------------------------------------- decoders
class Decoder:
    """What dynamic_decode runs. Inputs, states and outputs may nest Variables."""

    def initialize(self, inits: Any) -> tuple[Any, Any, Variable]:
        """The inputs and states of the first step, and which sequences have already ended (bool)."""
        raise NotImplementedError(f"{type(self).__name__} has no method initialize")

    def step(self, time: Variable, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any, Any, Variable]:
        """One step: its outputs, the next states, the next inputs, and which sequences have ended (bool)."""
        raise NotImplementedError(f"{type(self).__name__} has no method step")

    def finalize(self, outputs: Any, final_states: Any, sequence_lengths: Variable) -> tuple[Any, Any]:
        """Postprocesses the outputs of all steps [steps, …] and the last states; optional."""
        raise NotImplementedError(f"{type(self).__name__} has no method finalize")


def dynamic_decode(
    decoder: Decoder,
    inits: Any = None,
    max_step_num: int | None = None,
    output_time_major: bool = False,
    impute_finished: bool = False,
    is_test: bool = False,
    return_length: bool = False,
    **kwargs: Any,
) -> tuple[Any, ...]:
    """The outputs [n, steps, …] (or [steps, n, …]) of a decoder, its last states, and the lengths if return_length.

    max_step_num: stop at the latest after this step. impute_finished: ended sequences keep their states. is_test: do not
    keep steps for a backward pass.
    """
    inputs, states, finished = decoder.initialize(inits)
    finished.stop_gradient = True
    step_idx = fill_constant(shape=[1], dtype="int64", value=0)
    condition = logical_not(reduce_all(finished))
    limit = None if max_step_num is None else fill_constant(shape=[1], dtype="int64", value=max_step_num)
    loop = While(condition, is_test=is_test)
    lengths = cast(zeros_like(finished), "int64")
    lengths.stop_gradient = True
    carried = (_Carried if is_test else _Recorded)(step_idx, inputs, states)
    with loop.block():
        now_inputs, now_states = carried.read()
        outputs, next_states, next_inputs, next_finished = decoder.step(step_idx, now_inputs, now_states, **kwargs)
        next_finished = logical_or(next_finished, finished)
        next_lengths = elementwise_add(lengths, cast(logical_not(finished), lengths.dtype))
        if impute_finished:
            next_states = map_structure(lambda old, new: _keep(old, new, finished), now_states, next_states)
        arrays = map_structure(lambda out: _array_outside(out.dtype), outputs)
        map_structure(lambda out, array: array_write(out, i=step_idx, array=array), outputs, arrays)
        increment(step_idx, value=1.0, in_place=True)
        carried.write(next_inputs, next_states)
        assign(next_finished, finished)
        assign(next_lengths, lengths)
        if limit is None:
            logical_not(reduce_all(finished), condition)
        else:
            running = logical_not(reduce_all(finished))
            logical_and(running, less_equal(step_idx, limit), condition)
    final_outputs = map_structure(lambda array: tensor_array_to_tensor(array, axis=0, use_stack=True)[0], arrays)
    final_states = carried.last_states()
    with suppress(NotImplementedError):  # it is optional
        final_outputs, final_states = decoder.finalize(final_outputs, final_states, lengths)
    if not output_time_major:
        final_outputs = map_structure(swap_batch_and_time, final_outputs)
    return (final_outputs, final_states, lengths) if return_length else (final_outputs, final_states)


class _Carried:
    """Inputs and states overwritten from step to step."""

    def __init__(self, step_idx: Variable, inputs: Any, states: Any) -> None:
        self.inputs, self.states = inputs, states

    def read(self) -> tuple[Any, Any]:
        """Those of this step, in containers that the decoder may change."""
        return map_structure(lambda var: var, self.inputs), map_structure(lambda var: var, self.states)

    def write(self, inputs: Any, states: Any) -> None:
        """Those of the next step."""
        map_structure(assign, inputs, self.inputs)
        map_structure(assign, states, self.states)

    def last_states(self) -> Any:
        """The states after the loop."""
        return self.states


class _Recorded:
    """Inputs and states kept in arrays, step by step, for a backward pass."""

    def __init__(self, step_idx: Variable, inputs: Any, states: Any) -> None:
        self.step_idx = step_idx
        self.inputs = map_structure(lambda var: array_write(var, step_idx), inputs)
        self.states = map_structure(lambda var: array_write(var, step_idx), states)

    def _read(self, arrays: Any) -> Any:
        return map_structure(lambda array: array_read(array, self.step_idx), arrays)

    def read(self) -> tuple[Any, Any]:
        """Those of this step."""
        return self._read(self.inputs), self._read(self.states)

    def write(self, inputs: Any, states: Any) -> None:
        """Those of the next step."""
        for values, arrays in ((inputs, self.inputs), (states, self.states)):
            map_structure(lambda value, array: array_write(value, i=self.step_idx, array=array), values, arrays)

    def last_states(self) -> Any:
        """The states after the loop."""
        return self._read(self.states)


def _array_outside(dtype: Any) -> Variable:
    """An empty array of the block around the loop."""
    name = f"{LayerHelper('array').name}.out"
    return parent_block().create_var(name=name, type=VarType.LOD_TENSOR_ARRAY, dtype=dtype)


def _keep(old: Variable, new: Variable, finished: Variable) -> Variable:
    """`old` where the sequence has ended, `new` elsewhere; booleans via float32."""
    dtype = old.dtype
    if dtype == VarType.BOOL:
        old, new = cast(old, "float32"), cast(new, "float32")
    if finished.dtype != old.dtype:
        finished = cast(finished, old.dtype)
        finished.stop_gradient = True
    kept = elementwise_mul(old, finished, axis=0)
    running: Variable = finished - 1  # type: ignore[operator, assignment]
    chosen: Variable = kept - elementwise_mul(new, running, axis=0)  # type: ignore[operator]
    return cast(chosen, dtype) if dtype == VarType.BOOL else chosen


# ---------------------------------------------------------------- what a decoder feeds to itself
class DecodeHelper:
    """How BasicDecoder chooses an id from a step's outputs, and the next input from the id."""

    def initialize(self) -> Any:
        """The inputs of the first step, and which sequences have ended already (bool)."""

    def sample(self, time: Variable, outputs: Any, states: Any) -> Any:
        """An id for each row of outputs."""

    def next_inputs(self, time: Variable, outputs: Any, states: Any, sample_ids: Variable) -> Any:
        """Which sequences have ended (bool), the next inputs, and the next states."""


class TrainingHelper(DecodeHelper):
    """Feeds the steps of `inputs` [n, steps, …] (or [steps, n, …]) up to sequence_length [n]."""

    def __init__(self, inputs: Any, sequence_length: Variable, time_major: bool = False) -> None:
        self.inputs, self.sequence_length, self.time_major = inputs, sequence_length, time_major
        # One step more, because the step after the last also reads one.
        self._padded = map_structure(self._one_more_step, inputs)

    def _one_more_step(self, x: Variable) -> Variable:
        behind = [0, 1] if self.time_major else [0, 0, 0, 1]
        return pad(x, paddings=behind + [0] * (2 * len(x.shape) - len(behind)))

    def initialize(self) -> tuple[Any, Variable]:
        """The first steps; sequences without steps have ended."""
        zero = fill_constant(shape=[1], dtype=self.sequence_length.dtype, value=0)
        finished = equal(self.sequence_length, zero)
        return map_structure(lambda x: x[0] if self.time_major else x[:, 0], self.inputs), finished

    def sample(self, time: Variable, outputs: Variable, states: Any) -> Variable:
        """The id with the highest output."""
        return argmax(outputs, axis=-1)

    def next_inputs(self, time: Variable, outputs: Any, states: Any, sample_ids: Variable) -> tuple[Variable, Any, Any]:
        """The next steps."""
        if convert_dtype(time.dtype) != "int32":
            time = cast(time, "int32")
        if self.sequence_length.dtype != time.dtype:
            self.sequence_length = cast(self.sequence_length, time.dtype)
        following: Variable = time + 1  # type: ignore[operator, assignment]
        finished = less_equal(self.sequence_length, following)
        axes = [0 if self.time_major else 1]

        def step(x: Variable) -> Variable:
            end: Variable = following + 1  # type: ignore[operator, assignment]
            return squeeze(slice(x, axes=axes, starts=[following], ends=[end]), axes=axes)

        return finished, map_structure(step, self._padded), states


class GreedyEmbeddingHelper(DecodeHelper):
    """Feeds embedding_fn of the id with the highest output, from start_tokens [n] to end_token."""

    def __init__(self, embedding_fn: Callable[[Variable], Any], start_tokens: Variable, end_token: int) -> None:
        self.embedding_fn, self.start_tokens = embedding_fn, start_tokens
        self.end_token = fill_constant(shape=[1], dtype="int64", value=end_token)

    def initialize(self) -> tuple[Any, Variable]:
        """The start tokens; none has ended."""
        finished = fill_constant_batch_size_like(
            input=self.start_tokens, shape=[-1], dtype="bool", value=False, force_cpu=True
        )
        return self.embedding_fn(self.start_tokens), finished

    def sample(self, time: Variable, outputs: Variable, states: Any) -> Variable:
        """The id with the highest output."""
        return argmax(outputs, axis=-1)

    def next_inputs(self, time: Variable, outputs: Any, states: Any, sample_ids: Variable) -> tuple[Variable, Any, Any]:
        """The embeddings of the ids."""
        finished = equal(sample_ids, self.end_token)
        return finished, self.embedding_fn(sample_ids), states


class SampleEmbeddingHelper(GreedyEmbeddingHelper):
    """Feeds embedding_fn of an id sampled from softmax(outputs / softmax_temperature)."""

    def __init__(
        self,
        embedding_fn: Callable[[Variable], Any],
        start_tokens: Variable,
        end_token: int,
        softmax_temperature: float | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(embedding_fn, start_tokens, end_token)
        self.softmax_temperature = (
            None
            if softmax_temperature is None
            else fill_constant(shape=[1], dtype="float32", value=softmax_temperature)
        )
        self.seed = seed

    def sample(self, time: Variable, outputs: Variable, states: Any) -> Variable:
        """An id sampled by the outputs."""
        if self.softmax_temperature is not None:
            outputs = outputs / self.softmax_temperature  # type: ignore[operator]
        probabilities = softmax(outputs)
        probabilities.stop_gradient = True
        return sampling_id(probabilities, seed=self.seed or 0, dtype=self.start_tokens.dtype)


class BasicDecoder(Decoder):
    """A decoder of a cell and a DecodeHelper; its outputs are OutputWrapper(cell_outputs, sample_ids).

    output_fn: maps the cell's outputs to those that ids are chosen from.
    """

    class OutputWrapper(NamedTuple):
        """The outputs of a step, and the ids picked from them."""

        cell_outputs: Any
        sample_ids: Any

    def __init__(self, cell: Any, helper: DecodeHelper, output_fn: Callable[[Any], Any] | None = None) -> None:
        self.cell, self.helper, self.output_fn = cell, helper, output_fn

    def initialize(self, inits: Any) -> tuple[Any, Any, Variable]:
        """The helper's first inputs, with `inits` as the cell's states."""
        inputs, finished = self.helper.initialize()
        return inputs, inits, finished

    def step(self, time: Variable, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any, Any, Variable]:
        """One step of the cell, an id for each row, and the helper's next inputs."""
        outputs, states = self.cell(inputs, states, **kwargs)
        if self.output_fn is not None:
            outputs = self.output_fn(outputs)
        ids = self.helper.sample(time=time, outputs=outputs, states=states)
        ids.stop_gradient = True
        finished, inputs, states = self.helper.next_inputs(time=time, outputs=outputs, states=states, sample_ids=ids)
        return self.OutputWrapper(outputs, ids), states, inputs, finished
