"""Operators -> nodes. One function an operator; what has no kernel raises NotNativeError and stays with numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from fluidtool.ir import Operator
from fluidtool.runtime.engines.native.graph import Graph, NotNativeError, Value
from fluidtool.runtime.engines.native.reading.registry import READERS, Lod, Reading, need
from fluidtool.runtime.engines.native.reading.sequences import passing_lod_on
from fluidtool.runtime.engines.native.reading.volumes import read_by_frames

FAULTS = (ValueError, LookupError, TypeError, ArithmeticError)

PARTS = (
    "convolution", "products", "elementwise", "rows", "moves", "sequences",
    "transposed", "interpolation", "reductions", "ranking", "padding", "normalization", "detection", "grids", "volumes", "channels",
)  # fmt: skip
for part in PARTS:
    import_module(f"{__name__}.{part}")


def read_graph(
    ops: Sequence[tuple[Operator, dict[str, Any]]],
    given: Mapping[str, Value],
    wanted: Sequence[str],
    lods: Mapping[str, Lod],
) -> tuple[Graph, dict[str, Lod]]:
    """The graph of operators (each with its parsed attributes) from these inputs and constants to these outputs,
    and the LoDs of all values that have one.
    """
    reading = Reading()
    reading.values.update(given)
    reading.lods.update(lods)
    for op, attrs in ops:
        try:
            with passing_lod_on(reading, op):
                if not read_by_frames(reading, op, attrs):
                    READERS[op.type](reading, op, attrs)
        except NotNativeError as error:
            error.result = op.output_arg_names[0]
            raise
        except FAULTS as error:  # a program that cannot work: numpy's bodies say what is wrong with it
            raise NotNativeError(f"{op.type} cannot be read: {error}", result=op.output_arg_names[0]) from error
    missing = [name for name in wanted if name not in reading.values]
    need(not missing, f"{missing} is not computed")
    outputs = [reading.values[name] for name in wanted]
    need(all(value.array is None for value in outputs), "an output is a constant")
    inputs = [value for value in given.values() if value.array is None]
    graph = Graph(inputs, outputs, reading.nodes)
    graph.drop_unread()
    return graph, reading.lods
