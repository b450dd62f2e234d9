"""What `save_inference_model` does to the program besides pruning it, as Paddle 1.8.5 does."""

from __future__ import annotations

from pathlib import Path

import fluidtool.fluid as fluid


def saved_and_loaded(program: fluid.Program, target: fluid.framework.Variable, folder: Path) -> fluid.Program:
    executor = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        fluid.io.save_inference_model(str(folder), ["x"], [target], executor, program)
        return fluid.io.load_inference_model(str(folder), executor)[0]


def test_operators_forget_their_devices(tmp_path: Path) -> None:
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        x = fluid.data("x", [-1, 2], "float32")
        with fluid.device_guard("cpu"):
            y = fluid.layers.relu(x)
    assert program.global_block().ops[0].attr("op_device") == "cpu"
    saved = saved_and_loaded(program, y, tmp_path)
    assert [op.attr("op_device") for op in saved.global_block().ops if op.type == "relu"] == [""]
    assert program.global_block().ops[0].attr("op_device") == ""


def test_operators_made_in_a_graph_are_marked_as_of_no_device(tmp_path: Path) -> None:
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        x = fluid.data("x", [-1, 2], "float32")
        y = fluid.layers.relu(x)
    operator = program.global_block().ops[0]
    operator._remove_attr("op_device")
    saved = saved_and_loaded(program, y, tmp_path)
    assert [op.attr("op_device") for op in saved.global_block().ops if op.type == "relu"] == [""]
