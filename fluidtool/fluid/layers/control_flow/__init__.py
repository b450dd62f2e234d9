"""Loops, branches, arrays and recurrent blocks (Paddle 1.8.5 layers/control_flow.py)."""

from fluidtool.fluid.layers.arithmetic import equal, greater_equal, greater_than, less_equal, less_than, not_equal
from fluidtool.fluid.layers.control_flow.arrays import array_length, array_read, array_write, create_array, increment
from fluidtool.fluid.layers.control_flow.branches import Switch, case, cond, switch_case
from fluidtool.fluid.layers.control_flow.conditional import ConditionalBlock
from fluidtool.fluid.layers.control_flow.dynamic_rnn import DynamicRNN
from fluidtool.fluid.layers.control_flow.if_else import IfElse
from fluidtool.fluid.layers.control_flow.parallel_do import ParallelDo
from fluidtool.fluid.layers.control_flow.ranking import (
    array_to_lod_tensor,
    lod_rank_table,
    lod_tensor_to_array,
    max_sequence_len,
    reorder_lod_tensor_by_rank,
    shrink_memory,
)
from fluidtool.fluid.layers.control_flow.selection import (
    Print,
    is_empty,
    merge_lod_tensor,
    select_input,
    select_output,
    split_lod_tensor,
)
from fluidtool.fluid.layers.control_flow.static_rnn import StaticRNN
from fluidtool.fluid.layers.control_flow.while_loop import While, while_loop

__all__ = [
    "ConditionalBlock",
    "DynamicRNN",
    "IfElse",
    "ParallelDo",
    "Print",
    "StaticRNN",
    "Switch",
    "While",
    "array_length",
    "array_read",
    "array_to_lod_tensor",
    "array_write",
    "case",
    "cond",
    "create_array",
    "equal",
    "greater_equal",
    "greater_than",
    "increment",
    "is_empty",
    "less_equal",
    "less_than",
    "lod_rank_table",
    "lod_tensor_to_array",
    "max_sequence_len",
    "merge_lod_tensor",
    "not_equal",
    "reorder_lod_tensor_by_rank",
    "select_input",
    "select_output",
    "shrink_memory",
    "split_lod_tensor",
    "switch_case",
    "while_loop",
]
