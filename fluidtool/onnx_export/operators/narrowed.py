"""Nodes that ONNX Runtime computes as float32 alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidtool.onnx_export.graph import Graph, Value


def narrow(g: Graph, kind: str, inputs: Sequence[Value | None], **attributes: Any) -> Value:
    """A node for floats; ONNX Runtime has no kernel of float64 for it, so that these are computed as float32."""
    x = inputs[0]
    assert x is not None
    if x.dtype == np.float32:
        return g.op(kind, *inputs, **attributes)
    given = [value.cast(np.float32) if value is not None and value.dtype == x.dtype else value for value in inputs]
    return g.op(kind, *given, **attributes).cast(x.dtype)
