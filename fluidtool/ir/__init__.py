"""The program as data: Program, Block, Operator, Variable, Parameter. Knows no operator, no file, no value."""

from fluidtool.ir.block import Block
from fluidtool.ir.codec import decode_program, encode_program
from fluidtool.ir.operator import Operator
from fluidtool.ir.program import Program, functions
from fluidtool.ir.roles import OpRole
from fluidtool.ir.surgery import clone, inference_optimize, prune
from fluidtool.ir.text import to_bytes, to_string
from fluidtool.ir.variable import Parameter, Variable

functions.clone, functions.prune, functions.inference_optimize = clone, prune, inference_optimize
functions.decode, functions.encode, functions.to_string = decode_program, encode_program, to_string
functions.to_bytes = to_bytes

__all__ = ["Block", "OpRole", "Operator", "Parameter", "Program", "Variable"]
