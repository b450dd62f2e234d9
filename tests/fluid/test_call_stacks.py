"""What an operator records of where it was appended (Paddle 1.8.5 framework.py: op_callstack)."""

from __future__ import annotations

import sys

from fluidtool import fluid


def test_an_operator_records_the_line_that_appended_it() -> None:
    with fluid.program_guard(fluid.Program()):
        line = sys._getframe().f_lineno + 1
        made = fluid.layers.fill_constant([1], "float32", 0.0)
    where, text = made.block.ops[0].attr("op_callstack")[:2]
    assert where == f'  File "{__file__}", line {line}, in test_an_operator_records_the_line_that_appended_it'
    assert text == '    made = fluid.layers.fill_constant([1], "float32", 0.0)'


def test_a_line_without_a_file_is_recorded_without_its_text() -> None:
    script = compile("made = fluid.layers.fill_constant([1], 'float32', 0.0)", "<nowhere>", "exec")
    with fluid.program_guard(fluid.Program()):
        exec(script, names := {"fluid": fluid})
    assert names["made"].block.ops[0].attr("op_callstack")[:2] == ['  File "<nowhere>", line 1, in <module>', ""]
