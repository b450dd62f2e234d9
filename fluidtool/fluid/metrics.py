"""`fluid.metrics`: scores accumulated over batches in Python (Paddle 1.8.5 metrics.py)."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from fluidtool.errors import UsageError
from fluidtool.fluid import layers
from fluidtool.fluid.framework import program_guard
from fluidtool.fluid.initializer import Constant
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.detection.postprocessing import detection_map
from fluidtool.fluid.offers import defined_in, refuse_other_names
from fluidtool.ir import Program, Variable, unique_name

Array = np.ndarray[Any, Any]


def is_number(value: Any) -> bool:
    """Whether a value is a number, or an array with one element."""
    return isinstance(value, (int, np.int64, float)) or (isinstance(value, np.ndarray) and value.shape == (1,))


def is_number_or_matrix(value: Any) -> bool:
    """Whether a value is a number or an array."""
    return is_number(value) or isinstance(value, np.ndarray)


def _need_arrays(preds: Any, labels: Any, preds_name: str = "preds") -> None:
    for value, name in ((preds, preds_name), (labels, "labels")):
        if not isinstance(value, (np.ndarray, np.generic)):
            raise UsageError(f"The '{name}' must be a numpy ndarray.")


class MetricBase:
    """The base of metrics. Attributes without a leading underscore are the state."""

    def __init__(self, name: str | None = None) -> None:
        self._name = type(self).__name__ if name is None else str(name)

    def __str__(self) -> str:
        return self._name

    def _states(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def reset(self) -> None:
        """Numbers and arrays of the state become zero, everything else None."""
        for name, value in self._states().items():
            if isinstance(value, (int, float)):
                zero: Any = 0 if isinstance(value, int) else 0.0
            else:
                zero = np.zeros_like(value) if isinstance(value, (np.ndarray, np.generic)) else None
            setattr(self, name, zero)

    def get_config(self) -> dict[str, Any]:
        """The name and a copy of the state."""
        return {"name": self._name, "states": copy.deepcopy(self._states())}

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Add a batch."""
        raise NotImplementedError(f"{type(self).__name__} has no update rule; override update")

    def eval(self) -> Any:
        """The score so far."""
        raise NotImplementedError(f"{type(self).__name__} has no evaluation rule; override eval")


class CompositeMetric(MetricBase):
    """Several metrics of the same predictions and labels."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self._metrics: list[MetricBase] = []

    def add_metric(self, metric: MetricBase) -> None:
        """Add a metric."""
        if not isinstance(metric, MetricBase):
            raise UsageError(f"SubMetric should be inherit from MetricBase, found {type(metric).__name__}")
        self._metrics.append(metric)

    def update(self, preds: Any, labels: Any) -> None:
        """Add a batch to all."""
        for metric in self._metrics:
            metric.update(preds, labels)

    def eval(self) -> list[Any]:
        """The scores of all, in order."""
        return [metric.eval() for metric in self._metrics]


def _rounded(preds: Array, labels: Array) -> tuple[Array, Array]:
    """Predictions as classes 0 and 1, and labels: one each per sample."""
    count = labels.shape[0]
    return np.rint(preds).astype("int32").reshape(-1)[:count], labels.reshape(-1)


class Precision(MetricBase):
    """The share of samples predicted positive that are: predictions [n, 1] of [0, 1], labels [n, 1] of 0 and 1."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.tp = 0
        self.fp = 0

    def update(self, preds: Array, labels: Array) -> None:
        """Add a batch."""
        _need_arrays(preds, labels)
        classes, wanted = _rounded(preds, labels)
        right = int(((classes == 1) & (wanted == 1)).sum())
        self.tp += right
        self.fp += int((classes == 1).sum()) - right

    def eval(self) -> float:
        """tp / (tp + fp), 0.0 if there are none."""
        found = self.tp + self.fp
        return float(self.tp) / found if found else 0.0


