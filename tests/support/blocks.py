"""Small programs with sub-blocks, and their gradients by central differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from fluidtool.ir import Block, Program
from fluidtool.passes.backward import append_backward
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor, Scope
from fluidtool.tensor import LoDTensor
from tests.support.operators import dense

FLOAT, INT64, BOOL = VarType.FP64, VarType.INT64, VarType.BOOL


class Building:
    """A program under construction: `op` appends to the current block and declares what is new."""

    def __init__(self) -> None:
        self.program = Program()

    @property
    def block(self) -> Block:
        """The block that operators go to."""
        return self.program.current_block()

    def data(self, name: str, shape: Sequence[int], dtype: int = FLOAT, lod_level: int = 0) -> str:
        """A fed variable of block 0 that wants a gradient if it is floating."""
        self.program.global_block().create_var(
            name=name, shape=list(shape), dtype=dtype, lod_level=lod_level, is_data=True, stop_gradient=dtype != FLOAT
        )
        return name

    def op(
        self,
        type: str,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        kind: int = VarType.LOD_TENSOR,
        dtype: int = FLOAT,
        **attrs: Any,
    ) -> str:
        """Append an operator; returns the name of its first output."""
        names = [name for value in outputs.values() for name in ([value] if isinstance(value, str) else value)]
        for name in names:
            if not self.block.has_var_recursive(name):
                self.block.create_var(name=name, type=kind, dtype=dtype, stop_gradient=dtype != FLOAT)
        self.block.append_op(type=type, inputs=dict(inputs), outputs=dict(outputs), attrs=attrs)
        return names[0]

    def constant(self, name: str, value: float, dtype: int = INT64) -> str:
        """A [1] constant."""
        self.block.create_var(name=name, dtype=dtype, stop_gradient=True)
        attrs = {"shape": [1], "dtype": int(dtype), "value": float(value)}
        self.block.append_op(type="fill_constant", inputs={}, outputs={"Out": name}, attrs=attrs)
        return name

    @contextmanager
    def sub_block(self) -> Iterator[int]:
        """Operators within go to a new block, whose index it gives."""
        block = self.program.create_block()
        yield block.idx
        self.program.rollback()

    def next_step(self, index: str, bound: str) -> None:
        """End of a loop body: index += 1; go_on = index < bound."""
        self.op("increment", {"X": index}, {"Out": index}, step=1.0)
        self.op("less_than", {"X": index, "Y": bound}, {"Out": "go_on"}, dtype=BOOL)

    def run(self, feed: Mapping[str, Any], fetch: Sequence[str]) -> list[Any]:
        """The values of `fetch`."""
        scope = Scope()
        values = Executor(seed=3).run(self.program, feed, list(fetch), scope)
        assert scope.kids == []
        return values


def check_program_gradient(
    building: Building, loss: str, feed: Mapping[str, Any], wrt: Sequence[str], rtol: float = 1e-6, atol: float = 1e-8
) -> None:
    """Assert that append_backward's gradient of `loss` by the fed variables `wrt` agrees with central differences."""

    def value(changed: Mapping[str, Any]) -> float:
        return float(building.run({**feed, **changed}, [loss])[0].numpy().reshape(()))

    numeric = {}
    for name in wrt:
        base = feed[name]
        array = base.numpy() if isinstance(base, LoDTensor) else base
        numeric[name] = np.zeros_like(array)
        for at in np.ndindex(array.shape):
            sides = []
            for step in (1e-5, -1e-5):
                moved = array.copy()
                moved[at] += step
                sides.append(value({name: LoDTensor(moved, base.lod()) if isinstance(base, LoDTensor) else moved}))
            numeric[name][at] = (sides[0] - sides[1]) / 2e-5
    append_backward(building.program.global_block().var(loss))
    grads = building.run(feed, [name + "@GRAD" for name in wrt])
    for name, grad in zip(wrt, grads, strict=True):
        np.testing.assert_allclose(dense(grad), numeric[name], rtol=rtol, atol=atol, err_msg=f"gradient by {name}")
