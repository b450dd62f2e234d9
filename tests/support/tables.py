"""Tables that real Paddle 1.8.5 gave: its operator prototypes, and what its gradient makers make."""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent.parent / "golden"


@cache
def table(name: str) -> dict[str, Any]:
    """'op_table_185': slots and attributes by operator; 'grad_makers_185': gradient operators by forward operator."""
    content: dict[str, Any] = json.loads(lzma.decompress((GOLDEN / f"{name}.json.xz").read_bytes()))
    return content
