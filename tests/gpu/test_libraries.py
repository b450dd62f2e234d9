"""What stands in for cuBLASLt and cuDNN has the names and arguments of the real packages, where those are installed."""

from __future__ import annotations

import inspect
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from fluidtool.runtime.engines.cuda import cublaslt, cudnn
from fluidtool.runtime.engines.cuda.calls import (
    Attention,
    AttentionGradient,
    Buffer,
    Convolution,
    Heads,
    Place,
    Pointer,
)
from fluidtool.runtime.engines.cuda.convolutions import FUSED
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
def test_types_of_memory() -> None:
    import cuda.bindings.runtime as runtime

    names = {"": "CUDA_R_32F", "fp16": "CUDA_R_16F", "bf16": "CUDA_R_16BF"}
    assert {half: int(getattr(runtime.cudaDataType, name)) for half, name in names.items()} == cublaslt.TYPES


@needs_nvmath
def test_types_of_cublaslt() -> None:
    real = cublaslt.module()
    assert np.dtype(real.matmul_heuristic_result_dtype) == libraries.HEURISTIC
    assert {
        each: real.get_matmul_desc_attribute_dtype(each) for each in libraries.DESCRIPTIONS
    } == libraries.DESCRIPTIONS
    assert {each: real.get_matrix_layout_attribute_dtype(each) for each in libraries.LAYOUTS} == libraries.LAYOUTS
    preferences = {each: real.get_matmul_preference_attribute_dtype(each) for each in libraries.PREFERENCES}
    assert preferences == libraries.PREFERENCES


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
    graph.deselect_numeric_notes([notes.DOWN_CONVERT_INPUTS, notes.NONDETERMINISTIC, notes.TENSOR_CORE])


@needs_cudnn
@pytest.mark.parametrize(
    ("computes", "tensor", "shape", "strides"),
    [
        ("out", 2, [2, 4, 5, 7], [140, 35, 7, 1]),
        ("x", 0, [2, 8, 9, 7], [504, 63, 7, 1]),
        ("weights", 1, [4, 2, 3, 3], [18, 9, 3, 1]),
    ],
)
def test_a_convolution_with_channels_first_is_described_to_cudnn(
    computes: str, tensor: int, shape: Any, strides: Any
) -> None:
    nowhere = Pointer(Buffer(1))
    call = Convolution(
        nowhere, nowhere, nowhere, (2, 8, 9, 7), (4, 2, 3, 3), (2, 4, 5, 7), (1, 1, 1, 1), (2, 1), (1, 1), computes,
        channels_first=True,
    )  # fmt: skip
    _, tensors = cudnn.convolution_graph(cudnn.module(), call, None)
    assert (tensors[tensor].get_dim(), tensors[tensor].get_stride()) == (shape, strides)


@needs_cudnn
@pytest.mark.parametrize("computes", ["out", "x", "weights"])
@pytest.mark.parametrize("half", ["", "fp16", "bf16"])
def test_a_convolution_of_volumes_is_described_to_cudnn(half: str, computes: str) -> None:
    nowhere = Pointer(Buffer(1, half=half))
    call = Convolution(
        nowhere, nowhere, nowhere, (2, 4, 5, 6, 7), (6, 4, 3, 3, 3), (2, 6, 3, 6, 7), (1, 1, 1, 1, 1, 1), (2, 1, 1), (1, 1, 1),
        computes,
    )  # fmt: skip
    _, (x, weights, y) = cudnn.convolution_graph(cudnn.module(), call, None)
    assert (x.get_stride(), y.get_dim()) == ([840, 1, 168, 28, 4], [2, 6, 3, 6, 7])
    assert weights.get_stride() == [108, 1, 36, 12, 4]


@needs_cudnn
@pytest.mark.parametrize("half", ["", "fp16", "bf16"])
@pytest.mark.parametrize("activation", [None, *((name, numbers((0.5, 1.0))) for name, numbers in FUSED.values())])
def test_a_convolution_and_what_follows_it_are_described_to_cudnn(activation: Any, half: str) -> None:
    nowhere, floats = Pointer(Buffer(1, half=half)), Pointer(Buffer(1))
    call = Convolution(
        nowhere, nowhere, nowhere, (2, 8, 9, 7), (16, 8, 3, 3), (2, 16, 9, 7), (1, 1, 1, 1), (1, 1), (1, 1), "out", floats,
        nowhere, activation,
    )  # fmt: skip
    graph, tensors = cudnn.convolution_graph(cudnn.module(), call, None)
    assert len(tensors) == len(call.pointers) and len(graph.nodes) == 3 + (activation is not None)
    assert tensors[2].get_dim() == [2, 16, 9, 7] and tensors[3].get_dim() == [1, 16, 1, 1]
    assert tensors[2].get_data_type() == cudnn.data_type(cudnn.module(), half)


