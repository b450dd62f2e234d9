"""Beam search: the operators of a step and of the backtrace, and BeamSearchDecoder for dynamic_decode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fluidtool.fluid.checks import check_type, check_variable_and_dtype
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.arithmetic import (
    elementwise_add,
    elementwise_floordiv,
    elementwise_mod,
    elementwise_mul,
    equal,
    logical_not,
    logical_or,
)
from fluidtool.fluid.layers.building import append_simple
from fluidtool.fluid.layers.creation import assign, cast, fill_constant, fill_constant_batch_size_like, zeros_like
from fluidtool.fluid.layers.creation import range as numbers
from fluidtool.fluid.layers.decoding import Decoder
from fluidtool.fluid.layers.elementary import log, softmax
from fluidtool.fluid.layers.indexing import gather_nd
from fluidtool.fluid.layers.reduction import topk
from fluidtool.fluid.layers.shape import expand, reshape, shape, stack, transpose, unsqueeze
from fluidtool.fluid.nested import flatten, map_structure
from fluidtool.ir import Variable

REAL = ("float32", "float64")
IMPOSSIBLE = -1e9


# ---------------------------------------------------------------- operators
def beam_search(
    pre_ids: Variable,
    pre_scores: Variable,
    ids: Variable | None,
    scores: Variable,
    beam_size: int,
    end_id: int,
    level: int = 0,
    is_accumulated: bool = True,
    name: str | None = None,
    return_parent_idx: bool = False,
) -> tuple[Variable, ...]:
    """The beam_size best continuations of every source: their ids and scores [n, 1], and the rows they continue.

    scores: of `ids` [n, k] (of all ids if None), accumulated over the steps if is_accumulated.
    """
    check_variable_and_dtype(pre_ids, "pre_ids", ("int64",), "beam_search")
    check_variable_and_dtype(pre_scores, "pre_scores", REAL, "beam_search")
    check_type(ids, "ids", (Variable, type(None)), "beam_search")
    check_variable_and_dtype(scores, "scores", REAL, "beam_search")
    helper = LayerHelper("beam_search", name=name)
    inputs = {"pre_ids": pre_ids, "pre_scores": pre_scores, "scores": scores}
    if ids is not None:
        inputs["ids"] = ids
    selected_scores = helper.create_variable_for_type_inference(pre_scores.dtype)
    selected_ids = helper.create_variable_for_type_inference(pre_ids.dtype)
    parent_idx = helper.create_variable_for_type_inference("int32")
    helper.append_op(
        type="beam_search",
        inputs=inputs,
        outputs={"selected_ids": selected_ids, "selected_scores": selected_scores, "parent_idx": parent_idx},
        attrs={"level": level, "beam_size": beam_size, "end_id": end_id, "is_accumulated": is_accumulated},
    )
    return (selected_ids, selected_scores, parent_idx) if return_parent_idx else (selected_ids, selected_scores)


def beam_search_decode(
    ids: Variable, scores: Variable, beam_size: int, end_id: int, name: str | None = None
) -> tuple[Variable, Variable]:
    """The sentences that arrays of beam_search's ids and scores hold, and their scores, with two LoD levels."""
    check_variable_and_dtype(ids, "ids", ("int64",), "beam_search_encode")
    check_variable_and_dtype(scores, "scores", ("float32",), "beam_search_encode")
    helper = LayerHelper("beam_search_decode", name=name)
    sentence_ids = helper.create_variable_for_type_inference(ids.dtype)
    sentence_scores = helper.create_variable_for_type_inference(scores.dtype)
    helper.append_op(
        type="beam_search_decode",
        inputs={"Ids": ids, "Scores": scores},
        outputs={"SentenceIds": sentence_ids, "SentenceScores": sentence_scores},
        attrs={"beam_size": beam_size, "end_id": end_id},
    )
    return sentence_ids, sentence_scores


def gather_tree(ids: Variable, parents: Variable) -> Variable:
    """The beams [steps, n, beam_size] of ids, each with the beam it continues, traced back from the end."""
    helper = LayerHelper("gather_tree")
    check_variable_and_dtype(ids, "ids", ("int32", "int64"), "gather_tree")
    check_variable_and_dtype(parents, "parents", ("int32", "int64"), "gather_tree")
    return append_simple(helper, "gather_tree", {"Ids": ids, "Parents": parents}, dtype=ids.dtype)


