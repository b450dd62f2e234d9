"""numpy: every operator by its own kernel."""

from __future__ import annotations


def open_engine(precision: str, *, required: bool) -> None:
    """None: only the operators' kernels compute."""
