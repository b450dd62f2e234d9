"""OpenVINO as an engine: a region becomes an OpenVINO model in memory (operation set 13; extra `openvino`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fluidtool.runtime.graph.ir import Shape

UNARY = {"relu": "relu", "sigmoid": "sigmoid", "tanh": "tanh", "exp": "exp", "sqrt": "sqrt", "abs": "abs"}


def version() -> str:
    """The version of OpenVINO; raises ImportError without it."""
    import openvino

    return str(openvino.__version__).partition("-")[0]


class OpenvinoGraph:
    """A `Target`: operands are OpenVINO's nodes."""

    def __init__(self) -> None:
        from openvino import opset13

        self.ops: Any = opset13
        self.inputs: list[Any] = []

    def input(self, name: str, shape: Shape, integer: bool) -> Any:
        found = self.ops.parameter(list(shape), np.int64 if integer else np.float32, name)
        found.output(0).get_tensor().set_names({name})
        self.inputs.append(found)
        return found

    def constant(self, array: NDArray[Any]) -> Any:
        return self.ops.constant(array)

    def convolution(self, x: Any, weights: Any, strides: Shape, pads: Shape, dilations: Shape, groups: int) -> Any:
        edges = (list(pads[:2]), list(pads[2:]))
        if groups == 1:
            return self.ops.convolution(x, weights, list(strides), *edges, list(dilations))
        count, *rest = weights.shape
        shape = np.asarray([groups, count // groups, *rest], np.int64)
        grouped = self.ops.reshape(weights, self.ops.constant(shape), False)
        return self.ops.group_convolution(x, grouped, list(strides), *edges, list(dilations))

    def pool(self, x: Any, window: Shape, strides: Shape, pads: Shape, mode: int) -> Any:
        edges = (list(pads[:2]), list(pads[2:]))
        if mode == 0:
            return self.ops.max_pool(x, list(strides), [1, 1], *edges, list(window)).output(0)
        return self.ops.avg_pool(x, list(strides), *edges, list(window), mode == 1)

    def product(self, a: Any, b: Any) -> Any:
        return self.ops.matmul(a, b, False, False)

    def binary(self, name: str, a: Any, b: Any) -> Any:
        return getattr(self.ops, name)(a, b)

    def unary(self, name: str, x: Any) -> Any:
        return getattr(self.ops, UNARY[name])(x)

    def clip(self, x: Any, low: float, high: float) -> Any:
        return self.ops.clamp(x, low, high)

    def leaky_relu(self, x: Any, slope: float) -> Any:
        return self.ops.prelu(x, self.constant(np.full(1, slope, np.float32)))

    def gelu(self, x: Any, by_tanh: bool) -> Any:
        return self.ops.gelu(x, "TANH" if by_tanh else "ERF")

    def softmax(self, x: Any) -> Any:
        return self.ops.softmax(x, -1)

    def normalize_rows(self, x: Any, scale: Any, shift: Any, epsilon: float) -> Any:
        axes = self.ops.constant(np.full(1, -1, np.int64))
        out = self.ops.mvn(x, axes, True, epsilon, "inside_sqrt")
        return self.ops.add(self.ops.multiply(out, scale), shift)

    def rows(self, table: Any, ids: Any) -> Any:
        return self.ops.gather(table, ids, self.ops.constant(np.int64(0)))

    def reshape(self, x: Any, shape: Shape) -> Any:
        return self.ops.reshape(x, self.ops.constant(np.asarray(shape, np.int64)), False)

    def transpose(self, x: Any, axes: Sequence[int]) -> Any:
        return self.ops.transpose(x, self.ops.constant(np.asarray(axes, np.int64)))

    def slice(self, x: Any, starts: Sequence[int], ends: Sequence[int]) -> Any:
        start, stop = (self.ops.constant(np.asarray(numbers, np.int64)) for numbers in (starts, ends))
        return self.ops.slice(x, start, stop, self.ops.constant(np.ones(len(starts), np.int64)))

    def concat(self, parts: Sequence[Any], axis: int) -> Any:
        return self.ops.concat(list(parts), axis)


def target() -> OpenvinoGraph:
    """A new graph."""
    return OpenvinoGraph()


def load(
    graph: OpenvinoGraph, outputs: Sequence[Any], shapes: Sequence[Shape], threads: int
) -> Callable[[Mapping[str, NDArray[Any]]], Sequence[NDArray[Any]]]:
    """A model compiled for the CPU in float32 with this many threads."""
    import openvino

    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    model = openvino.Model([graph.ops.result(output) for output in outputs], graph.inputs, "region")
    compiled = openvino.Core().compile_model(model, "CPU", settings)
    request = compiled.create_infer_request()

    def call(given: Mapping[str, NDArray[Any]]) -> Sequence[NDArray[Any]]:
        request.infer(dict(given))
        return [np.array(request.get_output_tensor(number).data) for number in range(len(outputs))]

    return call