@needs_cudnn
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("half", ["fp16", "bf16"])
def test_attention_is_described_to_cudnn(half: str, masked: bool) -> None:
    graph, tensors = cudnn.attention_graph(cudnn.module(), attention_of(half, masked), None)
    assert len(tensors) == 4 + masked
    assert (tensors[3].get_dim(), tensors[3].get_stride()) == ([2, 4, 6, 16], [384, 16, 64, 1])
    (node,) = graph.nodes
    assert node.node_type.name == "SDPA"


@needs_cudnn
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("half", ["fp16", "bf16"])
def test_attention_leaves_what_its_gradient_needs(half: str, masked: bool) -> None:
    call = attention_of(half, masked, stats=True)
    graph, tensors = cudnn.attention_graph(cudnn.module(), call, None)
    (node,) = graph.nodes
    assert len(tensors) == len(call.pointers) == 5 + masked and node.node_type.name == "SDPA"
    stats = tensors[-1]
    assert (stats.get_dim(), stats.get_stride()) == ([2, 4, 6, 1], [24, 6, 1, 1])
    assert stats.get_data_type() == cudnn.module().data_type.FLOAT and stats is not tensors[3]


@needs_cudnn
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("half", ["fp16", "bf16"])
def test_the_gradient_of_attention_is_described_to_cudnn(half: str, masked: bool) -> None:
    call = gradient_of(attention_of(half, masked, stats=True))
    graph, tensors = cudnn.attention_gradient_graph(cudnn.module(), call, None)
    (node,) = graph.nodes
    assert len(tensors) == len(call.pointers) == 9 + masked and node.node_type.name == "SDPA_BWD"
    assert [each.get_dim() for each in tensors[6:9]] == [[2, 4, 6, 16], [2, 4, 5, 16], [2, 4, 5, 16]]
    assert {each.get_data_type() for each in tensors[6:9]} == {cudnn.data_type(cudnn.module(), half)}
    assert tensors[5].get_data_type() == cudnn.module().data_type.FLOAT


@needs_cudnn
def test_without_a_plan_a_gradient_of_attention_is_refused() -> None:
    library = cudnn.module()
    graph, _ = cudnn.attention_gradient_graph(library, gradient_of(attention_of("bf16", True, stats=True)), None)
    with pytest.raises(library.cudnnGraphNotSupportedError):
        graph.build([library.heur_mode.A, library.heur_mode.FALLBACK])


@needs_cudnn
def test_without_a_plan_a_graph_is_refused() -> None:
    library = cudnn.module()
    graph, _ = cudnn.attention_graph(library, attention_of("bf16", True), None)
    with pytest.raises(library.cudnnGraphNotSupportedError):
        graph.build([library.heur_mode.A, library.heur_mode.FALLBACK])


def attention_of(half: str, masked: bool, stats: bool = False) -> Attention:
    """Heads side by side: four for each of two sequences of six rows and five keys."""

    def heads(rows: int) -> Heads:
        return Heads(Place(Buffer(1, half=half), (64 * rows, 16, 64, 1)), (2, 4, rows, 16))

    mask = Heads(Place(Buffer(1, half=half), (30, 30, 5, 1)), (2, 1, 6, 5)) if masked else None
    left = Heads(Place(Buffer(1), (24, 6, 1, 1)), (2, 4, 6, 1)) if stats else None
    return Attention(heads(6), heads(5), heads(5), heads(6), 0.25, mask, left)


def gradient_of(call: Attention) -> AttentionGradient:
    """The gradient of an attention, all of whose results lie as what they are gradients of."""
    assert call.stats is not None
    given = (call.q, call.k, call.v, call.out, call.out, call.stats)
    return AttentionGradient(*given, call.q, call.k, call.v, call.factor, call.mask)


@needs_cudnn
@pytest.mark.parametrize("name", ["add", "relu", "sigmoid", "tanh", "gelu", "swish", "conv_fprop", "execute", "build"])
def test_functions_of_cudnn(name: str) -> None:
    own = inspect.signature(getattr(libraries.Graph, name)).parameters
    real = inspect.signature(getattr(cudnn.module().pygraph, name)).parameters
    assert "args" in real or set(own) <= set(real)