class Recall(MetricBase):
    """The share of positive samples that are predicted positive: predictions [n, 1] of [0, 1], labels [n, 1] of 0 and 1."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.tp = 0
        self.fn = 0

    def update(self, preds: Array, labels: Array) -> None:
        """Add a batch."""
        _need_arrays(preds, labels)
        classes, wanted = _rounded(preds, labels)
        right = int(((classes == 1) & (wanted == 1)).sum())
        self.tp += right
        self.fn += int((wanted == 1).sum()) - right

    def eval(self) -> float:
        """tp / (tp + fn), 0.0 if there are none."""
        positive = self.tp + self.fn
        return float(self.tp) / positive if positive else 0.0


class Accuracy(MetricBase):
    """The mean of accuracies of batches (layers.accuracy), weighted by their sizes."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.value: Any = 0.0
        self.weight: Any = 0.0

    def update(self, value: Any, weight: Any) -> None:
        """Add a batch."""
        if not is_number_or_matrix(value):
            raise UsageError(
                f"The 'value' must be a number(int, float) or a numpy ndarray, found {type(value).__name__}"
            )
        if not is_number(weight):
            raise UsageError(f"The 'weight' must be a number(int, float), found {type(weight).__name__}")
        if weight < 0:
            raise UsageError("The 'weight' can not be negative")
        self.value += value * weight
        self.weight += weight

    def eval(self) -> Any:
        """The mean so far; raises UsageError before the first batch."""
        if self.weight == 0:
            raise UsageError(
                "There is no data in Accuracy Metrics. Please check layers.accuracy output has added to Accuracy."
            )
        return self.value / self.weight


class ChunkEvaluator(MetricBase):
    """Precision, recall and F1 of chunks, from the counts of layers.chunk_eval."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.num_infer_chunks: Any = 0
        self.num_label_chunks: Any = 0
        self.num_correct_chunks: Any = 0

    def update(self, num_infer_chunks: Any, num_label_chunks: Any, num_correct_chunks: Any) -> None:
        """Add a batch."""
        counts = (
            ("num_infer_chunks", num_infer_chunks, "number(int)"),
            ("num_label_chunks", num_label_chunks, "number(int, float)"),
            ("num_correct_chunks", num_correct_chunks, "number(int, float)"),
        )
        for name, count, kind in counts:
            if not is_number_or_matrix(count):
                raise UsageError(f"The '{name}' must be a {kind} or a numpy ndarray.")
        self.num_infer_chunks += num_infer_chunks
        self.num_label_chunks += num_label_chunks
        self.num_correct_chunks += num_correct_chunks

    def eval(self) -> tuple[float, float, float]:
        """Precision, recall, F1; 0 if there are no chunks."""
        return chunk_scores(self.num_infer_chunks, self.num_label_chunks, self.num_correct_chunks)


def chunk_scores(inferred: Any, labeled: Any, correct: Any) -> tuple[float, float, float]:
    """Precision, recall and F1 from counts of chunks; 0 if there are none."""
    inferred, labeled, correct = (float(np.asarray(count).reshape(-1)[0]) for count in (inferred, labeled, correct))
    precision = correct / inferred if inferred else 0
    recall = correct / labeled if labeled else 0
    return precision, recall, 2 * precision * recall / (precision + recall) if correct else 0


class EditDistance(MetricBase):
    """The mean distance, and the share of sequences with errors, from layers.edit_distance."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.total_distance: Any = 0.0
        self.seq_num: Any = 0
        self.instance_error: Any = 0

    def update(self, distances: Array, seq_num: Any) -> None:
        """Add a batch: the distances of seq_num sequences."""
        if not isinstance(distances, (np.ndarray, np.generic)):
            raise UsageError(f"The 'distances' must be a numpy ndarray, found {type(distances).__name__}")
        if not is_number(seq_num):
            raise UsageError(f"The 'seq_num' must be a number(int, float), found {type(seq_num).__name__}")
        self.seq_num += seq_num
        self.instance_error += seq_num - np.sum(distances == 0)
        self.total_distance += np.sum(distances)

    def eval(self) -> tuple[Any, Any]:
        """Both; raises UsageError before the first batch."""
        if self.seq_num == 0:
            raise UsageError(
                "There is no data in EditDistance Metric. "
                "Please check layers.edit_distance output has been added to EditDistance."
            )
        return self.total_distance / self.seq_num, self.instance_error / np.float64(self.seq_num)


