"""Random operators: the right distribution, repeatable by seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from fluidtool.runtime import Executor, Scope
from fluidtool.tensor import LoDTensor, SelectedRows
from tests.support.operators import OneOp, lod_tensor, run_op

MANY = 20_000


def drawn(op_type: str, attrs: dict[str, Any], inputs: dict[str, Any] | None = None) -> np.ndarray[Any, Any]:
    out: np.ndarray[Any, Any] = run_op(op_type, inputs or {}, attrs, fetch=["Out"])["Out"].numpy()
    return out


def test_uniform_numbers_fill_their_interval_evenly() -> None:
    x = drawn("uniform_random", {"shape": [MANY], "min": 2.0, "max": 5.0, "seed": 1})
    assert x.dtype == np.float32
    assert x.min() >= 2.0
    assert x.max() < 5.0
    np.testing.assert_allclose(np.quantile(x, [0.25, 0.5, 0.75]), [2.75, 3.5, 4.25], atol=0.05)


def test_gaussian_numbers_have_their_mean_and_deviation() -> None:
    x = drawn("gaussian_random", {"shape": [MANY], "mean": 3.0, "std": 2.0, "seed": 1, "dtype": 6})
    assert x.dtype == np.float64
    np.testing.assert_allclose([x.mean(), x.std()], [3.0, 2.0], atol=0.05)
    np.testing.assert_allclose(np.quantile((x - 3) / 2, [0.1587, 0.8413]), [-1, 1], atol=0.05)


def test_truncated_gaussian_numbers_stay_within_two_deviations() -> None:
    x = drawn("truncated_gaussian_random", {"shape": [MANY], "mean": 1.0, "std": 0.5, "seed": 1})
    assert abs(x - 1.0).max() <= 1.0
    np.testing.assert_allclose([x.mean(), x.std()], [1.0, 0.5 * 0.8796], atol=0.01)


@pytest.mark.parametrize(
    ("op_type", "attrs"),
    [
        ("uniform_random", {"shape": [4]}),
        ("gaussian_random", {"shape": [4]}),
        ("truncated_gaussian_random", {"shape": [4]}),
        ("randint", {"shape": [4], "low": 0, "high": 1 << 30}),
        ("randperm", {"n": 64}),
    ],
)
def test_a_seed_repeats_and_no_seed_goes_on(op_type: str, attrs: dict[str, Any]) -> None:
    one = OneOp(op_type, {}, attrs)
    executor, scope = Executor(seed=3), Scope()
    first, second = (executor.run(one.program, {}, ["Out0@out"], scope)[0].numpy() for _ in range(2))
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(Executor(seed=3).run(one.program, {}, ["Out0@out"], Scope())[0].numpy(), first)
    seeded = {**attrs, "seed": 9}
    np.testing.assert_array_equal(drawn(op_type, seeded), drawn(op_type, seeded))


@pytest.mark.parametrize("op_type", ["uniform_random_batch_size_like", "gaussian_random_batch_size_like"])
def test_the_batch_size_is_that_of_the_input(op_type: str) -> None:
    x = drawn(op_type, {"shape": [7, -1], "input_dim_idx": 0, "output_dim_idx": 1}, {"Input": np.zeros((3, 2))})
    assert x.shape == (7, 3)


def test_a_diagonal_can_be_set() -> None:
    x = drawn("uniform_random", {"shape": [3, 4], "diag_num": 3, "diag_step": 4, "diag_val": 9.0})
    assert x.reshape(-1)[::5].tolist() == [9.0, 9.0, 9.0]
    assert (x == 9.0).sum() == 3


def test_selected_rows_without_rows_hold_the_numbers() -> None:
    one = OneOp("uniform_random", {}, {"shape": [4, 5]})
    one.program.global_block().vars["Out0@out"].type = 8
    (out,) = Executor().run(one.program, {}, ["Out0@out"], Scope())
    assert isinstance(out, SelectedRows)
    assert (out.rows(), out.height(), out.value.shape) == ([], 4, (4, 5))


def test_whole_numbers_are_drawn_from_the_half_open_interval() -> None:
    x = drawn("randint", {"shape": [MANY], "low": -2, "high": 3, "dtype": 2, "seed": 5})
    assert x.dtype == np.int32
    assert np.unique(x).tolist() == [-2, -1, 0, 1, 2]
    np.testing.assert_allclose(np.bincount(x + 2) / MANY, 0.2, atol=0.02)


def test_a_permutation_holds_every_number_once() -> None:
    assert sorted(drawn("randperm", {"n": 50, "seed": 1}).tolist()) == list(range(50))


def test_places_are_drawn_by_the_probabilities_of_their_row() -> None:
    x = np.tile(np.float32([0.2, 0.5, 0.3]), (MANY, 1))
    out = drawn("sampling_id", {"seed": 2}, {"X": x})
    assert out.dtype == np.int64
    np.testing.assert_allclose(np.bincount(out) / MANY, [0.2, 0.5, 0.3], atol=0.02)


def test_the_seed_operator_gives_its_attribute_or_draws() -> None:
    assert drawn("seed", {"seed": 5}).tolist() == [5]
    assert drawn("seed", {}).dtype == np.int32


def test_bernoulli_draws_ones_with_their_probability() -> None:
    out = drawn("bernoulli", {}, {"X": np.full(MANY, 0.3, np.float32)})
    np.testing.assert_allclose(out.mean(), 0.3, atol=0.02)
    assert set(np.unique(out)) == {0.0, 1.0}


@pytest.mark.parametrize("replacement", [True, False])
def test_multinomial_draws_by_weight(replacement: bool) -> None:
    x = np.tile(np.float32([1, 0, 3]), (MANY, 1))
    out = drawn("multinomial", {"num_samples": 2, "replacement": replacement}, {"X": x})
    np.testing.assert_allclose((out[:, 0] == 2).mean(), 0.75, atol=0.02)
    assert not (out == 1).any()
    assert replacement or (out[:, 0] != out[:, 1]).all()


def test_exponential_and_poisson_numbers_have_their_mean() -> None:
    x = np.full(MANY, 4.0, np.float32)
    np.testing.assert_allclose(drawn("exponential", {"lambda": 0.5}, {"X": x}).mean(), 2.0, atol=0.1)
    np.testing.assert_allclose(drawn("poisson", {}, {"X": x}).mean(), 4.0, atol=0.1)


def test_in_place_draws_are_like_their_input() -> None:
    x = np.zeros((2, 3), np.float64)
    assert drawn("uniform_random_inplace", {"seed": 1}, {"X": x}).dtype == np.float64
    assert run_op("gaussian_inplace", {"x": x}, {"seed": 1})["out"].shape() == [2, 3]


def test_multinomial_without_replacement_needs_enough_places() -> None:
    with pytest.raises(OperatorError, match="multinomial: num_samples is 3, but a row of X has 2 places"):
        run_op("multinomial", {"X": np.float32([1, 0, 3])}, {"num_samples": 3})


def test_every_instance_is_cropped_at_a_place_of_its_own() -> None:
    x = np.arange(4 * 9 * 9, dtype=np.float32).reshape(4, 9, 9)
    out = run_op("random_crop", {"X": x, "Seed": np.array([7])}, {"shape": [3, 2]})
    crop = out["Out"].numpy()
    assert crop.shape == (4, 3, 2)
    starts = crop[:, 0, 0] - x[:, 0, 0]
    assert len(set(starts.tolist())) > 1
    np.testing.assert_array_equal(crop - crop[:, :1, :1], np.tile(x[0, :3, :2] - x[0, 0, 0], (4, 1, 1)))
    again = run_op("random_crop", {"X": x, "Seed": np.array([7])}, {"shape": [3, 2]})
    np.testing.assert_array_equal(again["Out"].numpy(), crop)
    assert out["SeedOut"].numpy().tolist() != [7]


def test_random_crop_starts_from_the_attribute_when_the_seed_holds_nothing() -> None:
    x = np.arange(100, dtype=np.float32)
    first, second = (
        run_op("random_crop", {"X": x, "Seed": LoDTensor()}, {"shape": [5], "startup_seed": 3})["Out"].numpy()
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)


def test_a_shuffled_batch_says_where_its_rows_come_from() -> None:
    x = lod_tensor(np.arange(20, dtype=np.float32).reshape(10, 2), [[4, 6]])
    out = run_op("shuffle_batch", {"X": x, "Seed": np.array([5])})
    order = out["ShuffleIdx"].numpy()
    assert sorted(order.tolist()) == list(range(10))
    np.testing.assert_array_equal(out["Out"].numpy(), x.numpy()[order])
    assert out["Out"].lod() == [[0, 4, 10]]


@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs", "text"),
    [
        ("uniform_random", {}, {"shape": [2], "min": 3.0, "max": 1.0}, "max must not lie below min"),
        ("uniform_random", {}, {"shape": [-1]}, "shape must have no negative size"),
        ("uniform_random", {}, {"shape": [2], "dtype": 3}, "dtype must be a floating point type"),
        ("uniform_random", {}, {"shape": [2], "diag_num": 3, "diag_step": 2}, "needs 7 elements, the shape has 2"),
        ("gaussian_random", {}, {"shape": [2**40, 9]}, "does not fit in memory"),
        ("randint", {}, {"shape": [2], "low": 3, "high": 3}, r"high must be above low, found \[3, 3\)"),
        ("randperm", {}, {"n": 0}, "n must be positive"),
        ("sampling_id", {"X": np.zeros(3, np.float32)}, {}, r"X must have the shape \(rows, places\)"),
        ("multinomial", {"X": np.float32([-1, 2])}, {}, "X must hold weights"),
        ("random_crop", {"X": np.zeros((2, 3)), "Seed": np.array([1])}, {"shape": [5]}, r"fit into \(3,\)"),
    ],
)
def test_bad_input_is_refused(op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], text: str) -> None:
    with pytest.raises(OperatorError, match=f"operator {op_type}: .*{text}"):
        run_op(op_type, inputs, attrs)
