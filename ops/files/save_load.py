"""save, load, save_combine and load_combine: variables as files.

Which paths a program may use is the runtime's policy.
"""

from __future__ import annotations

from math import prod
from typing import Any

from fluidtool.errors import UninitializedError, UnreadableError
from fluidtool.ops.context import OpContext
from fluidtool.ops.files.disk import own, read_file, write_file
from fluidtool.ops.registry import op
from fluidtool.ops.schema import STRING, long, longs, required
from fluidtool.ops.tensor.arguments import declared_kind
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text
from fluidtool.tensor import LoDTensor, SelectedRows
from fluidtool.tensor.streams import read_selected_rows, read_tensor, write_selected_rows, write_tensor

LOOKUP_TABLE_PATH = "kLookupTablePath"


def _path(ctx: OpContext, path: str) -> str:
    if not path:
        raise ctx.error("the attribute file_path is empty; name a file")
    allowed: str = ctx.runtime.file_path(path, ctx.op)
    return allowed


def _stream(ctx: OpContext, value: Any, name: str, as_fp16: bool) -> list[Any]:
    """The stream of a value, brought to the host."""
    if isinstance(value, SelectedRows):
        return write_selected_rows(SelectedRows(value.row_ids, value.table_height, ctx.host(value.value)))
    if not isinstance(value, LoDTensor):
        raise ctx.error(f"variable {name} is a {type(value).__name__}; LoDTensor and SelectedRows can be saved")
    if value.array is None:
        raise UninitializedError(f"operator {ctx.op.type}: variable {name} holds no value, it cannot be saved")
    array = ctx.host(value.array)
    return write_tensor(LoDTensor(array.astype("float16") if as_fp16 else array, value.offsets))


@op(
    "save",
    inputs="X",
    outputs="kLookupTablePath?",
    attrs={"overwrite": True, "save_as_fp16": False, "file_path": required(STRING)},
    raw=True,
    side_effects=True,
)
def save(ctx: OpContext, *, overwrite: bool, save_as_fp16: bool, file_path: str) -> None:
    """Write X, a LoDTensor or SelectedRows, to file_path (Paddle 1.8.5 save_op.h).

    The path of a lookup table comes from the variable kLookupTablePath when the scope has one.
    """
    value = ctx.value("X")
    table = ctx.scope.find_var(LOOKUP_TABLE_PATH) if isinstance(value, SelectedRows) else None
    path = table.value if table is not None and isinstance(table.value, str) else file_path
    parts = _stream(ctx, value, ctx.op.input("X")[0], save_as_fp16)
    write_file(_path(ctx, path), parts, ctx.op.type, overwrite)


@op(
    "save_combine",
    inputs="X*",
    outputs="Y?",
    attrs={"overwrite": True, "save_as_fp16": False, "file_path": required(STRING), "save_to_memory": False},
    raw=True,
    side_effects=True,
)
def save_combine(
    ctx: OpContext, *, overwrite: bool, save_as_fp16: bool, file_path: str, save_to_memory: bool
) -> dict[str, bytes] | None:
    """Write the LoDTensors X one after the other, without names, to file_path, or as bytes to Y.

    Paddle 1.8.5 save_combine_op.h.
    """
    names = ctx.op.input("X")
    if not names:
        raise ctx.error("X must name at least one variable")
    parts: list[Any] = []
    for index, name in enumerate(names):
        value = ctx.value("X", index)
        if not isinstance(value, LoDTensor):
            raise ctx.error(f"variable {name} must be a LoDTensor, found {type(value).__name__}")
        parts += _stream(ctx, value, name, save_as_fp16)
    if save_to_memory:
        if not ctx.wants("Y"):
            raise ctx.error("save_to_memory needs a variable in the output Y")
        return {"Y": b"".join(parts)}
    write_file(_path(ctx, file_path), parts, ctx.op.type, overwrite)
    return None


def _loaded(ctx: OpContext, tensor: LoDTensor, as_fp16: bool) -> LoDTensor:
    """The tensor on the device, in separate memory."""
    host = own(tensor.numpy())
    return LoDTensor(ctx.array(host.astype("float16") if as_fp16 else host), tensor.lod())


@op(
    "load",
    inputs="",
    outputs="Out",
    attrs={"load_as_fp16": False, "file_path": required(STRING), "seek": long(-1), "shape": longs()},
    side_effects=True,
)
def load(ctx: OpContext, *, load_as_fp16: bool, file_path: str, seek: int, shape: list[int]) -> Any:
    """Read the first variable of file_path into Out; with seek >= 0 a tensor of `shape` that starts at that element.

    Paddle 1.8.5 load_op.h.
    """
    path = _path(ctx, file_path)
    buffer = read_file(path, ctx.op.type)
    if declared_kind(ctx) == VarType.SELECTED_ROWS:
        rows, _ = read_selected_rows(buffer, 0, path)
        return SelectedRows(rows.row_ids, rows.table_height, ctx.array(own(rows.value)))
    tensor, _ = read_tensor(buffer, 0, path)
    if seek >= 0:
        tensor = LoDTensor(_piece(ctx, tensor, seek, shape, path))
    return _loaded(ctx, tensor, load_as_fp16)


def _piece(ctx: OpContext, tensor: LoDTensor, seek: int, shape: list[int], path: str) -> Any:
    count, flat = prod(shape), tensor.numpy().reshape(-1)
    if not (shape and all(size >= 0 for size in shape)):
        raise ctx.error(f"seek needs the shape to load, found shape {shape_text(shape)}")
    if seek + count > len(flat):
        raise ctx.error(f"{count} elements from element {seek} on are requested, but {path} has {len(flat)}")
    return flat[seek : seek + count].reshape(shape)


@op(
    "load_combine",
    inputs="",
    outputs="Out*",
    attrs={"load_as_fp16": False, "file_path": required(STRING), "model_from_memory": False},
    side_effects=True,
)
def load_combine(ctx: OpContext, *, load_as_fp16: bool, file_path: str | bytes, model_from_memory: bool) -> Any:
    """Read as many LoDTensors as Out names from file_path, in order, up to the end of the file.

    With model_from_memory the attribute holds the bytes themselves (Paddle 1.8.5 load_combine_op.h).
    """
    names = ctx.op.output("Out")
    if model_from_memory:
        source, buffer = "the attribute file_path", _as_bytes(file_path)
    else:
        source = _path(ctx, str(file_path))
        buffer = read_file(source, ctx.op.type)
    tensors, offset = [], 0
    for index, name in enumerate(names):
        what = f"{source}, variable {index} of {len(names)} ({name}),"
        tensor, offset = read_tensor(buffer, offset, what)
        tensors.append(_loaded(ctx, tensor, load_as_fp16))
    if offset != len(buffer):
        raise UnreadableError(
            f"{source} has {len(buffer) - offset} bytes more than the {len(names)} variables that Out names; "
            "Out must name every variable of the file, in the order of saving"
        )
    return {"Out": tensors}


def _as_bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()
