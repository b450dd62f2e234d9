"""`create_lod_tensor`, `create_random_int_lodtensor`, `LoDTensor`, `Tensor` and places as documented."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid

CPU = fluid.CPUPlace()


# ---------------------------------------------------------------- create_lod_tensor
def test_the_two_sentences_of_the_documentation() -> None:
    data = np.arange(5, dtype="int64").reshape(5, 1)
    tensor = fluid.create_lod_tensor(data, [[2, 3]], fluid.CPUPlace())
    assert (tensor.recursive_sequence_lengths(), tensor.lod()) == ([[2, 3]], [[0, 2, 5]])
    assert np.array(tensor).tolist() == [[0], [1], [2], [3], [4]]


def test_data_may_be_a_list_of_sequences() -> None:
    tensor = fluid.create_lod_tensor(data=[[1, 2], [3, 4, 5]], recursive_seq_lens=[[2, 3]], place=CPU)
    assert (tensor.shape(), tensor.lod()) == ([5, 1], [[0, 2, 5]])
    assert np.array(tensor).dtype == np.int64


def test_data_may_be_a_lod_tensor() -> None:
    first = fluid.create_lod_tensor(np.zeros((5, 2), "float32"), [[2, 3]], CPU)
    assert fluid.create_lod_tensor(first, [[1, 4]], CPU).lod() == [[0, 1, 5]]
    assert first.lod() == [[0, 2, 5]]


def test_two_levels() -> None:
    tensor = fluid.create_lod_tensor(np.zeros((6, 1), "float32"), [[2, 1], [1, 2, 3]], CPU)
    assert tensor.lod() == [[0, 2, 3], [0, 1, 3, 6]] and tensor.has_valid_recursive_sequence_lengths()


@pytest.mark.parametrize(
    ("data", "lengths", "error", "message"),
    [
        ([[1, 2], [3]], [[2, 3]], ValueError, "data and recursive_seq_lens do not match"),
        (np.zeros((5, 1)), [[2, 2]], ValueError, "recursive_seq_lens info is invalid"),
        (np.zeros((5, 1)), [[3], [2, 3]], ValueError, "is invalid"),
        ("text", [[4]], TypeError, "data should be either a LoDTensor, a Numpy array or a list"),
    ],
)
def test_a_lod_that_does_not_fit(data: Any, lengths: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        fluid.create_lod_tensor(data, lengths, CPU)


# ---------------------------------------------------------------- create_random_int_lodtensor
def test_numpys_seed_decides_random_integers() -> None:
    np.random.seed(7)
    expected = np.random.randint(0, 10, (5, 1))
    np.random.seed(7)
    tensor = fluid.create_random_int_lodtensor([[2, 3]], [1], fluid.CPUPlace(), low=0, high=9)
    assert (np.array(tensor) == expected).all()


def test_random_integers_between_low_and_high_inclusive() -> None:
    tensor = fluid.create_random_int_lodtensor([[200, 300]], [1], fluid.CPUPlace(), low=3, high=5)
    values = np.array(tensor)
    assert (values.shape, values.dtype, tensor.lod()) == ((500, 1), np.int64, [[0, 200, 500]])
    assert set(values.ravel().tolist()) == {3, 4, 5}


def test_the_shape_is_the_number_of_words_and_the_base_shape() -> None:
    tensor = fluid.create_random_int_lodtensor(
        recursive_seq_lens=[[1, 1], [2, 3]], base_shape=[4, 2], place=CPU, low=0, high=1
    )
    assert (tensor.shape(), tensor.recursive_sequence_lengths()) == ([5, 4, 2], [[1, 1], [2, 3]])


def test_the_base_shape_is_a_list() -> None:
    with pytest.raises((TypeError, AssertionError), match="base_shape should be a list"):
        fluid.create_random_int_lodtensor([[1]], 1, CPU, 0, 1)  # type: ignore[arg-type]


# ---------------------------------------------------------------- LoDTensor
def tensor_of(rows: int) -> fluid.LoDTensor:
    tensor = fluid.LoDTensor()
    tensor.set(np.zeros((rows, 1), "float32"), CPU)
    return tensor


def test_a_new_tensor_has_no_lod() -> None:
    tensor = tensor_of(5)
    assert (tensor.lod(), tensor.recursive_sequence_lengths()) == ([], [])
    assert tensor.has_valid_recursive_sequence_lengths() is True


def test_set_lod_takes_offsets() -> None:
    tensor = tensor_of(5)
    assert tensor.set_lod([[0, 2, 5]]) is None  # type: ignore[func-returns-value]
    assert (tensor.lod(), tensor.recursive_sequence_lengths()) == ([[0, 2, 5]], [[2, 3]])


def test_set_recursive_sequence_lengths_takes_lengths() -> None:
    tensor = tensor_of(5)
    assert tensor.set_recursive_sequence_lengths([[2, 3]]) is None  # type: ignore[func-returns-value]
    assert (tensor.lod(), tensor.recursive_sequence_lengths()) == ([[0, 2, 5]], [[2, 3]])


@pytest.mark.parametrize("lod", [[[0, 2, 4]], [[1, 5]], [[0, 3, 2, 5]], [[0, 2], [0, 5]]])
def test_an_offset_lod_that_does_not_fit_is_refused_and_the_old_one_stays(lod: list[list[int]]) -> None:
    tensor = tensor_of(5)
    tensor.set_lod([[0, 5]])
    with pytest.raises(ValueError, match=r"LoD|lod"):
        tensor.set_lod(lod)
    assert tensor.lod() == [[0, 5]]


@pytest.mark.parametrize("lengths", [[[2, 2]], [[-1, 6]]])
def test_lengths_that_do_not_fit_are_refused(lengths: list[list[int]]) -> None:
    with pytest.raises(ValueError, match=r"length|LoD"):
        tensor_of(5).set_recursive_sequence_lengths(lengths)


def test_a_lod_is_invalid_when_the_rows_change() -> None:
    tensor = tensor_of(5)
    tensor.set_lod([[0, 2, 5]])
    tensor.set(np.zeros((4, 1), "float32"), CPU)
    assert tensor.has_valid_recursive_sequence_lengths() is False


def test_tensor_is_lod_tensor() -> None:
    assert fluid.Tensor is fluid.LoDTensor


# ---------------------------------------------------------------- places
def test_places() -> None:
    assert fluid.CPUPlace() == fluid.CPUPlace()
    assert fluid.CUDAPlace(0) == fluid.CUDAPlace(0) != fluid.CUDAPlace(1)
    assert str(fluid.CUDAPlace(1)) == "CUDAPlace(1)" and isinstance(fluid.CUDAPinnedPlace(), fluid.CUDAPinnedPlace)


def test_a_tensor_in_pinned_memory_is_read_as_usual() -> None:
    tensor = fluid.LoDTensor()
    tensor.set(np.ones((2, 1), "float32"), fluid.CUDAPinnedPlace())
    assert np.array(tensor).tolist() == [[1], [1]]


def test_single_numbers_of_a_tensor() -> None:
    array = np.array([[1.5, 2.5], [3.5, 4.5]], "float32")
    tensor, shared = fluid.create_lod_tensor(array, [], CPU), fluid.LoDTensor()
    shared.array = tensor.array
    tensor._set_float_element(2, 7.25)
    assert [tensor._get_float_element(index) for index in range(4)] == [1.5, 2.5, 7.25, 4.5]
    assert shared._get_float_element(2) == 3.5
    assert np.array(tensor).dtype == np.float32
