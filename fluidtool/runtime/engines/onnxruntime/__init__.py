"""ONNX Runtime as an engine: a region becomes an ONNX graph in memory (opset 20; extra `onnxruntime`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fluidtool.runtime.graph.ir import Shape

OPSET, IR_VERSION = 20, 9
LARGE = 1024  # numbers: larger constants stay outside of the protobuf message
BINARY = {"add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "maximum": "Max", "minimum": "Min"}
UNARY = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "exp": "Exp", "sqrt": "Sqrt", "abs": "Abs"}


def version() -> str:
    """The version of ONNX Runtime; raises ImportError without it, or without the package onnx."""
    import onnx  # noqa: F401
    import onnxruntime

    return str(onnxruntime.__version__)


class OnnxGraph:
    """A `Target`: operands are names."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.small: list[Any] = []
        self.large: dict[str, NDArray[Any]] = {}

    def input(self, name: str, shape: Shape, integer: bool) -> str:
        from onnx import TensorProto, helper

        kind = TensorProto.INT64 if integer else TensorProto.FLOAT
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def constant(self, array: NDArray[Any]) -> str:
        from onnx import numpy_helper

        name = f"constant.{len(self.small) + len(self.large)}"
        if array.size > LARGE:
            self.large[name] = array
        else:
            self.small.append(numpy_helper.from_array(array, name))
        return name

    def _add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        from onnx import helper

        name = f"{kind}.{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def _sizes(self, sizes: Sequence[int]) -> str:
        return self.constant(np.asarray(sizes, np.int64))

    def convolution(self, x: str, weights: str, strides: Shape, pads: Shape, dilations: Shape, groups: int) -> str:
        return self._add("Conv", x, weights, strides=strides, pads=pads, dilations=dilations, group=groups)

    def pool(self, x: str, window: Shape, strides: Shape, pads: Shape, mode: int) -> str:
        if mode == 0:
            return self._add("MaxPool", x, kernel_shape=window, strides=strides, pads=pads)
        whole = int(mode == 2)
        return self._add("AveragePool", x, kernel_shape=window, strides=strides, pads=pads, count_include_pad=whole)

    def product(self, a: str, b: str) -> str:
        return self._add("MatMul", a, b)

    def binary(self, name: str, a: str, b: str) -> str:
        return self._add(BINARY[name], a, b)

    def unary(self, name: str, x: str) -> str:
        return self._add(UNARY[name], x)

    def clip(self, x: str, low: float, high: float) -> str:
        return self._add(
            "Clip", x, self.constant(np.asarray(low, np.float32)), self.constant(np.asarray(high, np.float32))
        )

    def leaky_relu(self, x: str, slope: float) -> str:
        return self._add("LeakyRelu", x, alpha=slope)

    def gelu(self, x: str, by_tanh: bool) -> str:
        return self._add("Gelu", x, approximate="tanh" if by_tanh else "none")

    def softmax(self, x: str) -> str:
        return self._add("Softmax", x, axis=-1)

    def normalize_rows(self, x: str, scale: str, shift: str, epsilon: float) -> str:
        return self._add("LayerNormalization", x, scale, shift, axis=-1, epsilon=epsilon)

    def rows(self, table: str, ids: str) -> str:
        return self._add("Gather", table, ids, axis=0)

    def reshape(self, x: str, shape: Shape) -> str:
        return self._add("Reshape", x, self._sizes(shape))

    def transpose(self, x: str, axes: Sequence[int]) -> str:
        return self._add("Transpose", x, perm=list(axes))

    def slice(self, x: str, starts: Sequence[int], ends: Sequence[int]) -> str:
        return self._add("Slice", x, self._sizes(starts), self._sizes(ends))

    def concat(self, parts: Sequence[str], axis: int) -> str:
        return self._add("Concat", *parts, axis=axis)

    def model(self, outputs: Sequence[str], shapes: Sequence[Shape]) -> bytes:
        """The graph as a message; large constants are named in it and stay in `large`."""
        from onnx import TensorProto, helper

        initializers = list(self.small)
        for name, array in self.large.items():
            tensor = TensorProto(
                name=name,
                dims=array.shape,
                data_type=helper.np_dtype_to_tensor_dtype(array.dtype),
                data_location=TensorProto.EXTERNAL,
            )
            tensor.external_data.add(key="location", value="memory")
            initializers.append(tensor)
        named = [f"output.{number}" for number in range(len(outputs))]
        nodes = [*self.nodes, *(helper.make_node("Identity", [a], [b]) for a, b in zip(outputs, named, strict=True))]
        results = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in zip(named, shapes, strict=True)
        ]
        graph = helper.make_graph(nodes, "region", self.inputs, results, initializers)
        opset = [helper.make_opsetid("", OPSET)]
        return bytes(helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION).SerializeToString())


def target() -> OnnxGraph:
    """A new graph."""
    return OnnxGraph()


def load(
    graph: OnnxGraph, outputs: Sequence[str], shapes: Sequence[Shape], threads: int
) -> Callable[[Mapping[str, NDArray[Any]]], Sequence[NDArray[Any]]]:
    """A session on the CPU with this many threads."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in graph.large.values()]
    if values:
        options.add_external_initializers(list(graph.large), values)
    session = onnxruntime.InferenceSession(graph.model(outputs, shapes), options, providers=["CPUExecutionProvider"])

    def call(given: Mapping[str, NDArray[Any]]) -> Sequence[NDArray[Any]]:
        found: Sequence[NDArray[Any]] = session.run(None, dict(given))
        return found

    return call
