"""IfElse: rows split by a condition, each part computed by its own branch, and merged again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from fluidtool.errors import UsageError
from fluidtool.fluid.checks import check_type
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.control_flow.blocks import parent_block
from fluidtool.fluid.layers.control_flow.conditional import ConditionalBlock
from fluidtool.fluid.layers.control_flow.selection import merge_lod_tensor
from fluidtool.fluid.layers.creation import assign
from fluidtool.ir import Variable, unique_name


class IfElse:
    """Rows where `cond` [n, 1] is true go through `with ie.true_block():`, the others through `with ie.false_block():`.

    Within, `ie.input(x)` returns the branch's rows of x and `ie.output(y, …)` sets its results; `ie()` returns the
    list of outputs with the rows of both branches in their original order.
    """

    def __init__(self, cond: Variable, name: str | None = None) -> None:
        check_type(cond, "cond", Variable, "fluid.layers.IfElse")
        check_type(name, "name", (str, type(None)), "fluid.layers.IfElse")
        self.helper = LayerHelper("ifelse", name=name)
        self.cond = cond
        self._branches = {True: ConditionalBlock([cond]), False: ConditionalBlock([cond])}
        self._divided: dict[Variable, dict[bool, Variable]] = {}
        self._outputs: dict[bool, list[Variable]] = {True: [], False: []}
        self._inside: bool | None = None

    @contextmanager
    def _block(self, branch: bool) -> Iterator[None]:
        if self._inside is not None:
            raise UsageError("You cannot invoke IfElse.block() inside a block")
        self._inside = branch
        try:
            with self._branches[branch].block():
                yield
        finally:
            self._inside = None
        if not self._outputs[branch]:
            raise UsageError("Must set output inside block")

    def true_block(self) -> AbstractContextManager[None]:
        """The branch for rows where the condition is true."""
        return self._block(True)

    def false_block(self) -> AbstractContextManager[None]:
        """The branch for the other rows."""
        return self._block(False)

    def input(self, x: Variable) -> Variable:
        """The rows of x that belong to this branch."""
        if self._inside is None:
            raise UsageError("input must in true/false blocks")
        if x not in self._divided:
            around = parent_block()
            key = "ifelse_input" + self.helper.name
            parts = {
                branch: around.create_var(name=unique_name.generate(key), dtype=x.dtype) for branch in (True, False)
            }
            around.append_op(
                type="split_lod_tensor",
                inputs={"X": x, "Mask": self.cond},
                outputs={"OutTrue": parts[True], "OutFalse": parts[False]},
                attrs={"level": 0},
            )
            self._divided[x] = parts
        return self._divided[x][self._inside]

    def output(self, *outs: Variable) -> None:
        """What this branch computes for its rows."""
        if self._inside is None:
            raise UsageError("output can only be invoked in the sub-block")
        around = parent_block()
        for out in outs:
            check_type(out, "each output", Variable, "fluid.layers.IfElse.output")
            name = unique_name.generate(f"{self.helper.name}_output")
            outside = around.create_var(name=name, dtype=out.dtype)
            self._outputs[self._inside].append(outside)
            assign(out, outside)

    def __call__(self) -> list[Variable]:
        """The outputs, each with the rows of both branches, or of the only branch."""
        if self._inside is not None:
            raise UsageError("IfElse::__call__ must be out of sub-block")
        true, false = self._outputs[True], self._outputs[False]
        if not true and not false:
            raise UsageError("Must invoke true_block/false_block before __call__")
        if not true or not false:
            return true or false
        if len(true) != len(false):
            raise UsageError(f"The output side must be same, found {len(true)} and {len(false)} outputs")
        return [
            merge_lod_tensor(in_true=one, in_false=other, mask=self.cond, x=self.cond, level=0)
            for other, one in zip(false, true, strict=True)
        ]
