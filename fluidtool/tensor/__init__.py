"""The values that programs compute with: LoDTensor, SelectedRows, LoDTensorArray, data types and places."""

from fluidtool.tensor.create import create_lod_tensor, create_random_int_lodtensor
from fluidtool.tensor.data_types import as_data_type, numpy_dtype, var_type_of
from fluidtool.tensor.lod import lengths_to_offsets, offsets_to_lengths
from fluidtool.tensor.lod_tensor import LoDTensor, LoDTensorArray
from fluidtool.tensor.place import CPUPlace, CUDAPinnedPlace, CUDAPlace, Place
from fluidtool.tensor.rank_table import LoDRankTable
from fluidtool.tensor.selected_rows import SelectedRows

__all__ = [
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "LoDRankTable",
    "LoDTensor",
    "LoDTensorArray",
    "Place",
    "SelectedRows",
    "as_data_type",
    "create_lod_tensor",
    "create_random_int_lodtensor",
    "lengths_to_offsets",
    "numpy_dtype",
    "offsets_to_lengths",
    "var_type_of",
]
