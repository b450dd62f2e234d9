"""Checks of what kind of value an input is."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import OpContext
from fluidtool.tensor import LoDTensor, SelectedRows


def require_tensor(ctx: OpContext, slot: str, value: Any) -> None:
    """Raise OperatorError unless the value is an array with memory."""
    if isinstance(value, SelectedRows):
        raise ctx.error(f"{slot} is SelectedRows, expected a tensor; insert get_tensor_from_selected_rows")
    if isinstance(value, (LoDTensor, list)):
        found = "a tensor without memory" if isinstance(value, LoDTensor) else f"a {type(value).__name__}"
        raise ctx.error(f"{slot} is {found}, expected a tensor")
