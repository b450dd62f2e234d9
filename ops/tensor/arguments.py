"""What the tensor operators share: attributes that inputs may stand in for, axes, and the LoD of unchanged rows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.schema import TensorMeta
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text
from fluidtool.tensor import LoDTensor, SelectedRows

Context = OpContext | InferContext
MOST_ELEMENTS = 2**40


def numbers(ctx: OpContext, values: Any) -> list[int]:
    """The whole numbers that an integer tensor holds, on the host."""
    return [int(value) for value in ctx.host(values).reshape(-1)]


def number(ctx: OpContext, values: Any, slot: str) -> int:
    """The one whole number that a tensor holds."""
    found = numbers(ctx, values)
    if len(found) != 1:
        raise ctx.error(f"input {slot} must hold one number, found a tensor of shape {values.shape}")
    return found[0]


def integers(ctx: OpContext, tensor: Any, tensors: Sequence[Any] | None, attr: Sequence[int]) -> list[int]:
    """The values of an attribute: those of the tensor if there is one, of the list of tensors, else the attribute's."""
    if tensor is not None:
        return numbers(ctx, tensor)
    if tensors:
        return [number(ctx, item, f"{index} of a list of sizes") for index, item in enumerate(tensors)]
    return [int(value) for value in attr]


def inferred_integers(
    tensor: TensorMeta | None, tensors: Sequence[TensorMeta] | None, attr: Sequence[int]
) -> list[int] | None:
    """The same without running: -1 for values known only at run time, None if even their number is unknown."""
    if attr:
        return [int(value) for value in attr]
    if tensor is not None:
        return [-1] * prod(tensor.shape) if tensor.shape and min(tensor.shape) >= 0 else None
    return [-1] * len(tensors or [])


def one_length(ctx: Context, **numbers: Sequence[int]) -> None:
    """Fail unless all of these attributes have as many numbers as one another."""
    counts = [len(values) for values in numbers.values()]
    if len(set(counts)) > 1:
        raise ctx.error(f"{_listed(list(numbers))} must be of one length, found {_listed([str(n) for n in counts])}")


def _listed(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"


def axis_in(ctx: Context, axis: int, rank: int, name: str = "axis") -> int:
    """The axis counted from the front; fails when it is out of range."""
    bound = max(rank, 1)
    if not -bound <= axis < bound:
        raise ctx.error(f"{name} must be in [{-bound}, {bound}), found {axis}")
    return int(axis) + rank if axis < 0 else int(axis)


def allocatable(ctx: OpContext, shape: Sequence[int]) -> tuple[int, ...]:
    """The shape; fails if no machine could hold such a tensor."""
    count = prod(int(size) for size in shape)
    if count > MOST_ELEMENTS:
        raise ctx.error(
            f"the output would have {count} elements, of shape {shape_text(shape)}, which does not fit in memory"
        )
    return tuple(shape)


def dims(value: Any) -> tuple[int, ...]:
    """The dimensions of an array, of a LoDTensor without memory, or of the values of a SelectedRows."""
    if isinstance(value, SelectedRows):
        value = value.value
    return tuple(value.shape()) if isinstance(value, LoDTensor) else tuple(value.shape)


def lod_of_same_rows(ctx: OpContext, x: Any, out: Any, source: str = "X", target: str = "Out") -> None:
    """Pass the LoD on when the number of rows did not change."""
    if tuple(x.shape[:1]) == tuple(out.shape[:1]):
        ctx.set_lod(target, ctx.lod(source))


def may_be_same(first: Sequence[int], second: Sequence[int]) -> bool:
    """Whether two declared shapes may be one at run time, where a size of -1 is known."""
    return len(first) == len(second) and all(a == b or min(a, b) < 0 for a, b in zip(first, second, strict=True))


def meta_of_same_rows(x: TensorMeta, shape: Sequence[int]) -> TensorMeta:
    """The metadata of `x` in another shape; the LoD level stays when the number of rows does."""
    same = tuple(x.shape[:1]) == tuple(shape[:1])
    return x.with_shape(tuple(shape)).with_lod_level(x.lod_level if same else 0)


def x_shape(ctx: OpContext, x: Any) -> LoDTensor:
    """The output XShape: the dimensions of `x` behind a 0, its LoD, no memory."""
    tensor = ctx.dims_only((0, *x.shape))
    tensor.offsets = ctx.lod("X")
    return tensor


def x_shape_meta(x: TensorMeta) -> TensorMeta:
    """The metadata of XShape."""
    return x.with_shape((0, *x.shape))


def from_x_shape(gradient: Any, shape: LoDTensor | None) -> Any:
    """A gradient in the shape that XShape kept (None: that of a single number)."""
    return gradient.reshape(() if shape is None else tuple(shape.shape()[1:]))


def declared_kind(ctx: OpContext, slot: str = "Out") -> VarType:
    """What the program declares the output variable to be: LOD_TENSOR, SELECTED_ROWS, LOD_TENSOR_ARRAY."""
    names = ctx.op.output(slot)
    var = ctx.op.block.find_var_recursive(names[0]) if names else None
    return VarType.LOD_TENSOR if var is None else VarType(var.type)


def as_declared(ctx: OpContext, array: Any, height: int, slot: str = "Out") -> Any:
    """The array, as the values of a SelectedRows without rows when the output is declared to be one."""
    return SelectedRows((), height, array) if declared_kind(ctx, slot) == VarType.SELECTED_ROWS else array


def same_dtype(ctx: OpContext, first: Any, others: Sequence[Any], slots: str) -> None:
    """Fail unless all arrays have one data type."""
    for other in others:
        if other.dtype != first.dtype:
            raise ctx.error(f"{slots} must have one data type, found {first.dtype} and {other.dtype}")


def in_range(ctx: OpContext, index: Any, size: int, slot: str, what: str) -> None:
    """Fail unless 0 <= index < size everywhere."""
    if index.dtype.kind not in "iu":
        raise ctx.error(f"{slot} must hold int32 or int64, found {index.dtype}")
    ctx.require_within(index, size, lambda found: f"{slot} must lie in [0, {size}), {what}, found {found}")


def index_grid(ctx: OpContext, shape: Sequence[int], axis: int, index: Any) -> tuple[Any, ...]:
    """Indexes that pick, for every place of `index` (of this shape), the element at that place moved along `axis`."""
    grid = []
    for i, size in enumerate(shape):
        form = [1] * len(shape)
        form[i] = size
        grid.append(index if i == axis else ctx.xp.arange(size).reshape(form))
    return tuple(grid)
