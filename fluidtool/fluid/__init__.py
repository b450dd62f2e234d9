"""The `paddle.fluid`-shaped surface: `import fluidtool.fluid as fluid`."""

from fluidtool.fluid import (
    average,
    backward,
    clip,
    contrib,
    core,
    evaluator,
    initializer,
    io,
    layers,
    metrics,
    nets,
    optimizer,
    profiler,
    reader,
    regularizer,
    transpiler,
)
from fluidtool.fluid import variable_operators as variable_operators
from fluidtool.fluid import variable_slicing as variable_slicing
from fluidtool.fluid.backward import append_backward, gradients
from fluidtool.fluid.compiler import BuildStrategy, CompiledProgram, ExecutionStrategy
from fluidtool.fluid.concurrency import Go, Select, channel_close, channel_recv, channel_send, make_channel
from fluidtool.fluid.data_feeder import DataFeeder
from fluidtool.fluid.executor import Executor, fetch_var, global_scope, scope_guard, switch_scope
from fluidtool.fluid.framework import (
    default_main_program,
    default_startup_program,
    device_guard,
    get_var,
    name_scope,
    program_guard,
)
from fluidtool.fluid.inferencer import Inferencer
from fluidtool.fluid.input import data, embedding, one_hot
from fluidtool.fluid.io import load, save
from fluidtool.fluid.offers import refuse_other_names
from fluidtool.fluid.parallel_executor import ParallelExecutor
from fluidtool.fluid.param_attr import ParamAttr, WeightNormParamAttr
from fluidtool.fluid.places import cpu_places, cuda_pinned_places, cuda_places, is_compiled_with_cuda
from fluidtool.fluid.trainer import Trainer
from fluidtool.fluid.training_events import (
    BeginEpochEvent,
    BeginStepEvent,
    CheckpointConfig,
    EndEpochEvent,
    EndStepEvent,
)
from fluidtool.fluid.transpiler import (
    DistributeTranspiler,
    DistributeTranspilerConfig,
    InferenceTranspiler,
    memory_optimize,
    release_memory,
)
from fluidtool.ir import Block, Operator, Parameter, Program, Variable, unique_name
from fluidtool.ops import building as building
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    LoDTensor,
    LoDTensorArray,
    SelectedRows,
    create_lod_tensor,
    create_random_int_lodtensor,
)

_switch_scope = switch_scope
Tensor = LoDTensor

__all__ = [
    "BeginEpochEvent",
    "BeginStepEvent",
    "Block",
    "BuildStrategy",
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "CheckpointConfig",
    "CompiledProgram",
    "DataFeeder",
    "DistributeTranspiler",
    "DistributeTranspilerConfig",
    "EndEpochEvent",
    "EndStepEvent",
    "ExecutionStrategy",
    "Executor",
    "Go",
    "InferenceTranspiler",
    "Inferencer",
    "LoDTensor",
    "LoDTensorArray",
    "Operator",
    "ParallelExecutor",
    "ParamAttr",
    "Parameter",
    "Program",
    "Scope",
    "Select",
    "SelectedRows",
    "Tensor",
    "Trainer",
    "Variable",
    "WeightNormParamAttr",
    "append_backward",
    "average",
    "backward",
    "channel_close",
    "channel_recv",
    "channel_send",
    "clip",
    "contrib",
    "core",
    "cpu_places",
    "create_lod_tensor",
    "create_random_int_lodtensor",
    "cuda_pinned_places",
    "cuda_places",
    "data",
    "default_main_program",
    "default_startup_program",
    "device_guard",
    "embedding",
    "evaluator",
    "fetch_var",
    "get_var",
    "global_scope",
    "gradients",
    "initializer",
    "io",
    "is_compiled_with_cuda",
    "layers",
    "load",
    "make_channel",
    "memory_optimize",
    "metrics",
    "name_scope",
    "nets",
    "one_hot",
    "optimizer",
    "profiler",
    "program_guard",
    "reader",
    "regularizer",
    "release_memory",
    "save",
    "scope_guard",
    "transpiler",
    "unique_name",
]

__getattr__ = refuse_other_names("paddle.fluid", __all__)
