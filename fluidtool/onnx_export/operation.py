"""One operator as its rendering sees it: inputs as values, attributes with their defaults, what is known of its outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from fluidtool.ir import Block, Operator
from fluidtool.ir.operator import EMPTY
from fluidtool.onnx_export.graph import INT64, Blocked, Graph, Shape, Value
from fluidtool.onnx_export.items import Items
from fluidtool.ops.context import InferContext
from fluidtool.ops.math.versions import saved_since
from fluidtool.ops.registry import OpInfo
from fluidtool.ops.schema import TensorMeta
from fluidtool.records import dataclass
from fluidtool.tensor import numpy_dtype


class Environment(Protocol):
    """What renderings ask of the export around them."""

    notes: dict[str, None]
    several: bool
    parameters: Mapping[str, Any]

    def value(self, graph: Graph, name: str) -> Value:
        """The tensor of a name at this point; raises Blocked for one that has none."""

    def find(self, graph: Graph, name: str) -> Value | Items:
        """The value of a name at this point; raises Blocked for one that has none."""

    def reads(self, names: Sequence[str]) -> bool:
        """Whether something that counts reads one of these names."""

    def require_single(self) -> None:
        """Note that the model is right for one sequence at a time; raises Blocked where it is to take several."""

    def tell(self, name: str, levels: Sequence[Value]) -> None:
        """Note how long the sequences are that an operator gives."""

    def nested(
        self, graph: Graph, block: Block, names: Sequence[str], given: Mapping[str, Value | Items]
    ) -> dict[str, Value | Items]:
        """Render a sub-block in a graph of its own; the values that these names have at its end."""

    def assign(self, graph: Graph, block: Block, name: str, value: Value | Items) -> None:
        """Give a name a value that a sub-block made."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator, the graph that it is rendered in, and the values of the names at this point."""

    op: Operator
    info: OpInfo
    graph: Graph
    values: Mapping[str, Any]
    metas: Mapping[str, TensorMeta]
    exporter: Environment

    @property
    def type(self) -> str:
        """The operator's type."""
        return self.op.type

    # -- inputs
    def names(self, slot: str) -> list[str]:
        """The variables of an input slot."""
        return [name for name in self.op.inputs.get(slot, ()) if name != EMPTY]

    def all(self, slot: str) -> list[Value]:
        """The values of an input slot."""
        return [self.exporter.value(self.graph, name) for name in self.names(slot)]

    def get(self, slot: str) -> Value | None:
        """The value of an input slot, None where the program names none."""
        found = self.all(slot)
        return found[0] if found else None

    def __getitem__(self, slot: str) -> Value:
        value = self.get(slot)
        if value is None:
            raise Blocked(f"it lacks the input {slot}")
        return value

    def lod_level(self, slot: str) -> int:
        """How many levels of sequences an input has."""
        names = self.names(slot)
        meta = self.metas.get(names[0]) if names else None
        return 0 if meta is None else meta.lod_level

    # -- sequences
    def levels(self, slot: str) -> tuple[Value, ...]:
        """How long the sequences of an input are, level by level; () where it is one sequence, or none."""
        value = self.get(slot)
        return () if value is None else value.levels

    def lengths(self, slot: str) -> Value | None:
        """How many rows each sequence of an input has; None where it is one sequence, which is noted."""
        levels = self.levels(slot)
        if levels:
            return levels[-1]
        self.single()
        return None

    def single(self) -> Operation:
        """Note that the rendering is that of one sequence; raises Blocked where there are several."""
        for name in self.op.input_arg_names:
            found = self.values.get(name)
            if (isinstance(found, Items) and found.depth) or (isinstance(found, Value) and found.levels):
                raise Blocked(f"its rendering takes one sequence at a time, and {name} has several")
        self.exporter.require_single()
        return self

    def tell(self, slot: str, levels: Sequence[Value]) -> None:
        """Note how long the sequences of an output are."""
        for name in self.op.outputs.get(slot, ())[:1]:
            self.exporter.tell(name, levels)

    # -- attributes
    def attr(self, name: str, default: Any = None) -> Any:
        """The value of an attribute: the program's, else the declared default, else `default`."""
        if self.op.has_attr(name):
            if name in self.op.variable_attrs():
                raise Blocked(f"its attribute {name} is a variable")
            return self.op.attr(name)
        spec = self.info.attrs.get(name)
        if spec is None:
            return default
        later = bool(spec.renamed) and self.op.has_attr(spec.renamed)
        return self.op.attr(spec.renamed) if later else self.context.attr(name)

    def number(self, name: str) -> Any:
        """A number of an attribute, or the scalar value of the variable that replaces it."""
        named = self.op.variable_attrs().get(name)
        if not named:
            return self.attr(name)
        value = self.exporter.value(self.graph, named[0])
        return value.scalar() if value.array is None else value.array.reshape(-1)[0].item()

    def has_attr(self, name: str) -> bool:
        """Whether the program gives the attribute."""
        return self.op.has_attr(name)

    def ints(self, attr: str, tensor: str = "", tensors: str = "") -> list[int | Value] | Value:
        """Whole numbers of an attribute, or of the inputs (one vector, or a list of numbers) that replace it.

        A vector whose length is not known comes back as a value.
        """
        named = self.op.variable_attrs().get(attr)
        if named:
            parts = [self.exporter.value(self.graph, name) for name in named]
            return _numbers(parts[0]) if len(parts) == 1 and parts[0].shape != () else _items(parts)
        vector = self.get(tensor) if tensor else None
        if vector is not None:
            return _numbers(vector)
        several = self.all(tensors) if tensors else []
        if several:
            return _items(several)
        given = self.attr(attr)
        return [int(n) for n in (given if isinstance(given, Sequence) else [given])]

    def int_list(self, attr: str, tensor: str = "", tensors: str = "") -> list[int | Value]:
        """The same as a list; raises Blocked where not even the length is known."""
        found = self.ints(attr, tensor, tensors)
        if isinstance(found, Value):
            raise Blocked(f"how many numbers {attr} has is known only at run time")
        return found

    def known_ints(self, attr: str, tensor: str = "", tensors: str = "") -> list[int]:
        """The same, all of which are known; raises Blocked otherwise."""
        found = self.ints(attr, tensor, tensors)
        if isinstance(found, Value) or any(isinstance(n, Value) for n in found):
            raise Blocked(f"{attr} is computed at run time")
        return [int(n) for n in found if isinstance(n, int)]

    @property
    def context(self) -> InferContext:
        """What functions of the operator library that read attributes ask for."""
        return InferContext(self.op, self.info)

    def saved_since(self, major: int, minor: int) -> bool:
        """Whether the program was saved by this version of Paddle or a later one."""
        return saved_since(self.context, major, minor)

    # -- outputs
    def wants(self, slot: str) -> bool:
        """Whether the program names a variable for an output slot."""
        return bool(self.op.outputs.get(slot))

    def meta(self, slot: str = "", index: int = 0) -> TensorMeta | None:
        """What is known of an output (the first one by default) without running."""
        names = self.op.outputs.get(slot or self.info.outputs[0].name, [])
        return self.metas.get(names[index]) if index < len(names) else None

    def shape(self, slot: str = "") -> Shape:
        """The shape of an output as far as it is known; raises Blocked where its rank is not."""
        meta = self.meta(slot)
        if meta is None:
            raise Blocked("the number of dimensions of its output is known only at run time")
        return tuple(meta.shape)

    def dtype(self, slot: str = "", default: Any = None) -> np.dtype[Any]:
        """The data type of an output."""
        meta = self.meta(slot)
        if meta is not None:
            return numpy_dtype(meta.dtype)
        if default is None:
            raise Blocked("the data type of its output is known only at run time")
        found: np.dtype[Any] = np.dtype(default)
        return found


def _numbers(vector: Value) -> list[int | Value] | Value:
    """The numbers of a 1-D value: as a list where their count is known."""
    if vector.array is not None:
        return [int(n) for n in vector.array.reshape(-1)]
    flat = vector.cast(INT64).flat()
    if flat.shape is None or flat.shape[0] < 0:
        return flat
    if flat.shape[0] == 1:
        return [flat]
    return [flat.part(0, i, i + 1) for i in range(flat.shape[0])]


def _items(parts: Sequence[Value]) -> list[int | Value]:
    return [
        int(part.array.reshape(-1)[0]) if part.array is not None else part.cast(INT64).reshape([1]) for part in parts
    ]
