"""What an operator refuses: before any importer, its inference and its kernel's checks run on the actual shapes.

A kernel is called with arrays that have a shape, a data type and a LoD but no values. It runs its checks, and stops where
it starts to compute. So inputs whose shapes, sequences or attributes numpy kernels refuse are never computed natively.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import numpy as np

from fluidtool.errors import FluidError, OperatorError
from fluidtool.ir import Operator
from fluidtool.ops.context import OpContext
from fluidtool.ops.inference import infer_operator
from fluidtool.ops.registry import OpInfo, get_op
from fluidtool.ops.schema import FRAMEWORK_ATTRS, TensorMeta
from fluidtool.proto.enums import AttrType, VarType
from fluidtool.runtime.graph.importers.registry import GraphBuilder
from fluidtool.runtime.graph.ir import Shape, UnsupportedError
from fluidtool.shapes import shape_text
from fluidtool.tensor import LoDTensor

WHOLE = frozenset({AttrType.INT, AttrType.LONG, AttrType.BOOLEAN})
SEVERAL = frozenset({AttrType.INTS, AttrType.LONGS, AttrType.BOOLEANS})
ALIKE = {
    **dict.fromkeys(WHOLE, WHOLE),
    **dict.fromkeys(SEVERAL, SEVERAL),
    AttrType.FLOAT: WHOLE | {AttrType.FLOAT},
    AttrType.FLOATS: SEVERAL | {AttrType.FLOATS},
}
"""The types that importers accept for a declared one."""
ROWS_BY_LOD = frozenset(
    {"sequence_pool", "sequence_expand", "sequence_expand_as", "sequence_concat", "im2sequence", "linear_chain_crf"}
)
"""Operators whose inference, as Paddle's, does not know the number of rows, which depends on the LoD of a run."""
FAILURES = (ArithmeticError, LookupError, TypeError, ValueError)  # of a kernel whose attributes or shapes cannot work


class Attributes(dict[str, Any]):
    """The attributes of an operator, declared defaults included; `form` tells different values apart."""

    __slots__ = ("form",)

    def __init__(self, attrs: dict[str, Any]) -> None:
        super().__init__(attrs)
        self.form = repr(sorted(item for item in attrs.items() if item[0] not in FRAMEWORK_ATTRS))


def every_attribute(op: Operator, info: OpInfo) -> Attributes:
    """The attributes of an operator. Raises UnsupportedError if one has another type than declared, or is required and
    missing: the numpy kernel reports the error.
    """
    attrs: dict[str, Any] = {}
    for name, spec in info.attrs.items():
        if not op.has_attr(name):
            if spec.required:
                raise UnsupportedError(f"{op.type} without the attribute {name}", result=op.output_arg_names[0])
            attrs[name] = spec.default
        elif op.attr_type(name) not in ALIKE.get(spec.type, (spec.type,)):
            raise UnsupportedError(f"the attribute {name} of another type", result=op.output_arg_names[0])
    return Attributes(attrs | {name: op.attr(name) for name in op.attr_names})


# ---------------------------------------------------------------- arrays without values
class ComputesError(Exception):
    """Raised when a kernel reads values: its checks are done."""


class NoNumbers:
    """An array that has only a shape and a data type."""

    __slots__ = ("dtype", "shape")

    def __init__(self, shape: Shape, dtype: Any) -> None:
        self.shape, self.dtype = shape, dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def reshape(self, *sizes: Any) -> NoNumbers:
        """The array with another shape, which may have one -1; raises ValueError as numpy does."""
        wanted = sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
        return NoNumbers(np.broadcast_to(np.float32(0), self.shape).reshape(tuple(wanted)).shape, self.dtype)

    def __getattr__(self, name: str) -> NoReturn:
        raise ComputesError


def _computes(*_: Any, **__: Any) -> NoReturn:
    raise ComputesError


for _name in [
    "add",
    "radd",
    "sub",
    "rsub",
    "mul",
    "rmul",
    "truediv",
    "rtruediv",
    "floordiv",
    "mod",
    "pow",
    "neg",
    "abs",
    "matmul",
    "rmatmul",
    "lt",
    "le",
    "gt",
    "ge",
    "eq",
    "ne",
    "and",
    "or",
    "xor",
    "invert",
    "iadd",
    "isub",
    "imul",
    "itruediv",
    "getitem",
    "setitem",
    "iter",
    "array",
    "bool",
    "int",
    "float",
    "index",
    "contains",
]:
    setattr(NoNumbers, f"__{_name}__", _computes)


class _Nothing:
    """An array library, or a device, that cannot compute."""

    def __getattr__(self, name: str) -> NoReturn:
        raise ComputesError


