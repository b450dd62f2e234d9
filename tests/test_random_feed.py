"""Random inputs: declared data types and shapes, sequences, ids that a table has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import FeedError, LoDError
from fluidtool.io.layout import ModelFiles
from fluidtool.io.parameters import EMPTY_STORE
from fluidtool.ir import Program
from fluidtool.model import Model
from fluidtool.proto.enums import VarType
from fluidtool.random_feed import random_feed


def model_with(*inputs: dict[str, Any], table: int | None = None) -> Model:
    """A model that reads these inputs; the first one looks up a table of this height."""
    program = Program()
    block = program.global_block()
    for fields in inputs:
        block.create_var(**fields)
    names = [fields["name"] for fields in inputs]
    if table is not None:
        block.create_parameter(name="table", shape=[table, 4], dtype="float32")
        block.append_op(type="lookup_table", inputs={"Ids": names[:1], "W": ["table"]}, outputs={"Out": ["out"]})
    block.append_op(type="sum", inputs={"X": names}, outputs={"Out": ["all"]})
    return Model(program, ModelFiles(program, "", EMPTY_STORE, "", ""))


def one(**fields: Any) -> Model:
    return model_with({"name": "x", **fields})


@pytest.mark.parametrize(
    ("shape", "options", "made"),
    [
        ([-1, 3], {}, [1, 3]),
        ([-1, 3], {"batch": 5}, [5, 3]),
        ([4, 3], {"batch": 5}, [4, 3]),
        ([-1, -1], {}, [1, 32]),
        ([-1, 3, -1, -1], {}, [1, 3, 64, 64]),
        ([-1, 3, -1, -1], {"shapes": {"x": (2, 3, 8, 9)}}, [2, 3, 8, 9]),
        ([], {}, []),
    ],
)
def test_shapes(shape: list[int], options: dict[str, Any], made: list[int]) -> None:
    assert random_feed(one(shape=shape, dtype="float32"), **options)["x"].shape() == made


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64", "uint8", "bool"])
def test_data_types(dtype: str) -> None:
    array = random_feed(one(shape=[100], dtype=dtype))["x"].numpy()
    assert str(array.dtype) == dtype
    assert array.min() >= 0 and array.max() <= 1 and array.min() != array.max()


def test_the_seed_decides() -> None:
    model = one(shape=[100], dtype="float32")
    first, same, other = (random_feed(model, seed=seed)["x"].numpy() for seed in (1, 1, 2))
    assert np.array_equal(first, same) and not np.array_equal(first, other)


@pytest.mark.parametrize(("levels", "lengths"), [(1, [[4, 5, 6]]), (2, [[1, 1, 1], [1, 1, 1]])])
def test_sequences(levels: int, lengths: list[list[int]]) -> None:
    value = random_feed(one(shape=[-1, 2], dtype="float32", lod_level=levels), batch=3)["x"]
    assert value.recursive_sequence_lengths() == lengths
    assert value.shape() == [sum(lengths[-1]), 2]


def test_sequences_as_asked_for() -> None:
    value = random_feed(one(shape=[-1, 2], dtype="float32", lod_level=1), lods={"x": [[0, 2, 2, 9]]})["x"]
    assert (value.shape(), value.lod()) == ([9, 2], [[0, 2, 2, 9]])


def test_sequences_that_do_not_fit_the_shape() -> None:
    with pytest.raises(LoDError, match="the input x of shape"):
        random_feed(one(shape=[-1, 2], dtype="float32"), shapes={"x": (3, 2)}, lods={"x": [[0, 2]]})


@pytest.mark.parametrize(("height", "below"), [(7, 7), (5000, 100), (1, 1)])
def test_ids_are_in_their_table(height: int, below: int) -> None:
    ids = random_feed(model_with({"name": "x", "shape": [1000, 1], "dtype": "int64"}, table=height))["x"].numpy()
    assert (ids.min(), ids.max()) == (0, below - 1)


@pytest.mark.parametrize("fields", [{"dtype": "float32"}, {"shape": [1]}])
def test_a_declaration_that_does_not_say_enough(fields: dict[str, Any]) -> None:
    with pytest.raises(FeedError, match="feed it"):
        random_feed(one(**fields))


def test_other_kinds_are_to_be_fed() -> None:
    with pytest.raises(FeedError, match="input x"):
        random_feed(one(shape=[1], dtype="float32", type=VarType.SELECTED_ROWS))


def test_a_shape_beyond_every_memory_is_refused() -> None:
    with pytest.raises(FeedError, match=r"input x float32 \(1099511627776, .* more than any memory; feed it"):
        random_feed(one(shape=[2**40, 2**40], dtype="float32"))
