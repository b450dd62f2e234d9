"""Saving what parameter servers keep, and fake_init, which stands for parameters that live on them."""

from __future__ import annotations

from math import prod
from typing import Any

from fluidtool.ops.context import InferContext, OpContext, RemoteVariable
from fluidtool.ops.distributed.rpc import ENDPOINT
from fluidtool.ops.files.disk import write_file
from fluidtool.ops.registry import op
from fluidtool.ops.schema import LONGS, STRING, TensorMeta, longs, required, strings
from fluidtool.ops.traits import Traits
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text
from fluidtool.tensor import LoDTensor, SelectedRows
from fluidtool.tensor.streams import write_tensor


@op(
    "checkpoint_notify",
    inputs="",
    outputs="",
    attrs={
        "epmap": strings(ENDPOINT),
        "dir": required(STRING),
        "lookup_table": required(STRING),
        "trainer_id": 0,
    },
    side_effects=True,
    traits=Traits(memory="named"),
)
def checkpoint_notify(ctx: OpContext, *, epmap: list[str], dir: str, lookup_table: str) -> None:
    """Tell the server at epmap[i] to save its part of a table as <dir>/<lookup_table>_<i>, and wait until it has.

    Paddle 1.8.5 checkpoint_notify_op.cc.
    """
    if not (dir and lookup_table):
        raise ctx.error("attributes dir and lookup_table must name a folder and a table")
    folders = [(endpoint, f"{dir}/{lookup_table}_{index}") for index, endpoint in enumerate(epmap)]
    ctx.runtime.remote.checkpoint(ctx.op, folders)


@op(
    "recv_save",
    inputs="",
    outputs="",
    attrs={
        "dtype": 5,
        "overwrite": True,
        "file_path": required(STRING),
        "shape": longs(),
        "slice_varnames": strings(),
        "remote_varnames": strings(),
        "slice_shapes": strings(),
        "endpoints": strings(),
        "trainer_id": 0,
    },
    side_effects=True,
)
def recv_save(
    ctx: OpContext,
    *,
    dtype: int,
    overwrite: bool,
    file_path: str,
    shape: list[int],
    slice_varnames: list[str],
    remote_varnames: list[str],
    slice_shapes: list[str],
    endpoints: list[str],
) -> None:
    """Get the slices of a variable from the servers and write them to file_path, one after the other, as one LoDTensor.

    slice_shapes: text such as "50,8"; shape: of the whole (Paddle 1.8.5 recv_save_op.cc).
    """
    if not len(slice_varnames) == len(remote_varnames) == len(slice_shapes) == len(endpoints) > 0:
        raise ctx.error(
            "slice_varnames, remote_varnames, slice_shapes and endpoints must be equally many, found "
            f"{len(slice_varnames)}, {len(remote_varnames)}, {len(slice_shapes)}, {len(endpoints)}"
        )
    path = ctx.runtime.file_path(file_path, ctx.op)
    places = zip(endpoints, remote_varnames, slice_varnames, strict=True)
    slices = ctx.runtime.remote.receive(
        ctx.op, [RemoteVariable(endpoint, name, out) for endpoint, name, out in places], with_barrier=False
    )
    for name, text, value in zip(slice_varnames, slice_shapes, slices, strict=True):
        found = value.array.shape if isinstance(value, LoDTensor) else None
        if found != _shape(ctx, text) or value.array.dtype != ctx.dtype(dtype):
            raise ctx.error(
                f"slice {name} must be {ctx.dtype(dtype)} of shape {text}, but the server keeps {value!r:.80}"
            )
    whole = ctx.np.concatenate([value.array.reshape(-1) for value in slices])
    if whole.size != prod(shape):
        raise ctx.error(f"the slices have {whole.size} elements, but attribute shape is {shape_text(shape)}")
    write_file(path, write_tensor(LoDTensor(whole.reshape(tuple(shape)))), ctx.op.type, overwrite)


def _shape(ctx: OpContext, text: str) -> tuple[int, ...]:
    sizes = [size.strip() for size in text.split(",") if size.strip()]
    if not all(size.isdecimal() for size in sizes):
        raise ctx.error(f"slice_shapes takes sizes such as '50,8', found {text!r}")
    return tuple(int(size) for size in sizes)


@op("fake_init", inputs="", outputs="Out", attrs={"shape": required(LONGS)}, traits=Traits(transpiled=True))
def fake_init(ctx: OpContext, *, shape: list[int]) -> Any:
    """Give Out its dimensions and no memory: its values live on servers (Paddle 1.8.5 fake_init_op.cc)."""
    variable = ctx.op.block.find_var_recursive(ctx.op.output("Out")[0])
    if variable is None or variable.type != VarType.SELECTED_ROWS:
        return ctx.dims_only(shape)
    selected = SelectedRows()
    selected.tensor.set_dims(shape)
    return selected


@fake_init.infer
def _(ctx: InferContext, *, shape: list[int]) -> TensorMeta | None:
    declared = ctx.meta(ctx.op.output("Out")[0])
    kind = VarType.LOD_TENSOR if declared is None else declared.kind
    return TensorMeta(tuple(shape), VarType.FP32 if declared is None else declared.dtype, 0, kind)
