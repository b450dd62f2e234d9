"""`paddle.fluid.core`: the names of the C++ side that old scripts use."""

from fluidtool.errors import FluidError as EnforceNotMet
from fluidtool.ir import Block as BlockDesc
from fluidtool.ir import Operator as OpDesc
from fluidtool.ir import Program as ProgramDesc
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import CPUPlace, CUDAPinnedPlace, CUDAPlace, LoDTensor, LoDTensorArray, SelectedRows

Tensor = LoDTensor

__all__ = [
    "BlockDesc",
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "EnforceNotMet",
    "LoDTensor",
    "LoDTensorArray",
    "OpDesc",
    "ProgramDesc",
    "Scope",
    "SelectedRows",
    "Tensor",
]
