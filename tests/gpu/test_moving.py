"""Copies of several arrays by one kernel, on the stand-in and, where it is installed, through NVRTC."""

from __future__ import annotations

from sys import getrefcount
from typing import Any

import numpy as np
import pytest

from fluidtool.runtime.engines.cuda import moving
from fluidtool.runtime.engines.cuda.moving import Inputs, Mover, source
from fluidtool.runtime.engines.registry import device_for
from fluidtool.tensor import CUDAPlace
from tests.gpu.nvrtc import ABSENT, faults, nvrtc
from tests.gpu.standin import EVENTS


def array(cupy: Any, *shape: int, type: Any = np.float32, seed: int = 0) -> Any:
    return cupy.asarray((np.random.default_rng(seed).standard_normal(shape) * 100).astype(type))


def moved(cupy: Any, arrays: list[Any], types: list[Any] | None = None) -> int:
    """Copies have the same numbers; the launches."""
    found = [cupy.zeros(each.shape, each.dtype if types is None else types[n]) for n, each in enumerate(arrays)]
    with EVENTS.counted() as counts:
        Mover(device_for(CUDAPlace(0))).copy(list(zip(found, arrays, strict=True)))
    for have, want in zip(found, arrays, strict=True):
        np.testing.assert_array_equal(cupy.asnumpy(have), want if isinstance(want, np.ndarray) else cupy.asnumpy(want))
    return counts["launches"]


def test_small_arrays_are_copied_at_once(cupy: Any) -> None:
    whole = array(cupy, 300, type=np.int64)
    assert moved(cupy, [array(cupy, 3, 5), whole, array(cupy, 1), array(cupy, 2, 200, seed=1), array(cupy, 256)]) == 1


def test_one_array_is_copied_as_ever(cupy: Any) -> None:
    assert moved(cupy, [array(cupy, 3, 5)]) == 1


class Taken:
    """The inputs of a graph that are given arrays; how many of them were copied."""

    def __init__(self, cupy: Any, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
        mover = Mover(device_for(CUDAPlace(0)))
        self._copied: list[Any] = []
        monkeypatch.setattr(mover, "copy", lambda pairs, copy=mover.copy: (self._copied.extend(pairs), copy(pairs)))
        self._there = [cupy.zeros(4, np.float32) for _ in range(count)]
        self._inputs = Inputs(mover, self._there)

    def count(self, given: list[Any], run: object = None) -> int:
        self._copied.clear()
        self._inputs.take(given, run)
        for there, want in zip(self._there, given, strict=True):
            np.testing.assert_array_equal(there.get(), want.get())
        return len(self._copied)


def test_an_array_that_comes_again_in_a_run_is_copied_once(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    taken, run, kept = Taken(cupy, 2, monkeypatch), object(), array(cupy, 4)
    assert [taken.count([kept, array(cupy, 4, seed=seed)], run) for seed in range(3)] == [2, 1, 1]


def test_another_array_with_the_same_numbers_is_copied(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    taken, run = Taken(cupy, 1, monkeypatch), object()
    assert [taken.count([array(cupy, 4)], run) for _ in range(3)] == [1, 1, 1]


def test_arrays_that_change_places_are_copied(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    taken, run, one, other = Taken(cupy, 2, monkeypatch), object(), array(cupy, 4), array(cupy, 4, seed=1)
    assert [taken.count(given, run) for given in ([one, other], [other, one], [other, one])] == [2, 2, 0]


def test_an_array_that_was_changed_between_runs_is_copied(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    taken, kept = Taken(cupy, 1, monkeypatch), array(cupy, 4)
    for _ in range(2):
        assert taken.count([kept], object()) == 1
        kept += 1.0


def test_without_a_run_every_array_is_copied(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    taken, kept, run = Taken(cupy, 1, monkeypatch), array(cupy, 4), object()
    assert [taken.count([kept], each) for each in (None, None, run, run, None, run)] == [1, 1, 1, 0, 1, 1]


def test_after_a_copy_that_failed_everything_is_copied(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    taken, kept, run = Taken(cupy, 2, monkeypatch), array(cupy, 4), object()
    taken.count([kept, array(cupy, 4)], run)
    with pytest.raises(ValueError, match="shape"):
        taken.count([kept, array(cupy, 5)], run)
    assert taken.count([kept, array(cupy, 4)], run) == 2


def test_numbers_without_axes_are_copied(cupy: Any) -> None:
    there = cupy.zeros((), np.float32)
    Inputs(Mover(device_for(CUDAPlace(0))), [there]).take([cupy.asarray(np.float32(3.0))])
    assert there.get() == 3


def test_inputs_keep_no_array(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    taken, given = Taken(cupy, 1, monkeypatch), array(cupy, 4)
    before = getrefcount(given)
    taken.count([given], object())
    taken._copied.clear()
    assert getrefcount(given) == before


def test_large_arrays_and_those_that_are_turned_are_copied_alone(cupy: Any) -> None:
    arrays = [array(cupy, 3), array(cupy, moving.MOST + 1), array(cupy, 4, 6).T, array(cupy, 5)]
    assert moved(cupy, arrays) == 3


def test_other_types_are_converted_alone(cupy: Any) -> None:
    arrays = [array(cupy, 3), array(cupy, 4, type=np.int32), array(cupy, 5), array(cupy, 2, type=np.int64)]
    assert moved(cupy, arrays, [np.float32, np.float32, np.float32, np.float32]) == 3


def test_whole_numbers_have_32_bits_on_one_side(cupy: Any) -> None:
    arrays = [array(cupy, 3, type=np.int32), array(cupy, 5), array(cupy, 4, type=np.int64)]
    assert moved(cupy, arrays, [np.int64, np.float32, np.int32]) == 1


def test_booleans_are_numbers_on_one_side(cupy: Any) -> None:
    flags = np.array([True, False, True])
    arrays = [cupy.asarray(flags), array(cupy, 5), cupy.asarray(flags.astype(np.float32))]
    assert moved(cupy, arrays, [np.float32, np.float32, np.bool_]) == 1


def test_arrays_of_the_host_are_copied_to_the_device(cupy: Any) -> None:
    host = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert moved(cupy, [array(cupy, 3), host, array(cupy, 5)]) == 1


def test_more_arrays_than_a_kernel_takes_are_copied_by_several(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "AT_ONCE", 3)
    assert moved(cupy, [array(cupy, n, seed=n) for n in range(1, 8)]) == 3


def test_copies_are_arrays_of_their_own(cupy: Any) -> None:
    arrays = [array(cupy, 3), array(cupy, 4, type=np.int64)]
    found = Mover(device_for(CUDAPlace(0))).copies(arrays, [np.float32, np.int64])
    want = [cupy.asnumpy(each) for each in arrays]
    for each in arrays:
        each.fill(0)
    for have, numbers in zip(found, want, strict=True):
        np.testing.assert_array_equal(cupy.asnumpy(have), numbers)


@pytest.mark.skipif(nvrtc() is None, reason=ABSENT)
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_nvrtc_takes_the_kernel(architecture: str) -> None:
    types = [*[("float", "float")] * 40, *[("whole", "whole")] * 18, ("bool", "float"), ("float", "bool")]
    types += [("int", "whole"), ("whole", "int")]
    assert faults(source(types), architecture) == ""
