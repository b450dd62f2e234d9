"""Operators for parameter servers and collectives: shapes are known, running them is refused with the reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import UnsupportedOperatorError
from fluidtool.ir import Program
from fluidtool.ops.gradient import make_grad_ops
from fluidtool.ops.inference import infer_declared
from fluidtool.ops.registry import get_op
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor, Scope
from tests.support.operators import run_op

ROWS = np.zeros((4, 3), np.float32)


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "reason"),
    [
        ("send", {"X": [ROWS]}, {}, "talks to parameter servers"),
        ("recv", {"X": [ROWS]}, {}, "talks to parameter servers"),
        ("listen_and_serv", {"X": [ROWS]}, {}, "talks to parameter servers"),
        ("c_allreduce_sum", {"X": ROWS}, {}, "works together with other processes"),
        ("c_allgather", {"X": ROWS}, {"nranks": 2}, "works together with other processes"),
    ],
)
def test_running_is_refused_with_the_reason(
    op: str, inputs: dict[str, Any], attrs: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UnsupportedOperatorError, match=f"operator {op} {reason}.*run the program from before"):
        run_op(op, inputs, attrs)


@pytest.mark.parametrize("op", ["pull_box_sparse", "pull_sparse", "push_dense", "quantize", "requantize"])
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
