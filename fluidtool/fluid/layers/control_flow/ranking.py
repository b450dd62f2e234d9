"""Sequences ranked by length and processed step by step: the basis of DynamicRNN."""

from __future__ import annotations

from typing import Any

from fluidtool.errors import ArgumentTypeError
from fluidtool.fluid.checks import check_type
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.building import append_simple
from fluidtool.ir import Variable, unique_name
from fluidtool.proto.enums import VarType


def _check_variables(value: Any, name: str, item: str, op_name: str) -> None:
    check_type(value, name, (Variable, list), op_name)
    for index, element in enumerate(value if isinstance(value, list) else []):
        check_type(element, f"{item}[{index}]", Variable, op_name)


def lod_rank_table(x: Variable, level: int = 0) -> Variable:
    """A table of the sequences of x at a LoD level, the longest first."""
    _check_variables(x, "x", "input", "lod_rank_table")
    helper = LayerHelper("lod_rank_table")
    table = helper.create_variable(type=VarType.LOD_RANK_TABLE, name=unique_name.generate("lod_rank_table"))
    helper.append_op(type="lod_rank_table", inputs={"X": x}, outputs={"Out": table}, attrs={"level": level})
    return table


def max_sequence_len(rank_table: Variable) -> Variable:
    """The length of the longest sequence of a table, [1] int64."""
    helper = LayerHelper("max_seqence_len")
    return append_simple(helper, "max_sequence_len", {"RankTable": rank_table}, dtype="int64")


def lod_tensor_to_array(x: Variable, table: Variable) -> Variable:
    """The steps of the sequences of x: item t has the t-th elements of all longer sequences, in the table's order."""
    _check_variables(x, "x", "input", "lod_tensor_to_array")
    _check_variables(table, "table", "table", "lod_tensor_to_array")
    helper = LayerHelper("lod_tensor_to_array")
    name = unique_name.generate("lod_tensor_to_array")
    array = helper.create_variable(name=name, type=VarType.LOD_TENSOR_ARRAY, dtype=x.dtype)
    helper.append_op(type="lod_tensor_to_array", inputs={"X": x, "RankTable": table}, outputs={"Out": array})
    return array


def array_to_lod_tensor(x: Variable, table: Variable) -> Variable:
    """The steps of an array merged into sequences in their order before ranking."""
    _check_variables(x, "x", "input", "array_to_lod_tensor")
    _check_variables(table, "table", "table", "array_to_lod_tensor")
    helper = LayerHelper("array_to_lod_tensor")
    return append_simple(helper, "array_to_lod_tensor", {"X": x, "RankTable": table}, dtype=x.dtype)


def shrink_memory(x: Variable, i: Variable, table: Variable) -> Variable:
    """The first rows of x: one per sequence longer than i."""
    helper = LayerHelper("shrink_memory")
    return append_simple(helper, "shrink_rnn_memory", {"X": [x], "I": [i], "RankTable": [table]}, dtype=x.dtype)


def reorder_lod_tensor_by_rank(x: Variable, rank_table: Variable) -> Variable:
    """The sequences of x in the order of a table."""
    check_type(x, "x", Variable, "reorder_lod_tensor_by_rank")
    check_type(rank_table, "rank_table", Variable, "reorder_lod_tensor_by_rank")
    if rank_table.type != VarType.LOD_RANK_TABLE:
        raise ArgumentTypeError(
            f"The type of rank_table should be LOD_RANK_TABLE, found {VarType(rank_table.type).name}"
        )
    helper = LayerHelper("reorder_lod_tensor_by_rank")
    return append_simple(helper, "reorder_lod_tensor_by_rank", {"X": [x], "RankTable": [rank_table]}, dtype=x.dtype)
