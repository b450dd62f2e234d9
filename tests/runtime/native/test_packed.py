"""Packed constants: the specializations of a region share them, by what they are made of and how."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import ref

import numpy as np
import pytest

from fluidtool.runtime import Executor
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.compiler import runs_to_pay
from fluidtool.runtime.engines.native.constants import SHORT, PackedConstants, Packing
from fluidtool.runtime.graph.weights import scaled
from fluidtool.runtime.partition import Region
from fluidtool.runtime.specialization import AT_ONCE
from fluidtool.tensor import LoDTensor
from tests.runtime.native.checking import Array, Net

PARAMETER = np.arange(24, dtype=np.float32).reshape(4, 6)


class Program:
    """A program that grows layer by layer and runs by one executor, with any number of rows."""

    def __init__(self, *shape: int) -> None:
        self.net, self.executor = Net(), Executor(engine="native")
        self.x = self.out = self.net.data(*shape)
        self.shape = shape

    def run(self, rows: int) -> Array:
        """As numpy computes it."""
        feed = {self.x: self.net.random.standard_normal((rows, *self.shape[1:])).astype(np.float32)}
        program, scope = self.net.program, self.net.scope
        (got,) = self.executor.run(program, feed, [self.out], scope)
        (want,) = Executor(engine="numpy").run(program, feed, [self.out], scope)
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=0, atol=1e-5 * np.abs(want.numpy()).max())
        return got.numpy()

    @property
    def region(self) -> Region:
        (found,) = self.executor.plan(self.net.program, [self.out]).block(0).work
        assert isinstance(found, Region)
        return found

    def constants(self) -> list[dict[int, Any]]:
        """By specialization: the arrays that its steps read, by address."""
        specializations = self.region.specializations.kept.values()
        return [{array.ctypes.data: array for array in specialization.keep} for specialization in specializations]


def with_product() -> Program:
    made = Program(2, 40)
    made.out = made.net.op("mul", "Out", {"X": made.x, "Y": made.net.parameter(40, 50)})
    return made


def with_convolution(*filters: int) -> Program:
    made = Program(2, 16, 9, 9)
    made.out = made.net.conv(made.x, made.net.parameter(*filters), paddings=[1, 1])
    return made


def with_gru() -> Program:
    made = Program(2, 60)
    before = made.net.op("slice", "Out", {"Input": made.x}, axes=[1], starts=[0], ends=[20])
    inputs = {"Input": made.x, "HiddenPrev": before, "Weight": made.net.parameter(20, 60)}
    settled = {"gate_activation": 1, "activation": 2, "origin_mode": False}
    made.out = made.net.op("gru_unit", "Hidden", inputs, "Gate", "ResetHiddenPrev", **settled)
    return made


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize(
    "make",
    [with_product, partial(with_convolution, 32, 16, 3, 3), partial(with_convolution, 32, 16, 2, 2), with_gru],
    ids=["product", "convolution by winograd", "convolution", "gru"],
)
def test_specializations_for_other_sizes_read_the_same_packed_weights(make: Callable[[], Program]) -> None:
    made = make()
    made.run(2), made.run(3)
    first, second = made.constants()
    largest = max(array.size for array in first.values())
    shared = [array.size for address, array in first.items() if address in second]
    assert largest in shared


@pytest.mark.usefixtures("native")
def test_weights_that_are_computed_are_shared_too() -> None:
    made = Program(2, 300)
    weights, factors = made.net.parameter(300, 90), made.net.parameter(90)
    product = made.net.op("mul", "Out", {"X": made.x, "Y": weights})
    made.out = made.net.op("elementwise_mul", "Out", {"X": product, "Y": factors}, axis=-1)
    made.run(2), made.run(3)
    first, second = made.constants()
    assert {array.size for address, array in first.items() if address in second} == {300 * 96}


@pytest.mark.usefixtures("native")
def test_other_parameters_are_packed_by_themselves() -> None:
    made = with_product()
    before = made.run(2)
    weights = made.net.program.global_block().ops[0].input("Y")[0]
    made.net.scope.var(weights).value = LoDTensor(np.zeros((40, 50), np.float32))
    assert before.any() and not made.run(3).any()
    (only,) = made.constants()
    assert not any(array.any() for array in only.values())
    assert not made.run(2).any()


@pytest.mark.usefixtures("native")
def test_parameters_that_change_between_runs_are_compiled_when_they_stay() -> None:
    made = with_product()
    made.run(2)
    waiting = made.region.specializations.runs_to_pay
    weights = made.net.program.global_block().ops[0].input("Y")[0]

    def change() -> None:
        made.net.scope.var(weights).value = LoDTensor(made.net.random.standard_normal((40, 50)).astype(np.float32))

    for is_compiled in [True] * (AT_ONCE - 1) + [False] * 2 * waiting:
        change()
        made.run(2)
        assert bool(made.region.specializations.kept) == is_compiled
    change()
    compiled = [bool((made.run(2), made.region.specializations.kept)[1]) for _ in range(waiting + 2)]
    assert waiting > 0 and compiled == [False] * waiting + [True, True]


@pytest.mark.parametrize(
    ("operators", "floats", "multiply_adds", "runs"),
    [(3, 2000, 128_000, 27), (30, 15_000_000, 10_000_000_000, 0), (9, 206_000_000, 4_400_000_000, 2)],
    ids=["a small product", "VGG16", "few rows by large matrices"],
)
def test_compiling_pays_sooner_the_more_it_saves(operators: int, floats: int, multiply_adds: int, runs: int) -> None:
    assert runs_to_pay(operators, floats, multiply_adds) == runs


def test_scaled_columns_are_the_scaled_matrix() -> None:
    scale = np.array([1, 2, 0.5, -1, 3, 0.1], np.float32)
    found = scaled(scaled(PARAMETER, scale), scale)
    np.testing.assert_allclose(np.asarray(found), PARAMETER * scale * scale, rtol=1e-7, atol=0)
    assert found.shape == (4, 6)
    np.testing.assert_array_equal(found[1:3], np.asarray(found)[1:3])


@pytest.mark.usefixtures("native")
def test_what_no_specialization_reads_is_given_back() -> None:
    made = with_convolution(32, 16, 3, 3)
    made.run(1)
    kept = [ref(array) for found in made.constants() for array in found.values()]
    made.region.specializations.kept.clear()
    gc.collect()
    assert kept and all(found() is None for found in kept)


def marks(*arrays: Any) -> int:
    """How many of them the constants of one parameter tell from each other."""
    packed = PackedConstants([PARAMETER])
    return len({packed.mark(array) for array in arrays})


@pytest.mark.parametrize("size", [SHORT // 4, SHORT])
def test_arrays_of_the_same_numbers_are_the_same(size: int) -> None:
    numbers = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    other = numbers.copy()
    other[-1] += 1
    assert marks(numbers, numbers.copy()) == 1
    assert marks(numbers, other) == 2


def test_parts_of_a_parameter_are_told_by_where_they_lie() -> None:
    assert marks(PARAMETER, PARAMETER[:]) == 1
    assert marks(PARAMETER, PARAMETER.T, PARAMETER[1:], PARAMETER[:, 1:], PARAMETER.reshape(6, 4)) == 5
    assert marks(PARAMETER, PARAMETER.copy()) == 2


def test_the_same_arrays_packed_in_another_way_are_something_else() -> None:
    packed = PackedConstants([PARAMETER])
    packings = [Packing(partial(abi.Pack, source=PARAMETER, depth=rows), 1) for rows in (4, 3)]
    found = [packed.get(24, [packing], lambda: np.zeros(24, np.float32)) for packing in (*packings, packings[0])]
    assert found[0] is found[2] is not found[1]
    assert packed.get(25, packings[:1], lambda: np.ones(25, np.float32)).all()


@pytest.mark.usefixtures("native")
def test_few_constants_ask_for_little_memory() -> None:
    made = with_product()
    tracemalloc.start()
    made.executor.run(made.net.program, {made.x: np.ones((2, 40), np.float32)}, [made.out], made.net.scope)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 20
