"""What a region keeps by the signature of its inputs: specializations within a room of bytes, and why there is none for some."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fluidtool.runtime import Executor, specialization
from fluidtool.runtime.graph.ir import UnsupportedError
from fluidtool.runtime.graph.spec import RegionSpec
from fluidtool.runtime.partition import Region
from fluidtool.tensor import LoDTensor
from tests.runtime.native.checking import Array, Net

pytestmark = pytest.mark.usefixtures("native")


class Sized:
    """A program whose input `x` has any shape, run by one executor; every result is that of numpy."""

    def __init__(self, *shape: int) -> None:
        self.net, self.executor = Net(), Executor(engine="native")
        self.x = self.net.data(*shape)
        self.net.program.global_block().vars[self.x].shape = (-1,) * len(shape)
        self.out = ""

    def run(self, *shape: int, dtype: str = "float32") -> Array:
        return self.run_on(self.net.random.standard_normal(shape).astype(dtype))

    def run_on(self, value: Any) -> Array:
        feed, program, scope = {self.x: value}, self.net.program, self.net.scope
        (want,) = Executor(engine="numpy").run(program, feed, [self.out], scope)
        (got,) = self.executor.run(program, feed, [self.out], scope)
        assert got.numpy().shape == want.numpy().shape and got.lod() == want.lod()
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-4)
        return got.numpy()

    @property
    def region(self) -> Region:
        (found,) = self.executor.plan(self.net.program, [self.out]).block(0).work
        assert isinstance(found, Region)
        return found

    def sizes(self) -> list[int]:
        """The first size of the inputs that there are specializations for, the newest last."""
        return [key[0][0][0] for key in self.region.specializations.kept]


def dense() -> Sized:
    """out = softmax(relu(x · w) · v): the values between lie in the arena."""
    made = Sized(2, 40)
    hidden = made.net.op("mul", "Out", {"X": made.x, "Y": made.net.parameter(40, 64)})
    hidden = made.net.op("relu", "Out", {"X": hidden})
    made.out = made.net.op(
        "softmax", "Out", {"X": made.net.op("mul", "Out", {"X": hidden, "Y": made.net.parameter(64, 8)})}
    )
    return made


def convolved() -> Sized:
    """A convolution whose channels are put last."""
    made = Sized(1, 3, 8, 8)
    image = made.net.conv(made.x, made.net.parameter(4, 3, 1, 1))
    made.out = made.net.op("transpose2", "Out", {"X": image}, "XShape", axis=[0, 2, 3, 1])
    return made


def matched() -> Sized:
    """A product of x, for which there is a kernel where x is a matrix, but none where it is a vector."""
    made = Sized(5, 6)
    scaled = made.net.op("scale", "Out", {"X": made.x}, scale=2.0, bias=0.0, bias_after_scale=True)
    made.out = made.net.op("matmul", "Out", {"X": scaled, "Y": made.net.parameter(6, 4)}, alpha=1.0)
    return made


# ---------------------------------------------------------------- sizes of 0
@pytest.mark.parametrize("before", [(), (3,)])
def test_an_empty_batch_says_nothing_about_others(before: tuple[int, ...]) -> None:
    made = dense()
    for rows in (*before, 0, 0, 4):
        assert made.run(rows, 40).shape == (rows, 8)
    assert made.sizes() == [*before, 4]
    assert not made.region.specializations.refused and not made.region.divisions


def test_no_number_of_empty_batches_wears_a_region_out() -> None:
    made = dense()
    for _ in range(2 * specialization.PATIENCE):
        made.run(0, 40)
    made.run(3, 40)
    assert made.sizes() == [3]


def test_an_empty_image_says_nothing_about_others() -> None:
    made = convolved()
    made.run(1, 3, 8, 8)
    made.run(0, 3, 8, 8)
    made.run(2, 3, 8, 8)
    assert made.sizes() == [1, 2]


def test_empty_sequences_say_nothing_about_others() -> None:
    made = dense()
    for lod in ([[0, 0]], [[0, 2, 3]]):
        made.run_on(LoDTensor(np.ones((lod[0][-1], 40), np.float32), lod))
    assert made.sizes() == [3]


# ---------------------------------------------------------------- what one signature lacks
@pytest.mark.parametrize("order", [[(5, 6), (6,), (3, 6)], [(6,), (5, 6), (3, 6)]])
def test_a_rank_without_a_kernel_says_nothing_about_others(order: list[tuple[int, ...]]) -> None:
    made = matched()
    for shape in order:
        made.run(*shape)
    assert made.sizes() == [5, 3] and len(made.region.specializations.refused) == 1


def test_a_data_type_without_a_kernel_says_nothing_about_others() -> None:
    made = Sized(3, 4)
    made.out = made.net.op("softmax", "Out", {"X": made.net.op("abs", "Out", {"X": made.x})})
    made.run(3, 4, dtype="float64")
    made.run(3, 4)
    made.run(2, 4)
    assert made.sizes() == [3, 2]


def test_a_signature_that_was_refused_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = matched()
    tried = counting(made, monkeypatch)
    for _ in range(3):
        made.run(6)
    assert tried.count(made.region.outputs) == 1


def test_a_region_that_never_compiles_is_given_up_after_some_signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Sized(2, 3, 4)
    turned = made.net.op("transpose2", "Out", {"X": made.x}, "XShape", axis=[0, 2, 1])
    made.out = made.net.op(
        "matmul", "Out", {"X": turned, "Y": made.net.op("relu", "Out", {"X": turned})}, transpose_X=True
    )
    tried = counting(made, monkeypatch)
    for size in range(1, specialization.PATIENCE + 6):
        made.run(size, 3, 4)
    assert tried.count(made.region.outputs) == specialization.PATIENCE
    assert len(made.region.divisions) == 1


def test_reasons_are_kept_for_a_bounded_number_of_signatures() -> None:
    made = matched()
    made.run(5, 6)
    for number in range(2 * specialization.MOST_KEPT):
        made.region.refuse(number, UnsupportedError("no kernel", result=made.out if number % 2 else ""))
    assert len(made.region.specializations.refused) == specialization.MOST_KEPT and len(made.region.divisions) == 1


def counting(made: Sized, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The outputs of every region that is compiled from here on."""
    seen: list[Any] = []
    engine = made.executor.engine
    assert engine is not None
    compile = type(engine).compile

    def counted(self: Any, spec: RegionSpec, *more: Any) -> Any:
        seen.append(spec.outputs)
        return compile(self, spec, *more)

    monkeypatch.setattr(type(engine), "compile", counted)
    return seen


