"""The API of `paddle.fluid`: `import fluidtool.fluid as fluid`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fluidtool.fluid import (
    average,
    backward,
    clip,
    core,
    data_feed_desc,
    dataset,
    evaluator,
    initializer,
    install_check,
    io,
    layers,
    metrics,
    nets,
    optimizer,
    profiler,
    reader,
    regularizer,
)
from fluidtool.fluid import variable_operators as variable_operators
from fluidtool.fluid import variable_slicing as variable_slicing
from fluidtool.fluid.backward import append_backward, gradients
from fluidtool.fluid.compiler import BuildStrategy, CompiledProgram, ExecutionStrategy
from fluidtool.fluid.concurrency import Go, Select, channel_close, channel_recv, channel_send, make_channel
from fluidtool.fluid.data_feed_desc import DataFeedDesc
from fluidtool.fluid.data_feeder import DataFeeder
from fluidtool.fluid.dataset import DatasetFactory, InMemoryDataset, QueueDataset
from fluidtool.fluid.executor import Executor, fetch_var, global_scope, scope_guard, switch_scope
from fluidtool.fluid.flags import get_flags, set_flags
from fluidtool.fluid.framework import (
    default_main_program,
    default_startup_program,
    device_guard,
    get_var,
    name_scope,
    program_guard,
)
from fluidtool.fluid.input import data, embedding, one_hot
from fluidtool.fluid.io import load, load_program_state, save, set_program_state
from fluidtool.fluid.offers import refuse_other_names
from fluidtool.fluid.parallel_executor import ParallelExecutor
from fluidtool.fluid.param_attr import ParamAttr, WeightNormParamAttr
from fluidtool.fluid.places import cpu_places, cuda_pinned_places, cuda_places, is_compiled_with_cuda
from fluidtool.fluid.training_events import (
    BeginEpochEvent,
    BeginStepEvent,
    CheckpointConfig,
    EndEpochEvent,
    EndStepEvent,
)
from fluidtool.fluid.versions import (
    disable_dygraph,
    disable_imperative,
    enable_dygraph,
    enable_imperative,
    in_dygraph_mode,
    require_version,
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

if TYPE_CHECKING:
    from fluidtool.fluid import communicator, contrib, incubate, transpiler
    from fluidtool.fluid.inferencer import Inferencer
    from fluidtool.fluid.trainer import Trainer
    from fluidtool.fluid.transpiler import (
        DistributeTranspiler,
        DistributeTranspilerConfig,
        HashName,
        InferenceTranspiler,
        RoundRobin,
        memory_optimize,
        release_memory,
    )

_switch_scope = switch_scope
learning_rate_decay = layers.learning_rate_scheduler
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
    "DataFeedDesc",
    "DataFeeder",
    "DatasetFactory",
    "DistributeTranspiler",
    "DistributeTranspilerConfig",
    "EndEpochEvent",
    "EndStepEvent",
    "ExecutionStrategy",
    "Executor",
    "Go",
    "HashName",
    "InMemoryDataset",
    "InferenceTranspiler",
    "Inferencer",
    "LoDTensor",
    "LoDTensorArray",
    "Operator",
    "ParallelExecutor",
    "ParamAttr",
    "Parameter",
    "Program",
    "QueueDataset",
    "RoundRobin",
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
    "communicator",
    "contrib",
    "core",
    "cpu_places",
    "create_lod_tensor",
    "create_random_int_lodtensor",
    "cuda_pinned_places",
    "cuda_places",
    "data",
    "data_feed_desc",
    "dataset",
    "default_main_program",
    "default_startup_program",
    "device_guard",
    "disable_dygraph",
    "disable_imperative",
    "embedding",
    "enable_dygraph",
    "enable_imperative",
    "evaluator",
    "fetch_var",
    "get_flags",
    "get_var",
    "global_scope",
    "gradients",
    "in_dygraph_mode",
    "incubate",
    "initializer",
    "install_check",
    "io",
    "is_compiled_with_cuda",
    "layers",
    "learning_rate_decay",
    "load",
    "load_program_state",
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
    "require_version",
    "save",
    "scope_guard",
    "set_flags",
    "set_program_state",
    "transpiler",
    "unique_name",
]

_MODULES = frozenset({"communicator", "contrib", "incubate", "transpiler"})
_HOMES = {
    "DistributeTranspiler": "transpiler",
    "DistributeTranspilerConfig": "transpiler",
    "HashName": "transpiler",
    "InferenceTranspiler": "transpiler",
    "Inferencer": "inferencer",
    "RoundRobin": "transpiler",
    "Trainer": "trainer",
    "memory_optimize": "transpiler",
    "release_memory": "transpiler",
}
_refuse = refuse_other_names("paddle.fluid", __all__)


def __dir__() -> list[str]:
    """The names that `__getattr__` gives, too."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """What takes long to import and most programs never need comes in when it is first asked for."""
    if name in _MODULES:
        return import_module(f"fluidtool.fluid.{name}")
    if name in _HOMES:
        return getattr(import_module(f"fluidtool.fluid.{_HOMES[name]}"), name)
    return _refuse(name)
