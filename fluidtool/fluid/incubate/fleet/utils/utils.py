"""Programs in files, and what they contain (Paddle 1.8.5 incubate/fleet/utils/utils.py)."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fluidtool.errors import ProgramError
from fluidtool.fluid import debugger
from fluidtool.fluid.log_helper import get_logger
from fluidtool.io.atomic import write_file
from fluidtool.io.parameters import is_persistable
from fluidtool.ir import Block, Program, Variable
from fluidtool.ir.text import bytes_of_text
from fluidtool.proto.enums import VarType
from fluidtool.tensor.files import read_file

__all__ = [
    "check_pruned_program_vars",
    "graphviz",
    "load_program",
    "parse_program",
    "program_type_trans",
    "save_program",
]

logger = get_logger(__name__, logging.INFO, fmt="%(asctime)s - %(levelname)s - %(message)s")
FEED_FETCH = (VarType.FEED_MINIBATCH, VarType.FETCH_LIST)


def load_program(model_filename: str, is_text: bool = False) -> Program:
    """The program of a file, or with is_text of its text. Raises UnreadableError."""
    return load_program_text(model_filename) if is_text else load_program_binary(model_filename)


def load_program_binary(model_filename: str) -> Program:
    """The program of a file. Raises UnreadableError."""
    return Program.parse_from_string(bytes(read_file(model_filename)))


def load_program_text(model_filename: str) -> Program:
    """The program of its text, as `save_program` writes it. Raises UnreadableError."""
    text = bytes(read_file(model_filename)).decode(errors="replace")
    return Program.parse_from_string(bytes_of_text(text, model_filename))


def save_program(program: Program, model_filename: str = "__model__", is_text: bool = False) -> None:
    """Write a program, or with is_text its text."""
    contents = str(program).encode() if is_text else program.serialize_to_string()
    write_file(Path(model_filename), [contents])


def program_type_trans(prog_dir: str, prog_fn: str, is_text: bool) -> str:
    """Write a program's text as a program (`<name>.bin`), or a program as its text (`<name>.pbtxt`); the new file's name."""
    target = f"{prog_fn}.bin" if is_text else f"{prog_fn}.pbtxt"
    save_program(load_program(os.path.join(prog_dir, prog_fn), is_text), os.path.join(prog_dir, target), not is_text)
    return target


def check_pruned_program_vars(train_prog: Program, pruned_prog: Program) -> bool:
    """Whether the persistable variables of a pruned program have the shapes and data types of the whole one.

    One that the whole program lacks is logged, and does not count.
    """
    matches = True
    for var in filter(is_persistable, pruned_prog.list_vars()):
        try:
            whole = train_prog.global_block().var(var.name)
        except ProgramError:
            logger.error("not find variable '%s' in train program. please check pruning.", var.name)
            continue
        if (tuple(var.shape), var.dtype) != (tuple(whole.shape), whole.dtype):
            logger.error(
                "variable: %s not match. in pruned program shape: %s dtype:%s, in train program shape: %s dtype: %s",
                *(var.name, var.shape, var.dtype, whole.shape, whole.dtype),
            )
            matches = False
    return matches


def graphviz(block: Block, output_dir: str = "", filename: str = "debug") -> None:
    """Draw a block: `<filename>.dot`, and `<filename>.pdf` if Graphviz is installed."""
    source = os.path.join(output_dir, f"{filename}.dot")
    debugger.draw_block_graphviz(block, path=source)
    try:
        subprocess.run(["dot", "-Tpdf", source, "-o", os.path.join(output_dir, f"{filename}.pdf")], check=False)
    except FileNotFoundError:
        logger.warning("%s has the drawing; 'dot', which makes a PDF of it, is not installed", source)


def parse_program(program: Program, output_dir: str) -> None:
    """Write what a program has, a line for each: `vars_persistable.log`, `vars_all.log` and `ops.log`."""
    persistable = [_described(var) | {"type": str(var.type)} for var in program.list_vars() if is_persistable(var)]
    operators = [
        {
            "type": op.type,
            "input_arg_names": str(op.input_arg_names),
            "output_arg_names": str(op.output_arg_names),
        }
        for op in program.global_block().ops
    ]
    _write(output_dir, "vars_persistable.log", "persistable vars", persistable)
    _write(output_dir, "vars_all.log", "all vars", [_described(var) for var in program.list_vars()])
    _write(output_dir, "ops.log", "ops", operators)


def _described(var: Variable) -> dict[str, Any]:
    if var.type in FEED_FETCH:
        return {"name": var.name, "type": str(var.type)}
    return {"name": var.name, "shape": str(var.shape), "lod_level": int(var.lod_level), "dtype": str(var.dtype)}


def _write(folder: str, name: str, title: str, rows: Iterable[dict[str, Any]]) -> None:
    write_file(Path(folder, name), ["".join(f"{row}\n" for row in [f"{title}:", *rows]).encode()])
