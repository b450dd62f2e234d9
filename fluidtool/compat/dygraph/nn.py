"""Classes of dynamic graphs that Paddle 1.8.5 has in `fluid` as well."""

from fluidtool.compat.dygraph.outside import outside_class, outside_function

__all__ = [
    "NCE",
    "BCELoss",
    "BatchNorm",
    "BilinearTensorProduct",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Conv3DTranspose",
    "Dropout",
    "Embedding",
    "GRUUnit",
    "GroupNorm",
    "InstanceNorm",
    "L1Loss",
    "Layer",
    "LayerNorm",
    "Linear",
    "MSELoss",
    "NLLLoss",
    "PRelu",
    "Pool2D",
    "SpectralNorm",
    "TreeConv",
    "VarBase",
    "load_dygraph",
    "save_dygraph",
]  # fmt: skip

Layer = outside_class("Layer")
BCELoss, L1Loss, MSELoss, NLLLoss = (outside_class(name) for name in ("BCELoss", "L1Loss", "MSELoss", "NLLLoss"))
BatchNorm, GroupNorm = outside_class("BatchNorm"), outside_class("GroupNorm")
InstanceNorm, LayerNorm = outside_class("InstanceNorm"), outside_class("LayerNorm")
Conv2D, Conv2DTranspose = outside_class("Conv2D"), outside_class("Conv2DTranspose")
Conv3D, Conv3DTranspose = outside_class("Conv3D"), outside_class("Conv3DTranspose")
BilinearTensorProduct, Dropout = outside_class("BilinearTensorProduct"), outside_class("Dropout")
Embedding, GRUUnit, Linear = outside_class("Embedding"), outside_class("GRUUnit"), outside_class("Linear")
NCE, PRelu, Pool2D = outside_class("NCE"), outside_class("PRelu"), outside_class("Pool2D")
SpectralNorm, TreeConv = outside_class("SpectralNorm"), outside_class("TreeConv")
VarBase = outside_class("VarBase")
load_dygraph, save_dygraph = outside_function("load_dygraph"), outside_function("save_dygraph")
