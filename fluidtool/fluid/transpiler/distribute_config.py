"""DistributeTranspilerConfig and ServerRuntimeConfig (Paddle 1.8.5 distribute_transpiler.py)."""

from __future__ import annotations

import os
from typing import Any

from fluidtool.distribute.dispatchers import PSDispatcher
from fluidtool.distribute.settings import Threads
from fluidtool.errors import ArgumentTypeError, NotOfferedError, UsageError


class DistributeTranspilerConfig:
    """How to transpile; set attributes after construction. An unknown attribute raises NotOfferedError.

    slice_var_up: split parameters into shards, at most one per server. split_method: RoundRobin, HashName or a class
    derived from PSDispatcher. min_block_size: elements of the smallest shard. mode: "pserver", "nccl2", "collective".
    collective_mode: "grad_allreduce", "local_sgd", "single_process_multi_thread". wait_port: wait until the others listen.
    """

    slice_var_up = True
    split_method: type[PSDispatcher] | None = None
    min_block_size = 8192
    enable_dc_asgd = False
    mode = "pserver"
    print_log = False
    wait_port = True
    half_async = False
    completely_not_async = False
    geo_sgd_mode = False
    geo_sgd_need_push_nums = 100
    nccl_comm_num = 1
    use_hierarchical_allreduce = False
    hierarchical_allreduce_inter_nranks = 0
    hierarchical_allreduce_exter_nranks = 0
    collective_mode: str | None = None
    _runtime_split_send_recv = False
    _sync_mode = True

    def __setattr__(self, name: str, value: Any) -> None:
        if not hasattr(type(self), name):
            known = ", ".join(sorted(key for key in dir(type(self)) if not key.startswith("_")))
            raise NotOfferedError(f"DistributeTranspilerConfig has no attribute {name!r}; it has {known}")
        super().__setattr__(name, value)

    @property
    def runtime_split_send_recv(self) -> bool:
        """Gradients are split by `send`, parameters joined by `recv`; asynchronous mode only."""
        return self._runtime_split_send_recv

    @runtime_split_send_recv.setter
    def runtime_split_send_recv(self, value: bool) -> None:
        if value is None:
            raise UsageError("runtime_split_send_recv can't be None")
        if value and self._sync_mode:
            raise UsageError(
                "if you want to set runtime_split_send_recv to be true, make ensure config.sync_mode is false at first"
            )
        self._runtime_split_send_recv = value

    @property
    def sync_mode(self) -> bool:
        """The default of `transpile`'s argument sync_mode."""
        return self._sync_mode

    @sync_mode.setter
    def sync_mode(self, value: bool) -> None:
        if value is None:
            raise UsageError("sync_mode can't be None")
        if value and self._runtime_split_send_recv:
            raise UsageError(
                "if you want to set sync_mode to be true, make ensure config.runtime_split_send_recv is false at first"
            )
        self._sync_mode = value


class ServerRuntimeConfig:
    """Threads of a server, from FLAGS_rpc_send_thread_num, FLAGS_rpc_get_thread_num and FLAGS_rpc_prefetch_thread_num."""

    def __init__(self) -> None:
        self._rpc_send_thread_num = _flag("FLAGS_rpc_send_thread_num")
        self._rpc_get_thread_num = _flag("FLAGS_rpc_get_thread_num")
        self._rpc_prefetch_thread_num = _flag("FLAGS_rpc_prefetch_thread_num")

    def threads(self) -> Threads:
        """The same as plain data."""
        return Threads(self._rpc_send_thread_num, self._rpc_get_thread_num, self._rpc_prefetch_thread_num)


def _flag(name: str) -> int:
    text = os.environ.get(name, "12")
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"the environment variable {name} must be a number of threads of at least 1, found {text!r}")
    return int(text)


def check_config(config: object) -> DistributeTranspilerConfig:
    """The config; raises ArgumentTypeError for anything else."""
    if not isinstance(config, DistributeTranspilerConfig):
        raise ArgumentTypeError(f"config takes a DistributeTranspilerConfig, found {type(config).__name__}")
    return config
