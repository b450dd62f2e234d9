"""Numbers that a training step draws: those of numpy's PCG64 from any place in its stream, by blocks of any number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.runtime.engines.cuda.training.building import Draw
from fluidtool.runtime.engines.cuda.training.compiled import beginning
from fluidtool.runtime.engines.cuda.training.drawing import BLOCK, jumps
from fluidtool.runtime.engines.cupy.kernels import MASK, MULTIPLIER
from fluidtool.runtime.graph.ir import Node, Value
from tests.gpu.test_cuda_lanes import computed

COUNTS = [1, 2, 3, 511, 512, 513, 2 * BLOCK - 1, 2 * BLOCK, 2 * BLOCK + 1, 5 * BLOCK + 7]


@pytest.fixture(autouse=True)
def _standin(cupy: Any) -> None:
    """On the stand-in, which runs the kernels."""


@pytest.mark.parametrize("before", [0, 1, 2, 1001])
@pytest.mark.parametrize("count", COUNTS)
def test_floats_go_on_where_others_have_ended(count: int, before: int) -> None:
    """After an odd number of floats the stream is in the middle of a word."""
    generator, same = np.random.default_rng(3), np.random.default_rng(3)
    for each in (generator, same):
        each.random(before, np.float32)
    state = Value("state", (6,), integer=True)
    words = np.array(beginning(generator, Draw(state, count, 0)), np.int64)
    node = Node("draw", [state], Value("kept", (count,)), {"rate": 0.3})
    found, _ = computed({state: words}, [node])
    np.testing.assert_array_equal(found, same.random(count, np.float32) >= np.float32(0.3))


@pytest.mark.parametrize("count", COUNTS)
def test_doubles(count: int) -> None:
    state = Value("state", (6,), integer=True)
    words = np.array(beginning(np.random.default_rng(5), Draw(state, count, 0, floats=False)), np.int64)
    found, _ = computed({state: words}, [Node("draw_kept", [state], Value("kept", (count,)), {"rate": 0.7})])
    np.testing.assert_array_equal(found, np.random.default_rng(5).random(count) >= 0.7)


def test_a_jump_is_as_many_steps_as_its_place_says() -> None:
    state = step = 0x123456789ABCDEF0123456789ABCDEF1
    for bit, jump in enumerate(jumps(9)):
        one_by_one = state
        for _ in range(1 << bit):
            one_by_one = (one_by_one * MULTIPLIER + step) & MASK
        assert (state * jump.factor + step * jump.sum) & MASK == one_by_one
