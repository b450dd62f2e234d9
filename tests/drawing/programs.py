"""Small programs to draw."""

from __future__ import annotations

from fluidtool.io.inference import inference_program
from fluidtool.ir import Program
from fluidtool.proto.enums import AttrType, VarType

EVIL = "</script><script>alert(1)</script>\x1b[31m\u202e&\"'"


def named(name: str) -> Program:
    """relu of `name`, then an operator that is not known, with the name in an attribute."""
    program = Program()
    block = program.global_block()
    for each in (name, "y", f"{name}.out"):
        block.create_var(name=each, shape=[-1, 4], dtype="float32")
    block.append_op(type="relu", inputs={"X": [name]}, outputs={"Out": ["y"]})
    op = block.append_op(type="mystery", inputs={"X": ["y"]}, outputs={"Out": [f"{name}.out"]})
    op.set_attr("note", name, AttrType.STRING)
    return inference_program(program, [name], [f"{name}.out"])


def looping() -> Program:
    """A loop that adds to x while a condition holds, then relu."""
    program = Program()
    block = program.global_block()
    for name in ("x", "y"):
        block.create_var(name=name, shape=[-1, 4], dtype="float32")
    for name in ("condition", "one"):
        block.create_var(name=name, shape=[1], dtype="bool" if name == "condition" else "float32")
    block.create_var(name="scopes", type=VarType.STEP_SCOPES)
    block.append_op(type="fill_constant", outputs={"Out": ["one"]}, attrs={"shape": [1], "dtype": 5, "value": 1.0})
    block.append_op(type="less_than", inputs={"X": ["x"], "Y": ["one"]}, outputs={"Out": ["condition"]})
    inner = program.create_block()
    inner.create_var(name="more", shape=[-1, 4], dtype="float32")
    inner.append_op(type="elementwise_add", inputs={"X": ["x"], "Y": ["one"]}, outputs={"Out": ["more"]})
    inner.append_op(type="assign", inputs={"X": ["more"]}, outputs={"Out": ["x"]})
    inner.append_op(type="less_than", inputs={"X": ["x"], "Y": ["one"]}, outputs={"Out": ["condition"]})
    program.rollback()
    block.append_op(
        type="while",
        inputs={"X": ["x", "one"], "Condition": ["condition"]},
        outputs={"Out": ["x"], "StepScopes": ["scopes"]},
        attrs={"sub_block": inner},
    )
    block.append_op(type="relu", inputs={"X": ["x"]}, outputs={"Out": ["y"]})
    return inference_program(program, ["x"], ["y"])


def chain(size: int, scopes: int = 0) -> Program:
    """`size` operators one after the other, in that many name scopes."""
    program = Program()
    block = program.global_block()
    block.create_var(name="x", shape=[-1, 4], dtype="float32")
    last = "x"
    for at in range(size):
        name = f"y{at}"
        block.create_var(name=name, shape=[-1, 4], dtype="float32")
        op = block.append_op(type="relu" if at % 3 else "tanh", inputs={"X": [last]}, outputs={"Out": [name]})
        if scopes:
            op.set_attr("op_namescope", f"/encoder_{at * scopes // size}/part/", AttrType.STRING)
        last = name
    return inference_program(program, ["x"], [last])