_NOTHING = _Nothing()
_RUNTIME: Any = SimpleNamespace(
    device=SimpleNamespace(
        name="cpu",
        xp=_NOTHING,
        host=_computes,
        array=_computes,
        special=_computes,
        add_at=_computes,
        sums_at=_computes,
        random=_computes,
    ),
    checks=SimpleNamespace(mark=_computes),
    host=SimpleNamespace(xp=np),  # LoDs have values, on the host
    generator=_computes,
    add_rows=_computes,
)


# ---------------------------------------------------------------- checks
class Refusals:
    """Output shapes of the operators of a region for actual inputs; equal operators are checked once."""

    def __init__(self) -> None:
        self._known: dict[Any, list[tuple[str, int, Shape]]] = {}

    def results(self, builder: GraphBuilder, op: Operator, attrs: Attributes) -> list[tuple[str, int, Shape]]:
        """The output shapes of an operator by slot and number, -1 for unknown sizes.

        Raises UnsupportedError if the operator refuses its inputs.
        """
        values, booleans, lods = builder.values, builder.conditions, builder.lods
        key = (
            op.type,
            attrs.form,
            tuple([
                (slot, *[
                    (value.shape, value.integer, value.short, lods.get(name)) if (value := values.get(name)) else booleans.get(name)
                    for name in names
                ])
                for slot, names in op.inputs.items()
            ]),
            tuple([(slot, len(names)) for slot, names in op.outputs.items()]),
        )  # fmt: skip
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = list(asked(builder, op, attrs))
        return found


def asked(builder: GraphBuilder, op: Operator, attrs: Attributes) -> Iterator[tuple[str, int, Shape]]:
    """The same, from the operator's inference and its kernel."""
    try:
        metas = {name: meta_of(builder, name) for names in op.inputs.values() for name in names}
        shapes = {name: meta.shape for name, meta in infer_operator(op, metas.get).items()}
        run_checks(builder, op, attrs)
    except OperatorError as error:
        raise UnsupportedError(str(error)) from error
    for slot, names in op.outputs.items():
        for number, name in enumerate(names):
            if name in shapes:
                yield slot, number, (-1, *shapes[name][1:]) if op.type in ROWS_BY_LOD else shapes[name]


def meta_of(builder: GraphBuilder, name: str) -> TensorMeta | None:
    """What is known of a value."""
    value = builder.values.get(name) or builder.conditions.get(name)
    if value is None:
        return None
    whole = VarType.INT32 if value.short else VarType.INT64
    type = VarType.BOOL if name in builder.conditions else whole if value.integer else VarType.FP32
    return TensorMeta(value.shape, type, len(builder.lods.get(name, ())))


def run_checks(builder: GraphBuilder, op: Operator, attrs: Attributes) -> None:
    """Call the kernel until it reads values. Raises OperatorError if it refuses its inputs."""
    info = get_op(op.type)
    holders = {slot: tuple(holder_of(builder, name) for name in names) for slot, names in op.inputs.items() if names}
    outputs = {
        slot: tuple(SimpleNamespace(name=name, value=None, pending_lod=None) for name in names)
        for slot, names in op.outputs.items()
        if names
    }
    args: list[Any] = []
    for slot in () if info.raw else info.inputs:
        found: Sequence[Any] = holders.get(slot.name, ())
        arrays = [None if holder.value is None else holder.value.array for holder in found]
        if slot.duplicable:
            args.append(arrays)
            continue
        value = arrays[0] if arrays else None
        if value is None and not slot.dispensable:
            raise OperatorError(f"operator {op.type}: its input {slot.name} has no value")
        args.append(value)
    context = OpContext(op, info, cast(Any, holders), cast(Any, outputs), None, _RUNTIME)
    try:
        info.kernel(context, *args, **{name: attrs[name] for name in info.kernel_attrs})
    except ComputesError:
        return
    except FluidError:
        raise
    except FAILURES as error:
        raise OperatorError(f"operator {op.type} failed: {error}") from error


def holder_of(builder: GraphBuilder, name: str) -> Any:
    """A variable whose value has no elements, only shape and type."""
    value = builder.values.get(name) or builder.conditions.get(name)
    if value is None:
        return SimpleNamespace(name=name, value=None)
    type = np.bool_ if name in builder.conditions else np.int32 if value.short else value.dtype
    array = NoNumbers(value.shape, np.dtype(type))
    return SimpleNamespace(name=name, value=LoDTensor(array, [list(level) for level in builder.lods.get(name, ())]))


def require_agreement(builder: GraphBuilder, op: Operator, results: Sequence[tuple[str, int, Shape]]) -> None:
    """Raise UnsupportedError unless the importer's shapes are those that the operator infers."""
    for slot, number, shape in results:
        name = op.outputs[slot][number]
        value = builder.values.get(name) or builder.conditions.get(name)
        if value is None or value.shape == shape:
            continue
        if len(value.shape) != len(shape) or any(a not in (b, -1) for a, b in zip(shape, value.shape, strict=True)):
            raise UnsupportedError(
                f"{op.type} to the shape {shape_text(value.shape)} where {shape_text(shape)} is inferred"
            )
