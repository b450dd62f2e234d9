"""`fluid.core`: names that programs use of Paddle's compiled module."""

from __future__ import annotations

from typing import Any

from fluidtool.errors import ArgumentTypeError
from fluidtool.errors import FluidError as EnforceNotMet
from fluidtool.fluid.flags import Globals as globals
from fluidtool.fluid.flags import (
    _set_eager_deletion_mode,
    _set_fuse_parameter_group_size,
    _set_fuse_parameter_memory_size,
)
from fluidtool.fluid.ir_graph import Graph
from fluidtool.fluid.offers import refuse_other_names
from fluidtool.fluid.op_compatibility import save_op_compatible_info
from fluidtool.fluid.op_protos import default_attrs as get_op_attrs_default_value
from fluidtool.fluid.op_protos import get_all_op_protos as _all_op_protos
from fluidtool.fluid.places import cuda_device_count as get_cuda_device_count
from fluidtool.fluid.places import is_compiled_with_cuda
from fluidtool.fluid.strategies import BuildStrategy, ExecutionStrategy
from fluidtool.ir import Block as BlockDesc
from fluidtool.ir import Operator as OpDesc
from fluidtool.ir import Program as ProgramDesc
from fluidtool.ir import roles
from fluidtool.ir.operator import EMPTY
from fluidtool.ir.variable import data_type
from fluidtool.ops.control_flow.readers import EndOfDataError as EOFException
from fluidtool.ops.gradient import GRAD
from fluidtool.ops.registry import find_op
from fluidtool.proto.enums import AttrType, VarType
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    LoDTensor,
    LoDTensorArray,
    SelectedRows,
    numpy_dtype,
)
from fluidtool.tensor import Place as AnyPlace
from fluidtool.tensor.lod_tensor import from_dlpack

Tensor = LoDTensor


class Place:
    """Holds a place, which `set_place` puts in."""

    def __init__(self) -> None:
        self._held: AnyPlace = CPUPlace()

    def set_place(self, place: AnyPlace | Place) -> None:
        """Hold another place."""
        self._held = place._held if isinstance(place, Place) else place

    def is_cpu_place(self) -> bool:
        """Whether it holds a CPUPlace."""
        return isinstance(self._held, CPUPlace)

    def is_gpu_place(self) -> bool:
        """Whether it holds a CUDAPlace."""
        return isinstance(self._held, CUDAPlace)

    def is_cuda_pinned_place(self) -> bool:
        """Whether it holds a CUDAPinnedPlace."""
        return isinstance(self._held, CUDAPinnedPlace)

    def gpu_device_id(self) -> int:
        """The number of the GPU; raises ArgumentTypeError for another place."""
        if not isinstance(self._held, CUDAPlace):
            raise ArgumentTypeError(f"gpu_device_id asks for a CUDAPlace, found {self._held}")
        return self._held.device_id

    def _type(self) -> int:
        return self._held._type()

    def _equals(self, other: AnyPlace | Place) -> bool:
        return self._held == (other._held if isinstance(other, Place) else other)


class VarDesc:
    """Holds the kinds and data types of variables: `core.VarDesc.VarType.FP32`."""

    VarType = VarType


class ParallelExecutor:
    """Holds the strategies, under their names before `fluid.BuildStrategy`."""

    BuildStrategy = BuildStrategy
    ExecutionStrategy = ExecutionStrategy


class op_proto_and_checker_maker:
    """Operator roles, and the names of the attributes that every operator has."""

    OpRole = roles.OpRole

    @staticmethod
    def kOpRoleAttrName() -> str:
        """'op_role'."""
        return roles.ROLE_ATTR

    @staticmethod
    def kOpRoleVarAttrName() -> str:
        """'op_role_var'."""
        return roles.ROLE_VAR_ATTR

    @staticmethod
    def kOpNameScopeAttrName() -> str:
        """'op_namescope'."""
        return roles.NAMESCOPE_ATTR

    @staticmethod
    def kOpCreationCallstackAttrName() -> str:
        """'op_callstack'."""
        return roles.CALLSTACK_ATTR

    @staticmethod
    def kOpDeviceAttrName() -> str:
        """'op_device'."""
        return roles.DEVICE_ATTR


def kEmptyVarName() -> str:
    """'@EMPTY@': marks a missing variable of an operator."""
    return EMPTY


def kGradVarSuffix() -> str:
    """'@GRAD': the suffix of gradients."""
    return GRAD


empty_var_name, grad_var_suffix = kEmptyVarName, kGradVarSuffix


def get_all_op_protos() -> list[bytes]:
    """What operators declare, as bytes of OpProto messages; `fluid.op.get_all_op_protos` has the messages."""
    return [proto.SerializeToString() for proto in _all_op_protos()]


def op_support_gpu(op_type: str) -> bool:
    """Whether the operator runs on a GPU: all operators of fluidtool do."""
    return find_op(op_type) is not None


def size_of_dtype(dtype: Any) -> int:
    """The bytes per element of a data type."""
    return int(numpy_dtype(data_type(dtype)).itemsize)


def is_compiled_with_mkldnn() -> bool:
    """False: `use_mkldnn` has no effect."""
    return False


def is_compiled_with_dist() -> bool:
    """Whether programs for parameter servers can run: they need grpcio."""
    from importlib.util import find_spec

    return find_spec("grpc") is not None


def is_compiled_with_brpc() -> bool:
    """False: parameter servers speak gRPC."""
    return False


__all__ = [
    "AttrType",
    "BlockDesc",
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "EOFException",
    "EnforceNotMet",
    "Graph",
    "LoDTensor",
    "LoDTensorArray",
    "OpDesc",
    "ParallelExecutor",
    "Place",
    "ProgramDesc",
    "Scope",
    "SelectedRows",
    "Tensor",
    "VarDesc",
    "VarType",
    "_set_eager_deletion_mode",
    "_set_fuse_parameter_group_size",
    "_set_fuse_parameter_memory_size",
    "empty_var_name",
    "from_dlpack",
    "get_all_op_protos",
    "get_cuda_device_count",
    "get_op_attrs_default_value",
    "globals",
    "grad_var_suffix",
    "is_compiled_with_brpc",
    "is_compiled_with_cuda",
    "is_compiled_with_dist",
    "is_compiled_with_mkldnn",
    "kEmptyVarName",
    "kGradVarSuffix",
    "op_proto_and_checker_maker",
    "op_support_gpu",
    "save_op_compatible_info",
    "size_of_dtype",
]

__getattr__ = refuse_other_names("paddle.fluid.core", __all__)
