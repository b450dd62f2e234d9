"""Operators that are a parameter server."""

from __future__ import annotations

from typing import Any, NoReturn

from fluidtool.errors import UnsupportedOperatorError
from fluidtool.ops.context import OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import BLOCKS, AttrSpec, strings
from fluidtool.ops.traits import Traits

ENDPOINT = "127.0.0.1:6164"


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
    raw=True,
    side_effects=True,
    traits=Traits(transpiled=True, memory="named"),
)
def listen_and_serv(ctx: OpContext) -> None:
    """Serve parameters until the last trainer completes (Paddle 1.8.5 listen_and_serv_op.cc).

    Raises RemoteError if it cannot listen at `endpoint` or a trainer is presumed dead, PolicyError if the run
    does not allow the endpoint.
    """
    ctx.runtime.serve(ctx)


@op(
    "fl_listen_and_serv",
    inputs="X*",
    outputs="",
    attrs={"endpoint": ENDPOINT, "sync_mode": True, "Fanin": 1, "optimize_blocks": AttrSpec(BLOCKS, [])},
    side_effects=True,
    traits=Traits(memory="named"),
)
def fl_listen_and_serv(ctx: OpContext, X: list[Any]) -> NoReturn:
    """Serve parameters in federated learning; fluidtool does not make such programs."""
    raise UnsupportedOperatorError(
        "operator fl_listen_and_serv serves federated learning, which is not supported; use listen_and_serv, which "
        "DistributeTranspiler creates"
    )
