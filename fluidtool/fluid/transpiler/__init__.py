"""The transpilers: rewrites of whole programs for inference, memory and distribution."""

from fluidtool.fluid.offers import refuse_other_names
from fluidtool.fluid.transpiler.inference_transpiler import InferenceTranspiler

__all__ = ["InferenceTranspiler"]

__getattr__ = refuse_other_names("paddle.fluid.transpiler", __all__)
