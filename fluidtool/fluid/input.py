"""The newer inputs of programs: `fluid.data`, `fluid.embedding`, `fluid.one_hot` (Paddle 1.8.5 data.py and input.py).

Unlike those of `fluid.layers`, `data` takes the whole shape and feeds are checked, and ids need no last dimension of 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidtool.fluid.checks import check_dtype, check_type, check_variable_and_dtype, declared_sizes
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.building import FLOATS, append_simple
from fluidtool.fluid.layers.unusable import explained
from fluidtool.ir import Variable
from fluidtool.proto.enums import VarType


@explained("fluidtool.fluid")
def data(name: str, shape: Sequence[int | None], dtype: Any = "float32", lod_level: int = 0) -> Variable:
    """An input variable of block 0; -1 or None is a size that depends on the feed."""
    helper = LayerHelper("data", name=name)
    check_type(name, "name", (bytes, str), "data")
    check_type(shape, "shape", (list, tuple), "data")
    check_type(lod_level, "lod_level", int, "data")
    return helper.create_global_variable(
        name=name,
        shape=declared_sizes(shape, "data"),
        dtype=dtype,
        type=VarType.LOD_TENSOR,
        stop_gradient=True,
        lod_level=lod_level,
        is_data=True,
        need_check_feed=True,
    )


@explained("fluidtool.fluid")
def one_hot(input: Variable, depth: int | Variable, allow_out_of_range: bool = False) -> Variable:
    """For ids of any shape [...], rows [..., depth]: 1 at the id, else 0; allow_out_of_range: zeros beyond depth."""
    helper = LayerHelper("one_hot_v2")
    inputs = {"X": input}
    attrs: dict[str, Any] = {"allow_out_of_range": allow_out_of_range}
    if isinstance(depth, Variable):
        depth.stop_gradient = True
        inputs["depth_tensor"] = depth
    else:
        attrs["depth"] = depth
    return append_simple(helper, "one_hot_v2", inputs, attrs, dtype="float32")


@explained("fluidtool.fluid")
def embedding(
    input: Variable,
    size: Sequence[int],
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Variable:
    """Rows of a table of `size` [rows, width] for ids of any shape [...]: [..., width].

    is_sparse: the gradient holds only the rows that were looked up. padding_idx: this id gives zeros and no gradient.
    """
    helper = LayerHelper("embedding", param_attr=param_attr)
    check_variable_and_dtype(input, "input", ["int64"], "fluid.embedding")
    check_dtype(dtype, "dtype", FLOATS, "fluid.embedding")
    table = helper.create_parameter(helper.param_attr, size, dtype)
    padding = -1 if padding_idx is None else padding_idx if padding_idx >= 0 else size[0] + padding_idx
    attrs = {
        "is_sparse": is_sparse,
        "is_distributed": is_distributed,
        "remote_prefetch": is_sparse and not is_distributed,
        "padding_idx": padding,
    }
    return append_simple(helper, "lookup_table_v2", {"Ids": input, "W": table}, attrs, dtype=dtype)
