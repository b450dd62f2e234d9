"""The transpilers: rewrites of whole programs for inference, memory and distribution."""

from fluidtool.fluid.offers import refuse_other_names
from fluidtool.fluid.transpiler.distribute_config import DistributeTranspilerConfig
from fluidtool.fluid.transpiler.distribute_transpiler import DistributeTranspiler
from fluidtool.fluid.transpiler.inference_transpiler import InferenceTranspiler
from fluidtool.fluid.transpiler.memory_optimization_transpiler import memory_optimize, release_memory
from fluidtool.fluid.transpiler.ps_dispatcher import HashName, RoundRobin

__all__ = [
    "DistributeTranspiler",
    "DistributeTranspilerConfig",
    "HashName",
    "InferenceTranspiler",
    "RoundRobin",
    "memory_optimize",
    "release_memory",
]

__getattr__ = refuse_other_names("paddle.fluid.transpiler", __all__)
