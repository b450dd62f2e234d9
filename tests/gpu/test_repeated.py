"""Repeated indices give what they give on the CPU, although the threads of a GPU write in any order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.runtime import Executor, Scope
from fluidtool.tensor import CPUPlace, CUDAPlace
from tests.support.operators import OneOp

CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "scatter": (
        "scatter",
        {
            "X": np.zeros((4, 2), "float32"),
            "Ids": np.array([2, 1, 2, 2, 1]),
            "Updates": np.arange(10, dtype="float32").reshape(5, 2),
        },
        {"overwrite": True},
    ),
    "unpool": (
        "unpool",
        {"X": np.arange(4, dtype="float32").reshape(1, 1, 2, 2), "Indices": np.array([[[[5, 5], [9, 5]]]], "int32")},
        {"ksize": [2, 2], "strides": [2, 2], "paddings": [0, 0], "unpooling_type": "max"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_last_value_wins(name: str, cupy: Any) -> None:
    kind, inputs, attrs = CASES[name]
    one = OneOp(kind, inputs, attrs)
    on_cpu, on_gpu = (
        Executor(place).run(one.program, one.feed, one.outputs["Out"], Scope())[0].numpy()
        for place in (CPUPlace(), CUDAPlace(0))
    )
    np.testing.assert_array_equal(on_gpu, on_cpu)
