"""Small programs for tests of the memory passes, written one operator at a time, with declared shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from fluidtool.ir import Operator, Program
from fluidtool.ops.inference import infer_declared
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor, Scope
from fluidtool.tensor import LoDTensor


class Net:
    """A program whose only input is `x`, float32 [-1, 4], or as given; `op` declares what it writes."""

    def __init__(self, shape: Sequence[int] = (-1, 4)) -> None:
        self.program = Program()
        self.values: dict[str, Any] = {}
        self.program.global_block().create_var(name="x", shape=list(shape), dtype="float32", is_data=True)

    def op(self, type: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any], **attrs: Any) -> Operator:
        """Append an operator to the current block."""
        block = self.program.current_block()
        for value in outputs.values():
            for name in [value] if isinstance(value, str) else value:
                if not block.has_var_recursive(name):
                    block.create_var(name=name, dtype="float32")
        op = block.append_op(type=type, inputs=dict(inputs), outputs=dict(outputs), attrs=attrs)
        infer_declared(op)
        return op

    def step(self, x: str, out: str, type: str = "tanh", **attrs: Any) -> str:
        """out = type(x); returns `out`."""
        self.op(type, {"X": x}, {"Out": out}, **attrs)
        return out

    def chain(self, *names: str, type: str = "tanh") -> str:
        """Each name is computed from the one before, the first from x; returns the last."""
        for x, out in zip(("x", *names), names, strict=False):
            self.step(x, out, type)
        return names[-1]

    def parameter(self, name: str, *shape: int) -> str:
        """A parameter with repeatable values."""
        self.program.global_block().create_parameter(name=name, shape=list(shape), dtype="float32")
        self.values[name] = np.random.default_rng(len(self.values)).normal(size=shape).astype(np.float32)
        return name

    def mul(self, x: str, weight: str, out: str) -> str:
        """out = x · weight."""
        self.op("mul", {"X": x, "Y": weight}, {"Out": out}, x_num_col_dims=1, y_num_col_dims=1)
        return out

    def constant(self, name: str, value: float, dtype: int = VarType.INT64, **attrs: Any) -> str:
        """A [1] constant."""
        self.program.current_block().create_var(name=name, dtype=dtype, shape=[1], stop_gradient=True)
        self.op("fill_constant", {}, {"Out": name}, shape=[1], dtype=int(dtype), value=float(value), **attrs)
        return name

    @contextmanager
    def block(self) -> Iterator[int]:
        """Operators within go to a new block, whose index it gives."""
        block = self.program.create_block()
        yield block.idx
        self.program.rollback()

    @contextmanager
    def loop(self, rounds: int, reads: Sequence[str], writes: Sequence[str]) -> Iterator[None]:
        """Operators within run `rounds` times; `writes` are names from outside that they change."""
        index, bound = self.constant("index", 0), self.constant("bound", rounds)
        self.flag("go_on", index, bound)
        self.program.current_block().create_var(name="steps", type=VarType.STEP_SCOPES)
        with self.block() as block:
            yield
            self.op("increment", {"X": index}, {"Out": index}, step=1.0)
            self.op("less_than", {"X": index, "Y": bound}, {"Out": "go_on"})
        inputs = {"X": [*reads, *writes, index, bound], "Condition": ["go_on"]}
        outputs = {"Out": [*writes, index, "go_on"], "StepScopes": ["steps"]}
        attrs = {"sub_block": self.program.block(block), "is_test": False}
        self.program.current_block().append_op(type="while", inputs=inputs, outputs=outputs, attrs=attrs)

    @contextmanager
    def branch(self, taken: bool, reads: Sequence[str], writes: Sequence[str]) -> Iterator[None]:
        """Operators within run or do not; `writes` are names from outside that they change."""
        self.flag("taken", self.constant("left", 0), self.constant("right", 1 if taken else 0))
        self.program.current_block().create_var(name="branch_scope", type=VarType.STEP_SCOPES)
        with self.block() as block:
            yield
        inputs, outputs = {"Cond": ["taken"], "Input": list(reads)}, {"Out": list(writes), "Scope": ["branch_scope"]}
        attrs = {"sub_block": self.program.block(block), "is_scalar_condition": True}
        self.program.current_block().append_op(type="conditional_block", inputs=inputs, outputs=outputs, attrs=attrs)

    def flag(self, name: str, x: str, y: str) -> str:
        """name = x < y."""
        self.program.current_block().create_var(name=name, dtype=VarType.BOOL, shape=[1], stop_gradient=True)
        self.op("less_than", {"X": x, "Y": y}, {"Out": name})
        return name

    def scope(self) -> Scope:
        """A new scope with the parameters."""
        scope = Scope()
        for name, array in self.values.items():
            scope.var(name).value = LoDTensor(array.copy())
        return scope

    def feed(self) -> dict[str, Any]:
        """A repeatable batch of 3 for x."""
        shape = [3 if size < 0 else size for size in self.program.global_block().var("x").shape]
        return {"x": np.random.default_rng(5).normal(size=shape).astype(np.float32)}

    def run(self, *fetches: str, program: Program | None = None) -> list[bytes]:
        """The bytes of the fetched values."""
        values = Executor(seed=3).run(program or self.program, self.feed(), fetches, self.scope())
        return [value.numpy().tobytes() for value in values]


def types(program: Program, block: int = 0) -> list[str]:
    """The types of the operators of a block."""
    return [op.type for op in program.block(block).ops]


def arguments(program: Program, block: int = 0) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """What each operator of a block reads and writes."""
    return [(tuple(op.input_arg_names), tuple(op.output_arg_names)) for op in program.block(block).ops]
