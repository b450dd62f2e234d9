"""Common code of loops, branches and their gradients: step scopes, links between scopes, sums of gradients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any
from weakref import WeakKeyDictionary

from fluidtool.ir import Program
from fluidtool.ops.context import OpContext
from fluidtool.records import dataclass
from fluidtool.tensor import LoDTensor, LoDTensorArray, SelectedRows

Reading = tuple[str, str, tuple[str, ...]]  # an operator's type, one of its slots, and what it reads there
_gradients: WeakKeyDictionary[Program, tuple[int, frozenset[Reading]]] = WeakKeyDictionary()
"""By program and its number of changes, what its gradient operators read: loops ask for it in every step."""


def has_gradient(ctx: OpContext, slot: str) -> bool:
    """Whether the program contains the gradient of this operator, which will need the scopes in output `slot`."""
    program = ctx.op.block.program
    known = _gradients.get(program)
    if known is None or known[0] != program.mutation:
        known = _gradients[program] = (program.mutation, frozenset(_read_by_gradients(program)))
    return (ctx.op.type + "_grad", slot, tuple(ctx.op.output(slot))) in known[1]


def _read_by_gradients(program: Program) -> Iterator[Reading]:
    for block in program.blocks:
        for op in block.ops:
            if op.type.endswith("_grad"):
                yield from ((op.type, slot, tuple(names)) for slot, names in op.inputs.items())


def keep_scopes(ctx: OpContext, slot: str, scopes: list[Any]) -> None:
    """Pass the scopes of the steps to the gradient operator."""
    for holder in ctx.outputs.get(slot, ())[:1]:
        drop_scopes(ctx, holder.value or [])
        holder.value = scopes


def kept_scopes(ctx: OpContext, slot: str) -> list[Any]:
    """The scopes from the forward operator; raises OperatorError if there are none."""
    holders = ctx.inputs.get(slot, ())
    if not holders or not isinstance(holders[0].value, list):
        raise ctx.error(
            f"input {slot} holds no scopes; the forward operator must run before its gradient, in the same run"
        )
    scopes: list[Any] = holders[0].value
    return scopes


def drop_scopes(ctx: OpContext, scopes: Iterable[Any]) -> None:
    """Drop scopes below the current one."""
    for scope in scopes:
        ctx.scope.drop_kid(scope)


@dataclass(frozen=True, slots=True)
class StepValues:
    """What the variables of a step held at its end, by name: kept in place of its scope."""

    values: MutableMapping[str, Any]


def empty(scope: Any) -> None:
    """Take the values of the variables of this scope itself."""
    for variable in scope.emptied():
        assert variable.value is None


def local_variables(scope: Any) -> list[Any]:
    """The variables of this scope itself."""
    return [scope.find_local_var(name) for name in scope.local_var_names()]


def shared(value: Any) -> Any:
    """The same memory in a new value, so that replacing one keeps the other."""
    if isinstance(value, LoDTensorArray):
        return LoDTensorArray(shared(item) for item in value)
    if isinstance(value, LoDTensor):
        if value.array is not None:
            return LoDTensor(value.array, value.offsets)
        empty = LoDTensor()
        empty.set_dims(value.shape())
        return empty
    return value


def handed_on(value: Any) -> Any:
    """As `shared`, but arrays of tensors have the same items: steps replace items, and change none."""
    return LoDTensorArray(value) if isinstance(value, LoDTensorArray) else shared(value)


def zeros_like(ctx: OpContext, value: Any) -> Any:
    """Zeros in the form of a LoDTensor or LoDTensorArray; None for any other value."""
    if isinstance(value, LoDTensorArray):
        return LoDTensorArray(zeros_like(ctx, item) or LoDTensor() for item in value)
    if isinstance(value, LoDTensor) and value.array is not None:
        return LoDTensor(ctx.xp.zeros(value.array.shape, dtype=value.array.dtype), value.offsets)
    return None


def added(ctx: OpContext, left: Any, right: Any) -> Any:
    """The sum of two gradients: tensors, arrays of tensors item by item, or SelectedRows; absent counts as 0."""
    if _absent(left) or _absent(right):
        return shared(right if _absent(left) else left)
    if isinstance(left, LoDTensorArray):
        length = max(len(left), len(right))
        pairs = zip(_filled(left, length), _filled(right, length), strict=True)
        return LoDTensorArray(added(ctx, a, b) for a, b in pairs)
    if isinstance(left, SelectedRows) and isinstance(right, SelectedRows):
        rows = ctx.np.concatenate([left.row_ids, right.row_ids])
        return SelectedRows(rows, left.table_height, ctx.xp.concatenate([left.value, right.value]))
    if isinstance(left, SelectedRows) or isinstance(right, SelectedRows):
        dense, sparse = (right, left) if isinstance(left, SelectedRows) else (left, right)
        total = dense.array.copy()
        ctx.add_at(total, ctx.array(sparse.row_ids), sparse.value)
        return LoDTensor(total, dense.offsets)
    if left.array.shape != right.array.shape:
        raise ctx.error(
            f"gradients of different steps have shapes {left.array.shape} and {right.array.shape}; they cannot be added"
        )
    return LoDTensor(left.array + right.array, left.offsets or right.offsets)


def _absent(value: Any) -> bool:
    if isinstance(value, LoDTensor):
        return value.array is None or value.array.size == 0
    return value is None


def _filled(items: LoDTensorArray, length: int) -> list[LoDTensor]:
    return [*items, *(LoDTensor() for _ in range(length - len(items)))]
