"""The kinds of fleets."""

from __future__ import annotations

__all__ = ["Mode"]


class Mode:
    """How a fleet trains; fluidtool has TRANSPILER (parameter servers) and COLLECTIVE."""

    TRANSPILER = 1
    PSLIB = 2
    COLLECTIVE = 3
