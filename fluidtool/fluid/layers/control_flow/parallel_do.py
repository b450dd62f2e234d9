"""ParallelDo, of Fluid 0.12 to 0.15 (Paddle 0.14 layers/control_flow.py)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fluidtool.errors import UsageError
from fluidtool.ir import Variable


class ParallelDo:
    """`with pd.do():` opens a block for every place; `pd()` returns what it wrote.

    Paddle gave every place a part of the batch, and joined what the blocks wrote. Here the batch stays whole: its operators are
    appended to the current block, as with one place.
    """

    def __init__(self, places: Any, use_nccl: bool = False, name: str | None = None) -> None:
        self.places = places
        self.outputs: list[Variable] = []
        self._inside = self._done = False

    @contextmanager
    def do(self) -> Iterator[None]:
        """Operators appended within are the block."""
        self._inside = True
        try:
            yield
            self._done = True
        finally:
            self._inside = False

    def _must_be_inside(self, method: str) -> None:
        if not self._inside:
            raise UsageError(f"You must invoke {method} in the block of ParallelDo: `with pd.do():`")

    def read_input(self, var: Variable) -> Variable:
        """The part of a batch that a place gets: all of it."""
        self._must_be_inside("read_input")
        return var

    def write_output(self, var: Variable) -> None:
        """Have `pd()` return the variable."""
        self._must_be_inside("write_output")
        self.outputs.append(var)

    def __call__(self) -> Variable | list[Variable]:
        """What the block wrote: a variable, or a list of several. Raises UsageError before its end, and if it wrote none."""
        if not self._done:
            raise UsageError("a ParallelDo can be called only after its block: `with pd.do():`")
        if not self.outputs:
            raise UsageError("the block of a ParallelDo wrote nothing; call write_output in it")
        return self.outputs[0] if len(self.outputs) == 1 else list(self.outputs)
