"""Operators that talk to parameter servers, and fake_init, which stands for parameters that live on them."""

from __future__ import annotations

from typing import Any, NoReturn

from fluidtool.errors import UnsupportedOperatorError
from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import BLOCKS, LONGS, STRING, AttrSpec, TensorMeta, long, longs, required, strings
from fluidtool.proto.enums import VarType
from fluidtool.tensor import SelectedRows

ENDPOINT = "127.0.0.1:6164"


def _needs_rpc(ctx: OpContext) -> NoReturn:
    raise UnsupportedOperatorError(
        f"operator {ctx.op.type} talks to parameter servers, which this version does not do; run the program from before it "
        "was transpiled for distribution"
    )


@op(
    "send",
    inputs="X*",
    outputs="Out*",
    attrs={
        "trainer_id": 0,
        "epmap": strings(ENDPOINT),
        "sections": longs(),
        "send_varnames": strings(),
        "num": 0,
        "merge_add": False,
        "use_send_handler": True,
    },
    side_effects=True,
)
def send(ctx: OpContext, X: list[Any]) -> NoReturn:
    """Send variables to the servers that keep them."""
    _needs_rpc(ctx)


@op(
    "recv",
    inputs="X*",
    outputs="Out*",
    attrs={
        "epmap": strings(),
        "trainer_id": 0,
        "with_barrier": True,
        "varnames": strings(),
        "recv_varnames": strings(),
        "do_not_run": 0,
    },
    side_effects=True,
)
def recv(ctx: OpContext, X: list[Any]) -> NoReturn:
    """Get variables from the servers that keep them."""
    _needs_rpc(ctx)


@op(
    "send_barrier",
    inputs="X*",
    outputs="Out*",
    attrs={"trainer_id": 0, "endpoints": strings(ENDPOINT), "half_async": False},
    side_effects=True,
)
def send_barrier(ctx: OpContext, X: list[Any]) -> NoReturn:
    """Tell the servers that this trainer has sent everything."""
    _needs_rpc(ctx)


@op(
    "fetch_barrier",
    inputs="X*?",
    outputs="Out*",
    attrs={"trainer_id": 0, "endpoints": strings(ENDPOINT)},
    side_effects=True,
)
def fetch_barrier(ctx: OpContext, X: list[Any]) -> NoReturn:
    """Tell the servers that this trainer has got everything."""
    _needs_rpc(ctx)


@op(
    "listen_and_serv",
    inputs="X*",
    outputs="",
    attrs={
        "endpoint": ENDPOINT,
        "pserver_id": -1,
        "grad_to_block_id": strings(),
        "distributed_mode": 0,
        "dc_asgd": False,
        "optimize_blocks": AttrSpec(BLOCKS, []),
        "prefetch_var_name_to_block_id": strings(),
        "sparse_grad_to_param": strings(),
        "Fanin": 1,
        "checkpint_block_id": -1,
        "lr_decay_block_id": -1,
        "rpc_get_thread_num": 1,
        "rpc_send_thread_num": 1,
        "rpc_prefetch_thread_num": 1,
    },
    side_effects=True,
)
def listen_and_serv(ctx: OpContext, X: list[Any]) -> NoReturn:
    """Serve parameters until the trainers are done."""
    _needs_rpc(ctx)


@op(
    "fl_listen_and_serv",
    inputs="X*",
    outputs="",
    attrs={"endpoint": ENDPOINT, "sync_mode": True, "Fanin": 1, "optimize_blocks": AttrSpec(BLOCKS, [])},
    side_effects=True,
)
def fl_listen_and_serv(ctx: OpContext, X: list[Any]) -> NoReturn:
    """Serve parameters in federated learning."""
    _needs_rpc(ctx)


@op("prefetch", inputs="X*", outputs="Out*", attrs={"trainer_id": 0, "epmap": strings(ENDPOINT)}, side_effects=True)
def prefetch(ctx: OpContext, X: list[Any]) -> NoReturn:
    """Get the rows of a table that ids name."""
    _needs_rpc(ctx)


@op(
    "distributed_lookup_table",
    inputs="Ids* W",
    outputs="Outputs*",
    attrs={
        "table_names": strings(""),
        "height_sections": longs(),
        "endpoints": strings(ENDPOINT),
        "trainer_id": 0,
        "lookup_table_version": "lookup_table",
        "padding_idx": long(-1),
        "dtype": 5,
    },
)
def distributed_lookup_table(ctx: OpContext, Ids: list[Any], W: Any) -> NoReturn:
    """lookup_table in a table whose rows are spread over servers."""
    _needs_rpc(ctx)


@distributed_lookup_table.infer
def _(
    ctx: InferContext, Ids: list[TensorMeta], W: TensorMeta, *, lookup_table_version: str
) -> dict[str, list[TensorMeta]]:
    cut = -1 if lookup_table_version == "lookup_table" else None
    return {"Outputs": [TensorMeta((*ids.shape[:cut], W.shape[1]), W.dtype, ids.lod_level) for ids in Ids]}


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
)
def checkpoint_notify(ctx: OpContext) -> NoReturn:
    """Tell the servers to save their part of a table."""
    _needs_rpc(ctx)


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
def recv_save(ctx: OpContext) -> NoReturn:
    """Get the slices of a variable from the servers and write them to a file."""
    _needs_rpc(ctx)


@op("fake_init", inputs="", outputs="Out", attrs={"shape": required(LONGS)})
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
