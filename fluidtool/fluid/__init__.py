"""The `paddle.fluid`-shaped surface: `import fluidtool.fluid as fluid`."""

from fluidtool.fluid.executor import Executor, fetch_var, global_scope, scope_guard, switch_scope
from fluidtool.ir import Block, Operator, Parameter, Program, Variable, unique_name
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import CPUPlace, CUDAPinnedPlace, CUDAPlace, LoDTensor, LoDTensorArray, SelectedRows

_switch_scope = switch_scope
Tensor = LoDTensor

__all__ = [
    "Block",
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "Executor",
    "LoDTensor",
    "LoDTensorArray",
    "Operator",
    "Parameter",
    "Program",
    "Scope",
    "SelectedRows",
    "Tensor",
    "Variable",
    "fetch_var",
    "global_scope",
    "scope_guard",
    "unique_name",
]
