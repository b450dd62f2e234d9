"""fc and embedding: the layers that own big matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidtool.fluid.checks import check_dtype, check_type, check_variable_and_dtype
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.building import FLOATS, append_simple
from fluidtool.ir import Variable


def fc(
    input: Variable | Sequence[Variable],
    size: int,
    num_flatten_dims: int = 1,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    name: str | None = None,
    *,
    is_test: bool = False,  # an argument until 1.5, without effect
) -> Variable:
    """act(sum of input_i * w_i + b): inputs flattened to matrices after `num_flatten_dims` dimensions, `size` columns out.

    param_attr: of the weights, one or one per input; bias_attr False: no bias.
    """
    helper = LayerHelper("fc", input=input, param_attr=param_attr, bias_attr=bias_attr, act=act, name=name)
    check_type(input, "input", (list, tuple, Variable), "fc")
    check_type(size, "size", (int, np.integer), "fc")
    dtype = helper.input_dtype()
    check_dtype(dtype, "input", FLOATS, "fc")
    products = []
    for var, attr in helper.iter_inputs_and_params():
        if num_flatten_dims == -1:
            num_flatten_dims = len(var.shape) - 1
        weight = helper.create_parameter(attr, shape=[math.prod(var.shape[num_flatten_dims:]), size], dtype=dtype)
        attrs = {"x_num_col_dims": num_flatten_dims, "y_num_col_dims": 1}
        products.append(append_simple(helper, "mul", {"X": [var], "Y": [weight]}, attrs, dtype=dtype))
    out = products[0]
    if len(products) > 1:
        out = append_simple(helper, "sum", {"X": products}, {"use_mkldnn": False}, dtype=dtype)
    return helper.append_activation(helper.append_bias_op(out, dim_start=num_flatten_dims))


def embedding(
    input: Variable,
    size: Sequence[int],
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Variable:
    """Rows of a table of `size` [rows, width] for ids of shape [..., 1].

    is_sparse: the gradient holds only the rows that were looked up. padding_idx: this id gives zeros and no gradient.
    """
    helper = LayerHelper("embedding", input=input, param_attr=param_attr)
    check_variable_and_dtype(input, "input", ["int64"], "fluid.layers.embedding")
    check_dtype(dtype, "dtype", FLOATS, "fluid.layers.embedding")
    table = helper.create_parameter(helper.param_attr, shape=size, dtype=dtype, is_bias=False)
    padding = -1 if padding_idx is None else padding_idx if padding_idx >= 0 else size[0] + padding_idx
    attrs = {
        "is_sparse": is_sparse,
        "is_distributed": is_distributed,
        "remote_prefetch": is_sparse and not is_distributed,
        "padding_idx": padding,
    }
    return append_simple(helper, "lookup_table", {"Ids": input, "W": table}, attrs, dtype=dtype)
