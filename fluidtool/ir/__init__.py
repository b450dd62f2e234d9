"""The program as data: Program, Block, Operator, Variable, Parameter. Knows no operator, no file, no value."""

from fluidtool.ir.block import Block
from fluidtool.ir.operator import Operator
from fluidtool.ir.program import Program
from fluidtool.ir.roles import OpRole
from fluidtool.ir.variable import Parameter, Variable

__all__ = ["Block", "OpRole", "Operator", "Parameter", "Program", "Variable"]