class Auc(MetricBase):
    """The area under the ROC curve, by num_thresholds + 1 buckets. As in Paddle, reset() keeps the counts."""

    def __init__(self, name: str | None = None, curve: str = "ROC", num_thresholds: int = 4095) -> None:
        super().__init__(name)
        self._curve, self._num_thresholds = curve, num_thresholds
        self._stat_pos, self._stat_neg = np.zeros(num_thresholds + 1), np.zeros(num_thresholds + 1)

    def update(self, preds: Array, labels: Array) -> None:
        """Add a batch: probabilities [n, 2] (of class 1 in the second column) and labels [n, 1]."""
        _need_arrays(preds, labels, "predictions")
        wanted = labels.reshape(len(labels), -1)[:, 0].astype(bool)
        buckets = (preds[: len(labels), 1] * self._num_thresholds).astype(np.int64)
        if buckets.size and (buckets.max() > self._num_thresholds or buckets.min() < 0):
            raise UsageError("The 'predictions' must be probabilities in [0, 1].")
        np.add.at(self._stat_pos, buckets[wanted], 1.0)
        np.add.at(self._stat_neg, buckets[~wanted], 1.0)

    @staticmethod
    def trapezoid_area(x1: float, x2: float, y1: float, y2: float) -> float:
        """The area under the line from (x1, y1) to (x2, y2)."""
        return abs(x1 - x2) * (y1 + y2) / 2.0

    def eval(self) -> float:
        """The area so far, 0.0 unless there are both positive and negative samples."""
        positive = np.concatenate([[0.0], np.cumsum(self._stat_pos[::-1])])
        negative = np.concatenate([[0.0], np.cumsum(self._stat_neg[::-1])])
        if positive[-1] == 0.0 or negative[-1] == 0.0:
            return 0.0
        area = (np.diff(negative) * (positive[1:] + positive[:-1]) / 2.0).sum()
        return float(area / positive[-1] / negative[-1])


class DetectionMAP:
    """Mean average precision of detections, of a batch and of all so far: variables of the default main program.

    input: detections [n, 6] with LoD; gt_label [m, 1], gt_box [m, 4] with LoD, gt_difficult [m, 1] or None.
    """

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
        self.helper = LayerHelper("map_eval")
        truth = ground_truth(gt_label, gt_box, gt_difficult)
        settings: dict[str, Any] = {
            "class_num": class_num,
            "background_label": background_label,
            "overlap_threshold": overlap_threshold,
            "evaluate_difficult": evaluate_difficult,
            "ap_version": ap_version,
        }
        self.cur_map = detection_map(input, truth, **settings)
        states = [
            self._create_state("accum_pos_count", "int32", None),
            self._create_state("accum_true_pos", "float32", None),
            self._create_state("accum_false_pos", "float32", None),
        ]
        self.has_state = self._create_state("has_state", "int32", [1])
        self.helper.set_variable_initializer(self.has_state, Constant(0))
        self.accum_map = detection_map(
            input, truth, **settings, has_state=self.has_state, input_states=states, out_states=states
        )
        layers.fill_constant(list(self.has_state.shape), self.has_state.dtype, 1, out=self.has_state)

    def _create_state(self, suffix: str, dtype: str, shape: list[int] | None) -> Variable:
        name = f"{unique_name.generate(self.helper.name)}_{suffix}"
        return self.helper.create_variable(name=name, persistable=True, dtype=dtype, shape=shape)

    def get_map_var(self) -> tuple[Variable, Variable]:
        """The variables of the batch's and of the accumulated precision."""
        return self.cur_map, self.accum_map

    def reset(self, executor: Any, reset_program: Program | None = None) -> None:
        """Reset the accumulated states."""
        clear_state(executor, self.has_state, Program() if reset_program is None else reset_program)


def ground_truth(gt_label: Variable, gt_box: Variable, gt_difficult: Variable | None) -> Variable:
    """Labels, difficulties and boxes in one matrix, of the boxes' data type."""
    parts = [layers.cast(gt_label, gt_box.dtype)]
    if gt_difficult is not None:
        parts.append(layers.cast(gt_difficult, gt_box.dtype))
    return layers.concat([*parts, gt_box], axis=1)


def clear_state(executor: Any, state: Variable, program: Program) -> None:
    """Run a program that sets a state to 0."""
    with program_guard(program):
        var = program.current_block().create_var(
            name=state.name,
            shape=state.shape,
            dtype=state.dtype,
            type=state.type,
            lod_level=state.lod_level,
            persistable=state.persistable,
        )
        layers.fill_constant(list(var.shape), var.dtype, 0, out=var)
    executor.run(program)


__getattr__ = refuse_other_names("paddle.fluid.metrics", defined_in(globals()))
