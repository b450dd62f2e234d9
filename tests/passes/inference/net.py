"""A small program with its parameters and feeds, as tests of rewrites write it down."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.ir import Block, Operator, Program
from fluidtool.ops.inference import infer_declared
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor, Scope
from fluidtool.tensor import LoDTensor, var_type_of

Array = np.ndarray[Any, Any]


class Net:
    """Appends variables and operators to block 0; every operator's outputs are declared by shape inference."""

    def __init__(self) -> None:
        self.program, self.scope = Program(), Scope()
        self.block = self.program.global_block()
        self.feeds: dict[str, LoDTensor] = {}
        self.random = np.random.default_rng(7)

    def numbers(self, *shape: int, dtype: str = "float32") -> Array:
        """Random numbers between -1 and 1."""
        return self.random.uniform(-1, 1, shape).astype(dtype)

    def data(self, name: str, array: Array, lod: list[list[int]] | None = None, fixed: bool = False) -> str:
        """A fed variable; without `fixed` its first size is -1."""
        shape = list(array.shape) if fixed else [-1, *array.shape[1:]]
        kind = var_type_of(array.dtype)
        self.block.create_var(name=name, shape=shape, dtype=kind, lod_level=len(lod or []), is_data=True)
        self.feeds[name] = LoDTensor(array, lod or [])
        return name

    def parameter(self, name: str, array: Array) -> str:
        """A parameter with its value."""
        self.block.create_parameter(name=name, shape=list(array.shape), dtype=var_type_of(array.dtype))
        self.scope.var(name).value = LoDTensor(array)
        return name

    def op(self, op_type: str, inputs: dict[str, Any], outputs: dict[str, Any], **attrs: Any) -> Operator:
        """An operator of block 0."""
        return append(self.block, op_type, inputs, outputs, **attrs)

    def fetch(self, name: str) -> None:
        """A fetch operator."""
        if "fetch" not in self.block.vars:
            self.block.create_var(name="fetch", type=VarType.FETCH_LIST, persistable=True)
        self.block.append_op(type="fetch", inputs={"X": [name]}, outputs={"Out": ["fetch"]}, attrs={"col": 0})

    def run(self, *names: str) -> list[Array]:
        """The values of these names after one run."""
        return [value.numpy() for value in Executor().run(self.program, self.feeds, list(names), self.scope)]

    @property
    def types(self) -> list[str]:
        """The types of the operators of block 0."""
        return [op.type for op in self.block.ops]


def append(block: Block, op_type: str, inputs: dict[str, Any], outputs: dict[str, Any], **attrs: Any) -> Operator:
    """An operator with outputs declared where no block declares them yet."""
    op = block.append_op(type=op_type, inputs=inputs, outputs=outputs, attrs=attrs)
    for name in op.output_arg_names:
        if not block.has_var_recursive(name):
            block.create_var(name=name)
    infer_declared(op)
    return op


def reasons(result: Any) -> list[str]:
    """Why candidates were left."""
    return [decision.reason for decision in result.left]
