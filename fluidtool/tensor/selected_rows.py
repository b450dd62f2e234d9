"""SelectedRows: some rows of a tall table, the form of sparse gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from fluidtool.errors import UninitializedError
from fluidtool.tensor.lod_tensor import LoDTensor


class SelectedRows:
    """`row_ids` (int64, host, may repeat) say which rows of a table of `table_height` rows `tensor` holds."""

    __slots__ = ("row_ids", "table_height", "tensor")

    def __init__(self, rows: Iterable[int] | np.ndarray[Any, Any] = (), height: int = 0, value: Any = None) -> None:
        self.row_ids: np.ndarray[Any, Any] = np.asarray(
            rows if isinstance(rows, np.ndarray) else list(rows), dtype=np.int64
        )
        self.table_height = int(height)
        self.tensor = LoDTensor(value)

    @property
    def value(self) -> Any:
        """The array of shape [len(row_ids), …]; raises UninitializedError without memory."""
        if self.tensor.array is None:
            raise UninitializedError("the SelectedRows has no memory: set its tensor first")
        return self.tensor.array

    # the names of paddle.fluid.core
    def rows(self) -> list[int]:
        """The row numbers, in storage order."""
        return [int(row) for row in self.row_ids]

    def set_rows(self, rows: Iterable[int]) -> None:
        """Replace the row numbers."""
        self.row_ids = np.asarray(list(rows), dtype=np.int64)

    def height(self) -> int:
        """The number of rows of the whole table."""
        return self.table_height

    def set_height(self, height: int) -> None:
        """Replace the number of rows of the whole table."""
        self.table_height = int(height)

    def get_tensor(self) -> LoDTensor:
        """The values of the selected rows."""
        return self.tensor

    def sync_index(self) -> None:
        """Kept for scripts: there is no separate index to bring up to date."""

    def numel(self) -> int:
        """The number of stored elements."""
        return 0 if self.tensor.array is None else int(self.tensor.array.size)

    def __repr__(self) -> str:
        return f"SelectedRows(rows={self.rows()[:12]}, height={self.table_height}, tensor={self.tensor!r})"
