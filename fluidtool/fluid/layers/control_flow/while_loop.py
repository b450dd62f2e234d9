"""While and while_loop: a block that runs while a condition is true."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.control_flow.blocks import declared, inner_block, reads_and_writes
from fluidtool.fluid.layers.creation import assign
from fluidtool.fluid.nested import assert_same_structure, is_sequence, map_structure
from fluidtool.ir import Block, Variable
from fluidtool.ir.variable import data_type_name
from fluidtool.proto.enums import VarType


class While:
    """A loop: `with While(cond).block(): …` runs the block while `cond`, one boolean that the block updates, is true.

    is_test: do not keep steps for a backward pass.
    """

    def __init__(self, cond: Variable, is_test: bool = False, name: str | None = None) -> None:
        self.helper = LayerHelper("while", name=name)
        if not isinstance(cond, Variable):
            raise ArgumentTypeError(f"condition should be a variable, found {type(cond).__name__}")
        if cond.dtype != VarType.BOOL:
            raise ArgumentTypeError(f"condition should be a boolean variable, found {data_type_name(cond.dtype)}")
        if math.prod(cond.shape) != 1:
            raise ArgumentTypeError(f"condition expected shape as [], but given shape as {list(cond.shape)}.")
        self.cond_var, self.is_test = cond, is_test

    @contextmanager
    def block(self) -> Iterator[None]:
        """Operators appended within are the body."""
        with inner_block(self.helper.main_program) as body:
            yield
            self._complete(body)

    def _complete(self, body: Block) -> None:
        around = body.parent
        assert around is not None
        reads, writes = reads_and_writes(body, [self.cond_var.name])
        inputs = {"X": [around.var_recursive(name) for name in reads], "Condition": [self.cond_var]}
        outputs = {
            "Out": declared(around, writes),
            "StepScopes": [around.create_var(type=VarType.STEP_SCOPES)],
        }
        attrs = {"sub_block": body, "is_test": self.is_test}
        around.append_op(type="while", inputs=inputs, outputs=outputs, attrs=attrs)


def while_loop(
    cond: Callable[..., Variable],
    body: Callable[..., Any],
    loop_vars: Sequence[Any],
    is_test: bool = False,
    name: str | None = None,
) -> Sequence[Any]:
    """Run `loop_vars = body(*loop_vars)` while `cond(*loop_vars)`, one boolean, is true; returns loop_vars.

    body returns as many variables, nested in the same way. Raises ArgumentTypeError and UsageError as Paddle does.
    """
    LayerHelper("while_loop", name=name)
    if not callable(cond):
        raise ArgumentTypeError(f"cond in while_loop should be callable, found {type(cond).__name__}")
    if not callable(body):
        raise ArgumentTypeError(f"body in while_loop should be callable, found {type(body).__name__}")
    if not isinstance(loop_vars, (list, tuple)):
        raise ArgumentTypeError(f"loop_vars in while_loop should be a list or tuple, found {type(loop_vars).__name__}")
    if len(loop_vars) == 0:
        raise UsageError("loop_vars in while_loop should not be empty")
    condition = cond(*loop_vars)
    _check_condition(condition)
    with While(condition, is_test, name).block():
        # The body may change containers in place, so it gets copies of them.
        given = map_structure(lambda var: var, loop_vars) if any(map(is_sequence, loop_vars)) else loop_vars
        results = body(*given)
        if not isinstance(results, (list, tuple)):
            results = [results]
        try:
            assert_same_structure(results, loop_vars, check_types=False)
        except ValueError as error:
            raise UsageError(
                f"body in while_loop should return the same arity (length and structure) as loop_vars: {error}"
            ) from error
        again = cond(*results)
        map_structure(assign, results, loop_vars)
        assign(again, condition)
    return loop_vars


def _check_condition(condition: Any) -> None:
    if not isinstance(condition, Variable):
        raise ArgumentTypeError("cond in while_loop should return a variable")
    if condition.dtype != VarType.BOOL:
        raise ArgumentTypeError("cond in while_loop should return a boolean variable")
    if math.prod(condition.shape) != 1:
        raise ArgumentTypeError(
            f"the shape of the variable returned by cond should be [],but given shape as {list(condition.shape)}."
        )
