"""Copies of several arrays by one kernel, on the stand-in and, where it is installed, through NVRTC."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.runtime.engines.cuda import moving
from fluidtool.runtime.engines.cuda.moving import Mover, source
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
