"""fluid.metrics and fluid.evaluator: scores over batches, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import UsageError
from fluidtool.ir import Program


def column(*values: float) -> np.ndarray:
    return np.array(values, "float32").reshape(-1, 1)


def test_precision_counts_predicted_positives() -> None:
    metric = fluid.metrics.Precision()
    metric.update(column(0.1, 0.7, 0.8, 0.9), column(0, 1, 1, 0))
    assert metric.eval() == 2 / 3
    metric.update(column(0.9), column(1))
    assert metric.eval() == 3 / 4


def test_recall_counts_real_positives() -> None:
    metric = fluid.metrics.Recall()
    metric.update(column(0.1, 0.7, 0.2), column(1, 1, 0))
    assert metric.eval() == 1 / 2


def test_a_score_of_nothing_is_zero() -> None:
    assert fluid.metrics.Precision().eval() == fluid.metrics.Recall().eval() == fluid.metrics.Auc().eval() == 0.0


def test_reset_forgets() -> None:
    metric = fluid.metrics.Precision("p")
    metric.update(column(0.9), column(1))
    assert metric.get_config() == {"name": "p", "states": {"tp": 1, "fp": 0}}
    metric.reset()
    assert metric.get_config()["states"] == {"tp": 0, "fp": 0}


def test_accuracy_is_the_weighted_mean() -> None:
    metric = fluid.metrics.Accuracy()
    metric.update(0.5, 10)
    metric.update(np.array([1.0]), 30)
    assert metric.eval() == pytest.approx(0.875)


def test_a_composite_metric_evaluates_all() -> None:
    both = fluid.metrics.CompositeMetric()
    both.add_metric(fluid.metrics.Precision())
    both.add_metric(fluid.metrics.Recall())
    both.update(column(0.9, 0.9, 0.1), column(1, 0, 1))
    assert both.eval() == [0.5, 0.5]


def test_chunks_give_precision_recall_and_f1() -> None:
    metric = fluid.metrics.ChunkEvaluator()
    metric.update(4, np.array([5]), 2)
    metric.update(6, 5, 3)
    assert metric.eval() == (0.5, 0.5, 0.5)


def test_edit_distances_give_mean_and_share_of_errors() -> None:
    metric = fluid.metrics.EditDistance("distance")
    metric.update(column(0, 2, 1, 0), 4)
    assert metric.eval() == (0.75, 0.5)


def test_auc_of_perfect_and_of_useless_predictions() -> None:
    def area(scores: list[float], labels: list[float]) -> float:
        metric = fluid.metrics.Auc("auc")
        second = np.array(scores, "float32")
        metric.update(np.stack([1 - second, second], axis=1), column(*labels))
        return metric.eval()

    assert area([0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1]) == 1.0
    assert area([0.5, 0.5, 0.5, 0.5], [0, 1, 0, 1]) == 0.5
    assert area([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]) == 0.75


@pytest.mark.parametrize(
    ("metric", "arguments", "message"),
    [
        (fluid.metrics.Precision(), ([0.1], column(1)), "The 'preds' must be a numpy ndarray."),
        (fluid.metrics.Recall(), (column(1), [1]), "The 'labels' must be a numpy ndarray."),
        (fluid.metrics.Accuracy(), ("x", 1), "The 'value' must be a number"),
        (fluid.metrics.Accuracy(), (1.0, "x"), "The 'weight' must be a number"),
        (fluid.metrics.Accuracy(), (1.0, -1), "The 'weight' can not be negative"),
        (fluid.metrics.ChunkEvaluator(), (1, "x", 1), "The 'num_label_chunks' must be a number"),
        (fluid.metrics.EditDistance("e"), ([1], 1), "The 'distances' must be a numpy ndarray."),
        (fluid.metrics.Auc("a"), (np.full((1, 2), 1.5), column(1)), "probabilities"),
    ],
)
def test_what_is_no_score_is_refused(metric: fluid.metrics.MetricBase, arguments: tuple, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        metric.update(*arguments)


@pytest.mark.parametrize("metric", [fluid.metrics.Accuracy(), fluid.metrics.EditDistance("e")])
def test_a_mean_needs_data(metric: fluid.metrics.MetricBase) -> None:
    with pytest.raises(UsageError, match="There is no data"):
        metric.eval()


def test_a_composite_takes_metrics_only() -> None:
    with pytest.raises(UsageError, match="inherit from MetricBase"):
        fluid.metrics.CompositeMetric().add_metric(3)  # type: ignore[arg-type]


def test_the_edit_distance_evaluator_adds_up_over_batches() -> None:
    main, startup = Program(), Program()
    with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        found = fluid.layers.data("found", [1], dtype="int64", lod_level=1)
        wanted = fluid.layers.data("wanted", [1], dtype="int64", lod_level=1)
        evaluator = fluid.evaluator.EditDistance(found, wanted)
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(startup)
        evaluator.reset(executor)
        for last in (3, 4):
            ids = np.array([[1], [2], [last]], "int64")
            feed = {
                "found": fluid.create_lod_tensor(ids, [[2, 1]], fluid.CPUPlace()),
                "wanted": fluid.create_lod_tensor(np.array([[1], [2], [3]], "int64"), [[2, 1]], fluid.CPUPlace()),
            }
            executor.run(main, feed=feed, fetch_list=evaluator.metrics)
        distance, errors = evaluator.eval(executor)
        assert distance.tolist() == [0.25] and errors.tolist() == [0.25]


def test_the_chunk_evaluator_adds_up_over_batches() -> None:
    main, startup = Program(), Program()
    with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        tags = fluid.layers.data("tags", [1], dtype="int64", lod_level=1)
        wanted = fluid.layers.data("wanted", [1], dtype="int64", lod_level=1)
        evaluator = fluid.evaluator.ChunkEvaluator(tags, wanted, "plain", 2)
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(startup)
        evaluator.reset(executor)
        for values in ([0, 1, 0], [1, 1, 0]):
            feed = {
                "tags": fluid.create_lod_tensor(np.array(values, "int64").reshape(-1, 1), [[3]], fluid.CPUPlace()),
                "wanted": fluid.create_lod_tensor(np.array([[0], [1], [0]], "int64"), [[3]], fluid.CPUPlace()),
            }
            executor.run(main, feed=feed, fetch_list=evaluator.metrics)
        precision, recall, f1 = evaluator.eval(executor)
        # 3 chunks found and labeled, all right; then 2 found, of which the last is right.
        assert precision.tolist() == pytest.approx([4 / 5]) and recall.tolist() == pytest.approx([4 / 6])
        assert f1.dtype == np.float32


def test_evaluators_stand_in_the_root_block() -> None:
    main = Program()
    with fluid.program_guard(main, Program()):
        tags = fluid.layers.data("tags", [1], dtype="int64", lod_level=1)
        main.create_block()
        with pytest.raises(UsageError, match="root block"):
            fluid.evaluator.ChunkEvaluator(tags, tags, "IOB", 1)
