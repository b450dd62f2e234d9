"""What stands in for cuBLASLt and cuDNN has the names and arguments of the real packages, where those are installed."""

from __future__ import annotations

import inspect
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from fluidtool.runtime.engines.cuda import cublaslt, cudnn
from fluidtool.runtime.engines.cuda.calls import Buffer, Convolution, Pointer
from tests.gpu.standin import libraries

FUNCTIONS = [
    name
    for name, function in vars(libraries.CublasLt).items()
    if inspect.isfunction(function) and not name.startswith("_")
]
if find_spec("nvmath") is None and find_spec("cudnn") is None:
    pytest.skip("neither nvmath-python nor nvidia-cudnn-frontend is installed", allow_module_level=True)
needs_nvmath = pytest.mark.skipif(find_spec("nvmath") is None, reason="nvmath-python is not installed")
needs_cudnn = pytest.mark.skipif(find_spec("cudnn") is None, reason="nvidia-cudnn-frontend is not installed")


@needs_nvmath
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_cublaslt(name: str) -> None:
    own = list(inspect.signature(getattr(libraries.CublasLt, name)).parameters)[1:]
    declared = getattr(cublaslt.module(), name).__doc__.partition("(")[2].partition(")")[0]
    assert own == [part.split()[-1] for part in declared.split(",") if part.strip()]


@needs_nvmath
@pytest.mark.parametrize(
    "kind", ["Epilogue", "MatmulDescAttribute", "MatrixLayoutAttribute", "MatmulPreferenceAttribute"]
)
def test_numbers_of_cublaslt(kind: str) -> None:
    real: Any = getattr(cublaslt.module(), kind)
    assert {each.name: int(each) for each in getattr(libraries, kind)}.items() <= {
        each.name: int(each) for each in real
    }.items()


@needs_nvmath
def test_types_of_cublaslt() -> None:
    real = cublaslt.module()
    assert np.dtype(real.matmul_heuristic_result_dtype) == libraries.HEURISTIC
    assert {
        each: real.get_matmul_desc_attribute_dtype(each) for each in libraries.DESCRIPTIONS
    } == libraries.DESCRIPTIONS
    assert {each: real.get_matrix_layout_attribute_dtype(each) for each in libraries.LAYOUTS} == libraries.LAYOUTS


@needs_nvmath
def test_precisions_of_cublaslt() -> None:
    from nvmath.bindings import cublas

    real = {each.name: int(each) for each in cublas.ComputeType}
    names = {
        "float32": "COMPUTE_32F",
        "tf32": "COMPUTE_32F_FAST_TF32",
        "bf16": "COMPUTE_32F_FAST_16BF",
        "fp16": "COMPUTE_32F_FAST_16F",
    }
    assert {name: real[names[name]] for name in cublaslt.COMPUTE} == cublaslt.COMPUTE


@needs_cudnn
@pytest.mark.parametrize(
    ("computes", "tensor", "shape", "strides"),
    [
        ("out", 2, [2, 4, 5, 7], [140, 1, 28, 4]),
        ("x", 0, [2, 8, 9, 7], [504, 1, 56, 8]),
        ("weights", 1, [4, 2, 3, 3], [18, 1, 6, 2]),
    ],
)
def test_a_convolution_is_described_to_cudnn(computes: str, tensor: int, shape: Any, strides: Any) -> None:
    nowhere = Pointer(Buffer(1))
    call = Convolution(
        nowhere, nowhere, nowhere, (2, 8, 9, 7), (4, 2, 3, 3), (2, 4, 5, 7), (1, 1, 1, 1), (2, 1), (1, 1), computes
    )
    graph, tensors = cudnn.convolution_graph(cudnn.module(), call, None)
    assert (tensors[tensor].get_dim(), tensors[tensor].get_stride()) == (shape, strides)
    notes = cudnn.module().numerical_note
    graph.deselect_numeric_notes([notes.DOWN_CONVERT_INPUTS, notes.NONDETERMINISTIC])


@needs_cudnn
def test_a_convolution_of_volumes_is_described_to_cudnn() -> None:
    nowhere = Pointer(Buffer(1))
    call = Convolution(
        nowhere, nowhere, nowhere, (2, 4, 5, 6, 7), (6, 4, 3, 3, 3), (2, 6, 3, 6, 7), (1, 1, 1, 1, 1, 1), (2, 1, 1), (1, 1, 1)
    )  # fmt: skip
    _, (x, _, y) = cudnn.convolution_graph(cudnn.module(), call, None)
    assert (x.get_stride(), y.get_dim()) == ([840, 1, 168, 28, 4], [2, 6, 3, 6, 7])