# ---------------------------------------------------------------- the decoder
class BeamSearchDecoder(Decoder):
    """Beam search over a cell: start_token and end_token are ids; embedding_fn and output_fn wrap the cell.

    The cell sees [n * beam_size, …]; its inputs besides states are tiled by tile_beam_merge_with_batch.
    """

    class OutputWrapper(NamedTuple):
        """A step's scores, ids, and the beams that these continue, [n, beam_size] each."""

        scores: Any
        predicted_ids: Any
        parent_ids: Any

    class StateWrapper(NamedTuple):
        """The cell's states, and for every beam its logarithmic probability, whether it has ended, and its length."""

        cell_states: Any
        log_probs: Any
        finished: Any
        lengths: Any

    def __init__(
        self,
        cell: Any,
        start_token: int,
        end_token: int,
        beam_size: int,
        embedding_fn: Callable[[Variable], Any] | None = None,
        output_fn: Callable[[Any], Any] | None = None,
    ) -> None:
        self.cell, self.embedding_fn, self.output_fn = cell, embedding_fn, output_fn
        self.start_token, self.end_token, self.beam_size = start_token, end_token, beam_size

    @staticmethod
    def tile_beam_merge_with_batch(x: Variable, beam_size: int) -> Variable:
        """[n, …] with every row beam_size times: [n * beam_size, …]."""
        check_type(x, "x", Variable, "BeamSearchDecoder.tile_beam_merge_with_batch")
        x = _repeated(x, beam_size)
        x = transpose(x, [*range(2, len(x.shape)), 0, 1])
        x = reshape(x, shape=[0] * (len(x.shape) - 2) + [-1])
        return transpose(x, [len(x.shape) - 1, *range(len(x.shape) - 1)])

    def _split_batch_beams(self, x: Variable) -> Variable:
        return reshape(x, shape=(-1, self.beam_size, *x.shape[1:]))

    def _merge_batch_beams(self, x: Variable) -> Variable:
        return reshape(x, shape=(-1, *x.shape[2:]))

    def initialize(self, inits: Any) -> tuple[Any, Any, Variable]:
        """`inits` [n, …] as states of every beam; only the first beam of each row can win the first step."""
        state = flatten(inits)[0]
        self.batch_size = shape(state)[0]  # type: ignore[index]
        start = fill_constant(shape=[1], dtype="int64", value=self.start_token)
        self.end_token_tensor = fill_constant(shape=[1], dtype="int64", value=self.end_token)
        cell_states = map_structure(lambda x: _repeated(x, self.beam_size), inits)
        inputs = expand(unsqueeze(expand(start, [self.batch_size]), [1]), [1, self.beam_size])
        first = np.array([[0.0] + [IMPOSSIBLE] * (self.beam_size - 1)], dtype="float32")
        log_probs = expand(assign(first), [self.batch_size, 1])
        finished = fill_constant_batch_size_like(
            input=state, shape=[-1, self.beam_size], dtype="bool", value=False, force_cpu=True
        )
        lengths = zeros_like(inputs)
        embedded = self.embedding_fn(inputs) if self.embedding_fn else inputs
        return embedded, self.StateWrapper(cell_states, log_probs, finished, lengths), finished

    def step(self, time: Variable, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any, Any, Variable]:
        """One step of the cell, and the best continuations of every row."""
        inputs = map_structure(self._merge_batch_beams, inputs)
        cell_states = map_structure(self._merge_batch_beams, states.cell_states)
        outputs, cell_states = self.cell(inputs, cell_states, **kwargs)
        outputs = map_structure(self._split_batch_beams, outputs)
        cell_states = map_structure(self._split_batch_beams, cell_states)
        if self.output_fn is not None:
            outputs = self.output_fn(outputs)
        found, new_states = self._search(outputs, cell_states, states)
        found.predicted_ids.stop_gradient = True
        next_inputs = self.embedding_fn(found.predicted_ids) if self.embedding_fn else found.predicted_ids
        return found, new_states, next_inputs, new_states.finished

    def _search(self, logits: Variable, cell_states: Any, before: Any) -> tuple[OutputWrapper, StateWrapper]:
        vocab_size = logits.shape[-1]
        vocab = fill_constant(shape=[1], dtype="int64", value=vocab_size)
        only_end = [IMPOSSIBLE] * vocab_size
        only_end[self.end_token] = 0
        end_mask = assign(np.array(only_end, "float32"))
        step_log_probs = self._ended_stay(log(softmax(logits)), before.finished, end_mask)
        log_probs = elementwise_add(x=step_log_probs, y=before.log_probs, axis=0)
        flat = [-1, self.beam_size * vocab_size]
        scores, places = topk(input=reshape(log_probs, flat), k=self.beam_size)
        beams = elementwise_floordiv(places, vocab)
        tokens = elementwise_mod(places, vocab)
        next_log_probs = self._gather(reshape(log_probs, flat), places)
        cell_states = map_structure(lambda x: self._gather(x, beams), cell_states)
        finished = self._gather(before.finished, beams)
        lengths = self._gather(before.lengths, beams)
        lengths = lengths + cast(logical_not(finished), before.lengths.dtype)  # type: ignore[operator]
        finished = logical_or(finished, equal(tokens, self.end_token_tensor))
        found = self.OutputWrapper(scores, tokens, beams)
        return found, self.StateWrapper(cell_states, next_log_probs, finished, lengths)

    def _ended_stay(self, log_probs: Variable, finished: Variable, end_mask: Variable) -> Variable:
        """The log probabilities of a step; a finished beam can only continue with the end token, at no cost."""
        finished = cast(finished, log_probs.dtype)
        wide = expand(unsqueeze(finished, [2]), [1, 1, log_probs.shape[-1]])
        ended = elementwise_mul(wide, end_mask, axis=-1)
        running: Variable = finished - 1  # type: ignore[operator, assignment]
        return ended - elementwise_mul(log_probs, running, axis=0)  # type: ignore[operator, no-any-return]

    def _gather(self, x: Variable, indices: Variable) -> Variable:
        """x[row, indices[row]] for every row."""
        rows = self.batch_size
        if rows.dtype != indices.dtype:
            rows = cast(rows, indices.dtype)
        rows.stop_gradient = True
        position = expand(unsqueeze(numbers(0, rows, 1, dtype=indices.dtype), [1]), [1, self.beam_size])
        coordinates = stack([position, indices], axis=2)
        coordinates.stop_gradient = True
        return gather_nd(x, coordinates)

    def finalize(self, outputs: Any, final_states: Any, sequence_lengths: Variable) -> tuple[Any, Any]:
        """The ids of whole beams, [steps, n, beam_size]."""
        return gather_tree(outputs.predicted_ids, outputs.parent_ids), final_states


def _repeated(x: Variable, times: int) -> Variable:
    """[n, …] -> [n, times, …]."""
    x = unsqueeze(x, [1])
    return expand(x, [1, times] + [1] * (len(x.shape) - 2))
