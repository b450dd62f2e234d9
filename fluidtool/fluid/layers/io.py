"""Inputs of programs: `fluid.layers.data` and `fluid.data`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidtool.fluid.checks import check_type, declared_sizes
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.ir import Variable
from fluidtool.proto.enums import VarType


def data(
    name: str,
    shape: Sequence[int | None],
    append_batch_size: bool = True,
    dtype: Any = "float32",
    lod_level: int = 0,
    type: VarType = VarType.LOD_TENSOR,
    stop_gradient: bool = True,
) -> Variable:
    """An input variable of block 0; a batch dimension of -1 is prepended unless a size is already unknown."""
    helper = LayerHelper("data", name=name)
    check_type(name, "name", (bytes, str), "data")
    check_type(shape, "shape", (list, tuple), "data")
    check_type(lod_level, "lod_level", int, "data")
    sizes = declared_sizes(shape, "data")
    if append_batch_size and all(size >= 0 for size in sizes):
        sizes = [-1, *sizes]
    return helper.create_global_variable(
        name=name,
        shape=sizes,
        dtype=dtype,
        type=type,
        stop_gradient=stop_gradient,
        lod_level=lod_level,
        is_data=True,
    )
