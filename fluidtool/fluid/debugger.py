"""`fluid.debugger`: programs as text and as pictures, and runs that save everything when they fail (Paddle 1.8.5 debugger.py)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from random import random
from typing import Any

from fluidtool.errors import AssertedError
from fluidtool.fluid import io
from fluidtool.fluid.framework import default_main_program
from fluidtool.fluid.graphviz import GraphPreviewGenerator, Node
from fluidtool.ir import Block, Operator, Program, Variable, unique_name
from fluidtool.ir.roles import CALLSTACK_ATTR
from fluidtool.ir.variable import data_type_name
from fluidtool.proto.enums import VarType

__all__ = [
    "draw_block_graphviz",
    "pprint_block_codes",
    "pprint_program_codes",
    "prepare_fast_nan_inf_debug",
    "repr_op",
    "repr_var",
    "run_fast_nan_inf_debug",
]

GRADIENT = "@GRAD"
KINDS = {VarType.SELECTED_ROWS: "SelectedRows", VarType.LOD_TENSOR_ARRAY: "TensorArray"}


def pprint_program_codes(program_desc: Program) -> str:
    """The blocks of a program as text, without what belongs to gradients."""
    return "\n".join(pprint_block_codes(block) for block in program_desc.blocks)


def pprint_block_codes(block_desc: Block, show_backward: bool = False) -> str:
    """A block as text: a line for each variable and for each operator; show_backward: those of gradients, too."""
    variables = [var for name, var in sorted(block_desc.vars.items()) if show_backward or GRADIENT not in name]
    operators = [op for op in block_desc.ops if show_backward or not _is_of_gradients(op)]
    lines = [f"// block-{block_desc.idx}  parent-{block_desc.parent_idx}", "// variables", *map(repr_var, variables)]
    return "\n".join([*lines, "", "// operators", *map(repr_op, operators), ""])


def _is_of_gradients(op: Operator) -> bool:
    slots = [*op.input_names, *op.output_names, *op.input_arg_names, *op.output_arg_names]
    return op.type.endswith("_grad") or any(GRADIENT in name for name in slots)


def repr_var(vardesc: Variable) -> str:
    """A variable as one line: its kind, name, LoD level, data type and shape."""
    tensor = f"tensor(type={data_type_name(vardesc.dtype)}, shape={list(vardesc.shape)})"
    level = vardesc.lod_level or 0
    if vardesc.type == VarType.LOD_TENSOR:
        return f"{'LoDTensor' if level else 'Tensor'} {vardesc.name} ({f'level={level}, ' if level else ''}{tensor})"
    if vardesc.type in KINDS:
        shown = f"level={level}, {tensor}" if vardesc.type == VarType.LOD_TENSOR_ARRAY else tensor
        return f"{KINDS[VarType(vardesc.type)]} {vardesc.name} ({shown})"
    return f"{VarType(vardesc.type).name} {vardesc.name}"


def repr_op(opdesc: Operator) -> str:
    """An operator as one line: outputs, type, inputs by slot, attributes."""
    outputs = ", ".join(_names(names) for names in opdesc.outputs.values())
    if opdesc.type == "fill_constant":
        return f"{outputs} = {opdesc.attr('value')} [shape={opdesc.attr('shape')}]"
    inputs = ", ".join(f"{slot}={_names(names)}" for slot, names in opdesc.inputs.items())
    target = ", is_target" if opdesc.is_target else ""
    attrs = ",".join(_attr(opdesc, name) for name in opdesc.attr_names if name != CALLSTACK_ATTR)
    return f"{outputs} = {opdesc.type}({inputs}{target}) [{{{attrs}}}]"


def _names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else str(list(names))


def _attr(op: Operator, name: str) -> str:
    value = op.desc.attr(name)
    return f"{name}={data_type_name(value) if name == 'dtype' else value}"


def draw_block_graphviz(block: Block, highlights: Iterable[str] | None = None, path: str = "./temp.dot") -> None:
    """Write a block as a graph in DOT, and as a PDF file if the command `dot` is installed.

    highlights: regular expressions; operators and variables whose names begin with one are orange.
    """
    patterns = [re.compile(pattern) for pattern in highlights or ()]
    graph = GraphPreviewGenerator("some graph")

    def is_marked(*names: str) -> bool:
        return any(pattern.match(name) for pattern in patterns for name in names)

    def add_variable(var: Variable) -> Node:
        if var.persistable:
            return graph.add_param(var.name, repr_var(var), is_marked(var.name))
        return graph.add_arg(var.name, is_marked(var.name))

    nodes = {name: add_variable(var) for name, var in block.vars.items()}
    for op in block.ops:
        node = graph.add_op(op.type, is_marked(op.type))
        for name in (*op.input_arg_names, *op.output_arg_names):
            if name not in nodes:
                nodes[name] = graph.add_arg(name, is_marked(name))
        for name in op.input_arg_names:
            graph.add_edge(nodes[name], node, is_marked(op.type, name))
        for name in op.output_arg_names:
            graph.add_edge(node, nodes[name], is_marked(op.type, name))
    graph(path, show=False)


def prepare_fast_nan_inf_debug(_program: Program | None) -> None:
    """Append a `sum` of each tensor to its block, so that a check for NaN of these alone finds them all."""
    for block in (_program or default_main_program()).blocks:
        for name, var in list(block.vars.items()):
            if var.type == VarType.LOD_TENSOR and var.dtype is not None:
                out = block.create_var(
                    name=unique_name.generate(f"debug_var_{name}"),
                    dtype=var.dtype,
                    persistable=False,
                    stop_gradient=True,
                )
                block.append_op(type="sum", inputs={"X": [var]}, outputs={"Out": out})


def run_fast_nan_inf_debug(
    executor: Any,
    program: Program | None = None,
    feed: Any = None,
    fetch_list: Any = None,
    feed_var_name: str = "feed",
    fetch_var_name: str = "fetch",
    scope: Any = None,
    return_numpy: bool = True,
    use_program_cache: bool = False,
    dump_core: bool = True,
) -> Any:
    """What executor.run returns; when it raises, print the error and save all persistable variables to ./core<number>.pdckpt."""
    if executor is None:
        raise AssertedError("run_fast_nan_inf_debug takes an Executor, found None")
    try:
        return executor.run(
            program, feed, fetch_list, feed_var_name, fetch_var_name, scope, return_numpy, use_program_cache
        )
    except Exception as error:
        name = f"core{int(random() * 10000)}.pdckpt"
        io.save_persistables(executor, "./", main_program=program, filename=name)
        sys.stdout.write(f"catch an exception:\n{error}\ndumping a core into ./{name}\n")
        return None
