"""Operators for parameter servers and collectives: declared shapes, and what they need of a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import PolicyError, ProgramError, UnsupportedOperatorError
from fluidtool.ir import Program
from fluidtool.ops.gradient import make_grad_ops
from fluidtool.ops.inference import infer_declared
from fluidtool.ops.registry import get_op
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor, Scope
from tests.support.operators import run_op

ROWS = np.zeros((4, 3), np.float32)


@pytest.mark.parametrize(("op", "attrs"), [("c_allreduce_sum", {}), ("c_allgather", {"nranks": 2})])
def test_a_ring_must_have_been_joined(op: str, attrs: dict[str, Any]) -> None:
    with pytest.raises(ProgramError, match=f"operator {op} uses ring 0, which has not been joined"):
        run_op(op, {"X": ROWS}, attrs)


@pytest.mark.parametrize("op", ["send", "recv", "prefetch"])
def test_servers_must_be_allowed(op: str) -> None:
    with pytest.raises(PolicyError, match=f"operator {op} asks to connect to '127.0.0.1:6174'.*policy="):
        run_op(op, {"X": [ROWS]}, {"epmap": ["127.0.0.1:6174"]})


@pytest.mark.parametrize("op", ["pull_box_sparse", "pull_sparse", "push_dense"])
def test_excluded_operators_say_why(op: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match=f"operator {op} is not supported: it "):
        get_op(op)


def declared_shape(op: str, shape: tuple[int, ...], attrs: dict[str, Any]) -> tuple[int, ...]:
    block = Program().global_block()
    block.create_var(name="x", shape=shape, dtype="float32")
    out = block.create_var(name="out")
    infer_declared(block.append_op(type=op, inputs={"X": ["x"]}, outputs={"Out": ["out"]}, attrs=attrs))
    found: tuple[int, ...] = tuple(out.shape)
    return found


def test_shapes_follow_the_number_of_processes() -> None:
    assert declared_shape("c_allgather", (4, 3), {"nranks": 2}) == (8, 3)
    assert declared_shape("c_reducescatter", (4, 3), {"nranks": 2}) == (2, 3)
    assert declared_shape("c_allreduce_max", (-1, 3), {}) == (-1, 3)


def test_the_gradient_of_a_gather_scatters() -> None:
    block = Program().global_block()
    op = block.append_op(type="c_allgather", inputs={"X": ["x"]}, outputs={"Out": ["out"]}, attrs={"nranks": 2})
    (grad,) = make_grad_ops(op)
    assert (grad.type, grad.inputs, grad.outputs) == ("c_reducescatter", {"X": ["out@GRAD"]}, {"Out": ["x@GRAD"]})
    assert grad.attrs["nranks"] == 2


def test_streams_have_nothing_to_wait_for() -> None:
    np.testing.assert_array_equal(run_op("c_sync_calc_stream", {"X": ROWS})["Out"].numpy(), ROWS)


@pytest.mark.parametrize("kind", [VarType.LOD_TENSOR, VarType.SELECTED_ROWS])
def test_fake_init_gives_dimensions_and_no_memory(kind: VarType) -> None:
    program, scope = Program(), Scope()
    out = program.global_block().create_var(name="out", type=kind, persistable=True)
    op = program.global_block().append_op(type="fake_init", outputs={"Out": ["out"]}, attrs={"shape": [3, 4]})
    infer_declared(op)
    Executor().run(program, {}, [], scope)
    holder = scope.find_var("out")
    assert holder is not None
    value = holder.value
    tensor = value if kind == VarType.LOD_TENSOR else value.get_tensor()
    assert (tensor.shape(), tensor.is_initialized()) == ([3, 4], False)
    assert (tuple(out.shape), out.type) == ((3, 4), kind)