# ---------------------------------------------------------------- room
@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(specialization, "ROOM", 1 << 20)
    yield 1 << 20


def memory(region: Region) -> int:
    return sum(specialization.memory for specialization in region.specializations.kept.values())


def test_specializations_of_small_inputs_are_kept_up_to_a_number() -> None:
    made = dense()
    for rows in range(1, specialization.MOST_KEPT + 3):
        made.run(rows, 40)
    assert made.sizes() == list(range(3, specialization.MOST_KEPT + 3))


def test_specializations_take_no_more_than_their_room(little_room: int) -> None:
    made = dense()
    for rows in (500, 1000, 1500, 2000, 2500):
        made.run(rows, 40)
        assert memory(made.region) <= max(
            little_room, 2 * next(reversed(made.region.specializations.kept.values())).memory
        )
    assert made.sizes()[-1] == 2500 and len(made.sizes()) < 5


def test_the_newest_specialization_is_kept_however_large(little_room: int) -> None:
    made = dense()
    made.run(20_000, 40)
    assert made.sizes() == [20_000] and memory(made.region) > little_room


def test_one_of_two_large_specializations_in_turn_is_not_compiled_again_and_again(little_room: int) -> None:
    made = dense()
    for _ in range(2):
        for rows in (20_000, 19_000):
            made.run(rows, 40)
    assert sorted(made.sizes()) == [19_000, 20_000]


def test_a_large_specialization_makes_way_for_a_small_one(little_room: int) -> None:
    made = dense()
    made.run(20_000, 40)
    made.run(10, 40)
    assert made.sizes() == [10]


def test_what_was_used_last_stays(little_room: int) -> None:
    made = dense()
    made.run(1000, 40)
    made.run(1500, 40)
    made.run(1000, 40)
    made.run(2400, 40)
    assert made.sizes() == [1000, 2400]


def test_regions_of_one_block_share_the_room() -> None:
    made = Sized(3, 8)
    value = made.x
    for _ in range(4):
        value = made.net.op("mul", "Out", {"X": value, "Y": made.net.parameter(8, 8)})
        value = made.net.op("cumsum", "Out", {"X": value}, axis=-1)
    made.out = value
    made.run(3, 8)
    work = made.executor.plan(made.net.program, [made.out]).block(0).work
    assert [part.specializations.share for part in work if isinstance(part, Region)] == [4] * 4
