"""`fluid.Operator` as documented: its arguments and methods."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.fluid import Program, core


def block_with(*names: str) -> fluid.Block:
    block = Program().global_block()
    for name in names:
        block.create_var(name=name, shape=[2], dtype="float32")
    return block


def scale(**attrs: Any) -> fluid.Operator:
    block = block_with("x", "y")
    return block.append_op(type="scale", inputs={"X": ["x"]}, outputs={"Out": ["y"]}, attrs=attrs)


def test_the_example() -> None:
    cur_program = Program()
    cur_block = cur_program.current_block()
    var1, var2, var3 = (cur_block.create_var(name=f"var{n}", shape=[2], dtype="float32") for n in (1, 2, 3))
    # var1 += var2 + var3
    cur_block.append_op(type="sum", inputs={"X": [var1, var2, var3]}, outputs={"Out": [var1]})
    feed = {f"var{n}": np.full(2, n, "float32") for n in (1, 2, 3)}
    (out,) = fluid.Executor(fluid.CPUPlace()).run(cur_program, feed=feed, fetch_list=[var1])
    assert out.tolist() == [6, 6]


def test_the_constructor() -> None:
    block = block_with("x", "y")
    op = fluid.Operator(block, None, type="scale", inputs={"X": "x"}, outputs={"Out": "y"}, attrs={"scale": 2.0})
    assert (op.block, op.type, op.input("X"), op.output("Out"), op.attr("scale")) == (block, "scale", ["x"], ["y"], 2.0)


def test_a_type_is_needed() -> None:
    with pytest.raises(ValueError, match="`type` to initialized an Operator can not be None"):
        fluid.Operator(block_with(), None)


@pytest.mark.parametrize(
    ("kind", "slots", "message"),
    [
        ("nosuch", {}, 'Operator "nosuch" has not been registered'),
        ("scale", {"outputs": {"Out": ["y"]}}, "X"),
        ("mul", {"inputs": {"X": ["x"]}, "outputs": {"Out": ["y"]}}, "Input Y not found|Y"),
        ("scale", {"inputs": {"X": ["x"]}}, "Out"),
        ("scale", {"inputs": {"X": ["x"], "Z": ["y"]}, "outputs": {"Out": ["y"]}}, "Z"),
        ("scale", {"inputs": {"X": ["x"]}, "outputs": {"Out": ["y"]}, "attrs": {"scale": "much"}}, "scale"),
    ],
)
def test_what_does_not_match_the_registered_operator_is_a_value_error(
    kind: str, slots: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        block_with("x", "y").append_op(type=kind, **slots)


def test_to_string() -> None:
    text = scale(scale=2.0).to_string(True)
    assert 'type: "scale"' in text and 'arguments: "x"' in text


def test_input_and_output_are_lists_of_names() -> None:
    op = scale()
    assert (op.input("X"), op.input(name="X"), op.output("Out"), op.output(name="Out")) == (["x"], ["x"], ["y"], ["y"])


def test_rename_input_and_rename_output() -> None:
    op = scale()
    assert op.rename_input("x", "a") is None  # type: ignore[func-returns-value]
    assert op.rename_output(old_name="y", new_name="b") is None  # type: ignore[func-returns-value]
    assert (op.input("X"), op.output("Out")) == (["a"], ["b"])


def test_has_attr() -> None:
    op = scale(scale=2.0)
    assert op.has_attr("scale") is True and op.has_attr(name="nosuch") is False


@pytest.mark.parametrize(
    ("name", "kind"), [("scale", core.AttrType.FLOAT), ("bias_after_scale", core.AttrType.BOOLEAN)]
)
def test_attr_type(name: str, kind: core.AttrType) -> None:
    assert scale().attr_type(name) == kind


def test_attr_of_every_kind() -> None:
    block = block_with("x", "y")
    op = block.append_op(
        type="fill_constant",
        outputs={"Out": ["y"]},
        attrs={"shape": [2], "dtype": 5, "value": 1.5, "force_cpu": True, "str_value": "1.5"},
    )
    values = [op.attr(name) for name in ("shape", "dtype", "value", "force_cpu", "str_value")]
    assert values == [[2], 5, 1.5, True, "1.5"]


def test_set_attr() -> None:
    op = scale(scale=2.0)
    assert op.set_attr("scale", 3.0) is None  # type: ignore[func-returns-value]
    op.set_attr(name="bias_after_scale", val=False)
    assert (op.attr("scale"), op.attr("bias_after_scale")) == (3.0, False)


def test_set_attr_raises_value_error_for_another_type() -> None:
    with pytest.raises(ValueError, match="attribute scale of operator scale is FLOAT, but 'three' does not match it"):
        scale(scale=2.0).set_attr("scale", "three")


def test_an_unknown_attribute_is_named() -> None:
    with pytest.raises(ValueError, match="has no attribute 'scal'; did you mean scale"):
        scale().attr("scal")


def test_block_attr_is_the_index_of_the_block() -> None:
    condition = fluid.layers.fill_constant([1], "bool", True)
    loop = fluid.layers.While(cond=condition)
    with loop.block():
        fluid.layers.fill_constant([1], "bool", False, out=condition)
    (op,) = [op for op in fluid.default_main_program().global_block().ops if op.type == "while"]
    assert op.block_attr("sub_block") == 1 and op.attr_type("sub_block") == core.AttrType.BLOCK


def test_all_attrs() -> None:
    attrs = scale(scale=2.0, bias=1.0).all_attrs()
    assert isinstance(attrs, dict)
    assert (attrs["scale"], attrs["bias"], attrs["bias_after_scale"]) == (2.0, 1.0, True)
