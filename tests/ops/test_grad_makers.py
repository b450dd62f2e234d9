"""Gradient operators are the ones that Paddle 1.8.5's gradient makers make: types, slots, variables, attributes."""

from __future__ import annotations

from typing import Any

import pytest

from fluidtool.ir import Operator, Program
from fluidtool.ops.gradient import make_grad_ops
from fluidtool.ops.index import MODULES
from fluidtool.ops.registry import get_op
from fluidtool.ops.schema import FRAMEWORK_ATTRS
from tests.support.tables import table

MAKERS = table("grad_makers_185")
# Their makers build a gradient block, which takes a whole program (tests/fluid).
WITH_BLOCKS = {
    "while",
    "recurrent",
    "conditional_block",
    "conditional_block_infer",
    "run_program",
    "py_func",
    "fl_listen_and_serv",
}
CASES = sorted(op for op, entry in MAKERS.items() if op in MODULES and op not in WITH_BLOCKS and entry["forward"])


def forward_op(op_type: str, entry: dict[str, Any]) -> Operator:
    block = Program().global_block()
    op = Operator(block, type=op_type, inputs=entry["inputs"], outputs=entry["outputs"])
    specs = get_op(op_type).attrs | FRAMEWORK_ATTRS
    for name, value in entry["attrs"].items():
        op.set_attr(name, value, specs[name].type if name in specs else None)
    block.ops.append(op)
    return op


def wiring(names: dict[str, list[str]]) -> dict[str, list[str]]:
    return {slot: arguments for slot, arguments in names.items() if arguments}


@pytest.mark.parametrize("op_type", CASES)
def test_gradient_operators_are_real_paddles(op_type: str) -> None:
    entry = MAKERS[op_type]
    made = make_grad_ops(forward_op(op_type, entry["forward"]))
    assert [d.type for d in made] == [g["type"] for g in entry["grads"]]
    for description, expected in zip(made, entry["grads"], strict=True):
        assert wiring(description.inputs) == wiring(expected["inputs"])
        assert wiring(description.outputs) == wiring(expected["outputs"])
        ours = {name: value for name, value in description.attrs.items() if name not in FRAMEWORK_ATTRS}
        theirs = {name: value for name, value in expected["attrs"].items() if name not in FRAMEWORK_ATTRS}
        assert ours == pytest.approx(theirs) if all_numbers(theirs) else ours == theirs


def all_numbers(attrs: dict[str, Any]) -> bool:
    return all(isinstance(value, (int, float)) for value in attrs.values())


@pytest.mark.parametrize("op_type", CASES)
def test_every_gradient_operator_is_implemented(op_type: str) -> None:
    missing = [grad["type"] for grad in MAKERS[op_type]["grads"] if grad["type"] not in MODULES]
    assert missing == []
