"""The networks as ONNX files, for ONNX Runtime and OpenVINO: the engine's own translation, or `fluidtool convert` where a
network has more than that knows; the LSTM by hand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import fluidtool
from fluidtool.runtime.engines.delegate.translating import translate
from fluidtool.runtime.engines.onnxruntime import OnnxGraph
from fluidtool.runtime.graph.importers.refusals import every_attribute
from fluidtool.runtime.graph.ir import UnsupportedError
from fluidtool.runtime.graph.pipeline import import_region
from fluidtool.runtime.graph.spec import RegionSpec


def write(folder: Path, batch: int) -> Path:
    """`model_bsN.onnx` beside the model, for that batch; raises ImportError without the package onnx."""
    path = folder / f"model_bs{batch}.onnx"
    if path.exists():
        return path
    model = fluidtool.load(folder / "model.pdmodel", engine="numpy")
    with np.load(folder / "io.npz") as stored:
        inputs = {name: np.concatenate([stored[f"in_{name}"]] * batch) for name in model.feeds}
    types = {op.type for op in model.program.global_block().ops}
    graph = OnnxGraph()
    try:
        if "lookup_table" in types and "lstm" in types:
            outputs, shapes = lstm(model, graph, inputs), [(1, 2)]
        else:
            outputs, shapes = whole(model, graph, inputs)
    except UnsupportedError:
        return converted(folder, path, batch)
    import onnx

    message = onnx.load_from_string(graph.model(outputs, shapes))
    for tensor in message.graph.initializer:
        if tensor.name in graph.large:
            tensor.CopyFrom(onnx.numpy_helper.from_array(graph.large[tensor.name], tensor.name))
    onnx.save(message, str(path))
    return path


def converted(folder: Path, path: Path, batch: int) -> Path:
    """By `fluidtool convert`, for this batch and no other."""
    import onnx

    fluidtool.convert(folder / "model.pdmodel", path)
    message = onnx.load(str(path))
    for value in message.graph.input:
        value.type.tensor_type.shape.dim[0].dim_value = batch
    onnx.save(onnx.shape_inference.infer_shapes(message), str(path))
    return path


def whole(model: Any, graph: OnnxGraph, inputs: Any) -> tuple[list[str], list[tuple[int, ...]]]:
    """A program that is one region."""
    steps = model.executor.plan(model.program, model.fetches, True).block(0).steps
    constants = {name: model.scope.find_var(name).value.numpy() for name in model.files.parameters}
    read = {name for step in steps for name in step.op.input_arg_names}
    known = {name: array for name, array in constants.items() if name in read}
    ops = [(step.op, every_attribute(step.op, step.info)) for step in steps]
    imported = import_region(RegionSpec(ops, inputs, known, model.fetches)).graph
    return translate(imported, graph), [value.shape for value in imported.outputs]


def lstm(model: Any, graph: OnnxGraph, inputs: Any) -> list[str]:
    """Table, two LSTMs (Paddle's gates are c i f o, ONNX's i o f c), maximum over time, classes. Batch of one."""
    ops = model.program.global_block().ops
    _ = model.executor  # puts the parameters into the scope

    def parameter(op: Any, slot: str) -> Any:
        return model.scope.find_var(op.input(slot)[0]).value.numpy()

    def of(type: str) -> list[Any]:
        return [op for op in ops if op.type == type]

    def gates(array: Any) -> Any:
        cell, inward, forget, outward = np.split(array, 4, -1)
        return np.concatenate([inward, outward, forget, cell], -1)

    words = graph.input("words", inputs["words"].shape, True)
    data = graph.rows(graph.constant(parameter(of("lookup_table")[0], "W")), words)
    products, adds = of("mul"), of("elementwise_add")
    for cell, product, add in zip(of("lstm"), products, adds, strict=False):
        recurrent, bias = parameter(cell, "Weight"), parameter(cell, "Bias")
        size = recurrent.shape[0]
        both = gates(parameter(add, "Y") + bias[0, : 4 * size])
        operands = (
            graph.constant(np.ascontiguousarray(gates(parameter(product, "Y")).T[None])),
            graph.constant(np.ascontiguousarray(gates(recurrent).T[None])),
            graph.constant(np.concatenate([both, np.zeros_like(both)])[None]),
        )
        data = graph._add("LSTM", data, *operands, hidden_size=size)
        data = graph.reshape(data, (len(inputs["words"]), 1, size))
    data = graph._add("ReduceMax", data, graph.constant(np.zeros(1, np.int64)), keepdims=0)
    data = graph.product(data, graph.constant(parameter(products[-1], "Y")))
    return [graph.softmax(graph.binary("add", data, graph.constant(parameter(adds[-1], "Y"))))]
