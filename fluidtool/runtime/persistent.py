"""What a scope holds of a program's persistable variables."""

from __future__ import annotations

from collections.abc import Sequence

from fluidtool.errors import UninitializedError
from fluidtool.io.parameters import Value
from fluidtool.ir import Variable
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import LoDTensor, SelectedRows


def values_of(scope: Scope, variables: Sequence[Variable], what: str) -> dict[str, Value]:
    """The values of persistable variables, in the host's memory; those that hold nothing are left out.

    Raises UninitializedError for a value that no file can hold.
    """
    values: dict[str, Value] = {}
    for var in variables:
        held = scope.find_var(var.name)
        if held is None or not held.is_initialized():
            continue
        value = held.value
        if isinstance(value, LoDTensor):
            values[var.name] = LoDTensor(value.numpy(), value.lod())
        elif isinstance(value, SelectedRows):
            rows = LoDTensor(value.value).numpy()
            values[var.name] = SelectedRows(value.row_ids, value.table_height, rows)
        else:
            raise UninitializedError(f"{what} cannot hold {var.name}: it is a {type(value).__name__}, not a tensor")
    return values
