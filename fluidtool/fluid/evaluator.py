"""`fluid.evaluator`: scores accumulated over batches by the program itself (Paddle 1.8.5 evaluator.py).

`fluid.metrics` does the same in Python and is the newer way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidtool.errors import UsageError
from fluidtool.fluid import layers
from fluidtool.fluid.framework import default_main_program, program_guard
from fluidtool.fluid.initializer import Constant
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.detection.postprocessing import detection_map
from fluidtool.fluid.metrics import chunk_scores, clear_state, ground_truth
from fluidtool.fluid.offers import defined_in, refuse_other_names
from fluidtool.ir import Block, Program, Variable, unique_name

Array = np.ndarray[Any, Any]


def _clone(block: Block, var: Variable) -> Variable:
    return block.create_var(
        name=var.name, shape=var.shape, dtype=var.dtype, type=var.type, lod_level=var.lod_level, persistable=True
    )


class Evaluator:
    """The base of evaluators: persistable states that the program updates. Call reset() before the first batch."""

    def __init__(self, name: str, **kwargs: Any) -> None:
        self.states: list[Variable] = []
        self.metrics: list[Variable] = []
        self.helper = LayerHelper(name, **kwargs)

    def reset(self, executor: Any, reset_program: Program | None = None) -> None:
        """Set the states to zero."""
        program = Program() if reset_program is None else reset_program
        with program_guard(program):
            for state in self.states:
                var = _clone(program.current_block(), state)
                layers.fill_constant(list(var.shape), var.dtype, 0.0, out=var)
        executor.run(program)

    def eval(self, executor: Any, eval_program: Program | None = None) -> Any:
        """The score so far."""
        raise NotImplementedError(f"{type(self).__name__} has no evaluation rule; override eval")

    def _create_state(self, suffix: str, dtype: str, shape: list[int] | None) -> Variable:
        name = f"{unique_name.generate(self.helper.name)}_{suffix}"
        state = self.helper.create_variable(name=name, persistable=True, dtype=dtype, shape=shape)
        self.states.append(state)
        return state

    def _need_root_block(self) -> None:
        if self.helper.main_program.current_block().idx != 0:
            raise UsageError("You can only invoke Evaluator in root block")


class Accuracy(Evaluator):
    """The share of right predictions over batches, of Fluid up to 0.12 (Paddle 0.11 evaluator.py).

    main_program: the program that counts, the default one without it.
    """

    def __init__(self, input: Variable, label: Variable, k: int = 1, main_program: Program | None = None) -> None:
        with program_guard(default_main_program() if main_program is None else main_program):
            super().__init__("accuracy")
            self._need_root_block()
            self.total, self.correct = (self._create_state(name, "int64", [1]) for name in ("total", "correct"))
            total, correct = (self.helper.create_variable_for_type_inference("int32") for _ in self.states)
            self.metrics.append(layers.accuracy(input, label, k, correct=correct, total=total))
            for state, count in zip(self.states, (total, correct), strict=True):
                layers.sums([state, layers.cast(count, "int64")], out=state)

    def eval(self, executor: Any, eval_program: Program | None = None) -> Array:
        """The share, float32 [1]."""
        program = Program() if eval_program is None else eval_program
        block = program.current_block()
        with program_guard(program):
            total, correct = (layers.cast(_clone(block, state), "float32") for state in self.states)
            (share,) = executor.run(program, fetch_list=[layers.elementwise_div(correct, total)])
        return np.array(share)


class ChunkEvaluator(Evaluator):
    """Precision, recall and F1 of chunks over batches; the arguments of layers.chunk_eval."""

    def __init__(
        self,
        input: Variable,
        label: Variable,
        chunk_scheme: str,
        num_chunk_types: int,
        excluded_chunk_types: Sequence[int] | None = None,
    ) -> None:
        super().__init__("chunk_eval")
        self._need_root_block()
        names = ("num_infer_chunks", "num_label_chunks", "num_correct_chunks")
        self.num_infer_chunks, self.num_label_chunks, self.num_correct_chunks = (
            self._create_state(name, "int64", [1]) for name in names
        )
        results = layers.chunk_eval(input, label, chunk_scheme, num_chunk_types, excluded_chunk_types)
        for state, count in zip(self.states, results[3:], strict=True):
            layers.sums([state, count], out=state)
        self.metrics += results[:3]

    def eval(self, executor: Any, eval_program: Program | None = None) -> tuple[Array, ...]:
        """Precision, recall and F1, float32 [1] each."""
        program = Program() if eval_program is None else eval_program
        block = program.current_block()
        counts = executor.run(program, fetch_list=[_clone(block, state) for state in self.states])
        return tuple(np.array([score], "float32") for score in chunk_scores(*counts))


class EditDistance(Evaluator):
    """The mean edit distance, and the share of sequences with errors, over batches."""

    def __init__(
        self, input: Variable, label: Variable, ignored_tokens: Sequence[int] | None = None, **kwargs: Any
    ) -> None:
        super().__init__("edit_distance", **kwargs)
        self._need_root_block()
        self.total_distance = self._create_state("total_distance", "float32", [1])
        self.seq_num = self._create_state("seq_num", "int64", [1])
        self.instance_error = self._create_state("instance_error", "int64", [1])
        distances, count = layers.edit_distance(input, label, ignored_tokens=ignored_tokens)
        zero = layers.fill_constant([1], "float32", 0.0)
        right = layers.reduce_sum(layers.cast(layers.equal(distances, zero), "int64"))
        wrong = layers.elementwise_sub(count, right)
        total = layers.reduce_sum(distances)
        for state, added in zip(self.states, (total, count, wrong), strict=True):
            layers.sums([state, added], out=state)
        self.metrics += [total, wrong]

    def eval(self, executor: Any, eval_program: Program | None = None) -> tuple[Array, Array]:
        """Both, float32 [1]."""
        program = Program() if eval_program is None else eval_program
        block = program.current_block()
        with program_guard(program):
            total, count, wrong = (_clone(block, state) for state in self.states)
            count, wrong = layers.cast(count, "float32"), layers.cast(wrong, "float32")
            means = [layers.elementwise_div(total, count), layers.elementwise_div(wrong, count)]
            distance, error = executor.run(program, fetch_list=means)
        return np.array(distance), np.array(error)


class DetectionMAP(Evaluator):
    """Mean average precision of detections over batches; the arguments of fluid.metrics.DetectionMAP."""

    def __init__(
        self,
        input: Variable,
        gt_label: Variable,
        gt_box: Variable,
        gt_difficult: Variable | None = None,
        class_num: int | None = None,
        background_label: int = 0,
        overlap_threshold: float = 0.5,
        evaluate_difficult: bool = True,
        ap_version: str = "integral",
    ) -> None:
        super().__init__("map_eval")
        truth = ground_truth(gt_label, gt_box, gt_difficult)
        settings: dict[str, Any] = {
            "class_num": class_num,
            "background_label": background_label,
            "overlap_threshold": overlap_threshold,
            "evaluate_difficult": evaluate_difficult,
            "ap_version": ap_version,
        }
        self.cur_map = detection_map(input, truth, **settings)
        for suffix, dtype in (
            ("accum_pos_count", "int32"),
            ("accum_true_pos", "float32"),
            ("accum_false_pos", "float32"),
        ):
            self._create_state(suffix, dtype, None)
        self.has_state = self.helper.create_variable(persistable=True, dtype="int32", shape=[1])
        self.helper.set_variable_initializer(self.has_state, Constant(0))
        self.accum_map = detection_map(
            input, truth, **settings, has_state=self.has_state, input_states=self.states, out_states=self.states
        )
        layers.fill_constant(list(self.has_state.shape), self.has_state.dtype, 1, out=self.has_state)

    def get_map_var(self) -> tuple[Variable, Variable]:
        """The variables of the batch's and of the accumulated precision."""
        return self.cur_map, self.accum_map

    def reset(self, executor: Any, reset_program: Program | None = None) -> None:
        """Reset the accumulated states."""
        clear_state(executor, self.has_state, Program() if reset_program is None else reset_program)


__getattr__ = refuse_other_names("paddle.fluid.evaluator", defined_in(globals()))
