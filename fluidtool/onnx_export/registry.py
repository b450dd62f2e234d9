"""How the rendering of an operator is found: `@renders("relu")` registers one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from fluidtool.onnx_export.graph import Blocked, Graph, Value
from fluidtool.onnx_export.operation import Operation

Results = Value | None | Mapping[str, Any]
Rendering = Callable[[Graph, Operation], Results]

RENDERINGS: dict[str, Rendering] = {}
FAMILIES = (
    "activation",
    "attention",
    "beam",
    "control",
    "convolution",
    "creation",
    "detection",
    "elementwise",
    "indexing",
    "linear",
    "loss",
    "normalization",
    "pooling",
    "proposals",
    "quantization",
    "recurrent",
    "reduction",
    "sampling",
    "sequences",
    "shapes",
    "slicing",
    "structured",
)


def renders(*types: str) -> Callable[[Rendering], Rendering]:
    """Register the rendering of these operators: a function of the graph and the operator that returns the value of the
    first output, or values by output slot (a list for a slot of several). It raises Blocked for what ONNX cannot say.
    """

    def register(function: Rendering) -> Rendering:
        for type in types:
            if type in RENDERINGS:
                raise ValueError(f"operator {type} has two renderings")
            RENDERINGS[type] = function
        return function

    return register


@cache
def renderings() -> Mapping[str, Rendering]:
    """Every rendering by operator type; imports every family."""
    for family in FAMILIES:
        import_module(f"fluidtool.onnx_export.operators.{family}")
    return dict(sorted(RENDERINGS.items()))


def need(condition: Any, reason: str) -> None:
    """Raise Blocked unless the condition holds."""
    if not condition:
        raise Blocked(reason)
