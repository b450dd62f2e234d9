"""`fluid.core`: the names that programs take from Paddle's compiled module."""

from fluidtool.fluid.places import cuda_device_count as get_cuda_device_count
from fluidtool.fluid.places import is_compiled_with_cuda
from fluidtool.ops.control_flow.readers import EndOfDataError as EOFException
from fluidtool.proto.enums import AttrType, VarType
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import CPUPlace, CUDAPinnedPlace, CUDAPlace, LoDTensor, LoDTensorArray, SelectedRows

Tensor = LoDTensor

__all__ = [
    "AttrType",
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "EOFException",
    "LoDTensor",
    "LoDTensorArray",
    "Scope",
    "SelectedRows",
    "Tensor",
    "VarType",
    "get_cuda_device_count",
    "is_compiled_with_cuda",
]
