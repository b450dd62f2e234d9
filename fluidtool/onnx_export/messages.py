"""A graph as ONNX messages, with its large constants in the file or next to it. Needs the package onnx."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fluidtool._version import __version__
from fluidtool.errors import DependencyError
from fluidtool.onnx_export.graph import Array, Graph, NodeRecord, Value
from fluidtool.records import dataclass

MESSAGE_LIMIT = 2_000_000_000  # bytes: protobuf cannot write more than 2 GiB
ALIGNMENT = 4096  # so that a reader can map the arrays
OLDEST_IR = 7
LARGE = 1024  # bytes: smaller constants stay in the message


@dataclass(frozen=True, slots=True)
class Written:
    """A model as bytes; `external`: the arrays of a second file, each with its place there."""

    message: bytes
    external: Mapping[str, tuple[int, Array]]

    def external_parts(self) -> Iterator[Any]:
        """The bytes of the second file."""
        at = 0
        for offset, array in self.external.values():
            yield bytes(offset - at)
            yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else b""
            at = offset + array.nbytes


def require_onnx() -> None:
    """Raise DependencyError where the package onnx is not installed."""
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise DependencyError(
            "writing ONNX models needs the package onnx; install it with: pip install 'fluidtool[onnx]'"
        ) from error


def write_model(graph: Graph, *, name: str, external: str = "", properties: Mapping[str, str] | None = None) -> Written:
    """The bytes of a model. external: the name of the file that large constants go to ("": none).

    Raises DependencyError without the package onnx.
    """
    require_onnx()
    from onnx import helper

    dims = named_dims(graph)
    body = _graph(graph, name, dims)
    placed: dict[str, tuple[int, Array]] = {}
    for key, array in graph.shared.initializers.items():
        body.initializer.append(_tensor(key, array, external, placed))
    opset = helper.make_opsetid("", graph.opset)
    version = max(helper.find_min_ir_version_for([opset]), OLDEST_IR)
    model = helper.make_model(
        body, opset_imports=[opset], ir_version=version, producer_name="fluidtool", producer_version=__version__
    )
    if properties:
        helper.set_model_props(model, dict(properties))
    return Written(bytes(model.SerializeToString()), placed)


def named_dims(graph: Graph) -> dict[str, list[int | str]]:
    """The sizes of the inputs, with a name for each that is known only at run time."""
    open_batch = [value for value in graph.inputs if value.shape and value.shape[0] < 0]
    batch = {value.name: "batch" if len(open_batch) == 1 else f"{value.name}.batch" for value in open_batch}
    return {
        value.name: [
            size if size >= 0 else batch[value.name] if axis == 0 else f"{value.name}.{axis}"
            for axis, size in enumerate(value.shape)
        ]
        for value in graph.inputs
        if value.shape is not None
    }


def size_of(graph: Graph) -> int:
    """The bytes of the constants."""
    return sum(array.nbytes for array in graph.shared.initializers.values())


def _tensor(name: str, array: Array, external: str, placed: dict[str, tuple[int, Array]]) -> Any:
    from onnx import TensorProto, helper

    tensor = TensorProto(name=name, dims=array.shape, data_type=helper.np_dtype_to_tensor_dtype(array.dtype))
    if not external or array.nbytes < LARGE:
        little = array if array.dtype.byteorder != ">" else array.astype(array.dtype.newbyteorder("<"))
        tensor.raw_data = np.ascontiguousarray(little).tobytes()
        return tensor
    last = max((offset + value.nbytes for offset, value in placed.values()), default=0)
    offset = -(-last // ALIGNMENT) * ALIGNMENT
    placed[name] = (offset, array)
    tensor.data_location = TensorProto.EXTERNAL
    for key, number in (("location", external), ("offset", str(offset)), ("length", str(array.nbytes))):
        tensor.external_data.add(key=key, value=number)
    return tensor


def _graph(graph: Graph, name: str, dims: Mapping[str, list[int | str]]) -> Any:
    from onnx import helper

    nodes = [_node(graph, node) for node in graph.nodes]
    inputs = [_info(value, value.name, dims.get(value.name)) for value in graph.inputs]
    outputs = [_info(value, graph.shared.renamed.get(value.name, value.name), None) for value in graph.outputs]
    return helper.make_graph(nodes, name, inputs, outputs)


def _info(value: Value, name: str, sizes: list[int | str] | None) -> Any:
    from onnx import helper

    if value.sequence:
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        return helper.make_tensor_sequence_value_info(name, kind, None)
    if sizes is None and value.shape is not None:
        sizes = [size if size >= 0 else "" for size in value.shape]
    given = None if sizes is None else [None if size == "" else size for size in sizes]
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), given)


def _node(graph: Graph, node: NodeRecord) -> Any:
    from onnx import helper

    renamed = graph.shared.renamed
    outputs = [renamed.get(name, name) for name in node.outputs]
    inputs = [renamed.get(name, name) for name in node.inputs]
    attributes = {key: _attribute(value) for key, value in node.attributes.items()}
    return helper.make_node(node.kind, inputs, outputs, name=next(filter(None, outputs), ""), **attributes)


def _attribute(value: Any) -> Any:
    from onnx import helper, numpy_helper

    if isinstance(value, Graph):
        return _graph(value, "body", {})
    if isinstance(value, np.dtype):
        return int(helper.np_dtype_to_tensor_dtype(value))
    if isinstance(value, np.ndarray):
        return numpy_helper.from_array(value)
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    if isinstance(value, np.generic):
        return value.item()
    return value
