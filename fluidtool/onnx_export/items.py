"""Arrays of tensors while a graph is built: known items, or an ONNX sequence."""

from __future__ import annotations

from fluidtool.onnx_export.graph import Value
from fluidtool.records import dataclass


@dataclass(frozen=True, slots=True)
class Items:
    """A LoDTensorArray: its items, while every index is known; else the sequence that holds them, and for each level of
    their sequences the ONNX sequence of its lengths.
    """

    known: tuple[Value, ...] | None = ()
    sequence: Value | None = None
    levels: tuple[Value, ...] = ()

    @property
    def depth(self) -> int:
        """How many levels of lengths the items have."""
        return len(self.known[0].levels) if self.known else len(self.levels)
