"""`fluid.layers.collective`: names, shapes and operators are those that Paddle 1.8.5 builds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import fluidtool.fluid as fluid
from fluidtool.fluid.layers import collective
from fluidtool.ir import Variable


@pytest.fixture
def x() -> Iterator[Variable]:
    with fluid.program_guard(fluid.Program()), fluid.unique_name.guard():
        yield fluid.data("x", [4, 3], "float32")


@pytest.mark.parametrize(
    ("layer", "args", "name", "shape", "attrs"),
    [
        ("_allreduce", {}, "x.tmp_0", (4, 3), {"reduce_type": 0, "sync_mode": False}),
        ("_allreduce", {"reduce_type": "max"}, "x.tmp_0", (4, 3), {"reduce_type": 2, "sync_mode": False}),
        ("_broadcast", {"root": 1}, "x", (4, 3), {"root": 1, "sync_mode": False}),
        ("_c_allreduce", {}, "x.c_allreduce_sum_0", (4, 3), {"ring_id": 0, "use_calc_stream": False}),
        ("_c_broadcast", {"root": 1}, "x", (4, 3), {"root": 1, "ring_id": 0, "use_calc_stream": False}),
        ("_c_allgather", {"nranks": 2}, "x.c_allgather_0", (8, 3), {"nranks": 2, "ring_id": 0}),
        ("_c_reducescatter", {"nranks": 2}, "x.c_reducescatter_0", (2, 3), {"nranks": 2, "ring_id": 0}),
        ("_c_sync_calc_stream", {}, "x", (4, 3), {}),
        ("_c_sync_comm_stream", {"ring_id": 1}, "x", (4, 3), {"ring_id": 1}),
    ],
)
def test_layers(
    x: Variable, layer: str, args: dict[str, Any], name: str, shape: tuple[int, ...], attrs: dict[str, Any]
) -> None:
    out = getattr(collective, layer)(x, **args)
    (op,) = x.block.ops
    assert (out.name, out.shape, out.dtype) == (name, shape, x.dtype)
    assert (op.input("X"), op.output("Out")) == (["x"], [name])
    assert {key: op.attr(key) for key in attrs} == attrs


def test_rows_that_cannot_be_divided(x: Variable) -> None:
    with pytest.raises(ValueError, match=r"x.shape\[0\]\(4\) cannot be evenly divided by nranks\(3\)"):
        collective._c_reducescatter(x, 3)


def test_an_unknown_way_to_reduce(x: Variable) -> None:
    with pytest.raises(TypeError, match=r"reduce type can only be \[sum\|prod\|max\|min\], found 'mean'"):
        collective._allreduce(x, reduce_type="mean")
