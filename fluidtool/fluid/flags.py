"""`set_flags` and `get_flags`: Paddle's public FLAGS_* settings (Paddle 1.8.5 framework.py, measured defaults).

FLAGS_check_nan_inf works: runs stop at the first operator that produces NaN or infinity from finite numbers.
FLAGS_fuse_parameter_memory_size is how many MiB of gradients trainers send at once. The others control Paddle's
memory and threads; they are kept and not used.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar

from fluidtool.distribute.collective import buckets
from fluidtool.errors import ArgumentTypeError, UsageError

CHECK_FINITE = "FLAGS_check_nan_inf"
BUCKET_SIZE = buckets.BUCKET_SIZE

FIXED = frozenset(
    {"FLAGS_free_idle_chunk", "FLAGS_free_when_no_cache_hit", "FLAGS_use_mkldnn"}
)  # read in Paddle, not set


class _Flags:
    values: ClassVar[dict[str, Any]] = {
        "FLAGS_allocator_strategy": "auto_growth",
        "FLAGS_benchmark": False,
        CHECK_FINITE: False,
        "FLAGS_cpu_deterministic": False,
        "FLAGS_cudnn_batchnorm_spatial_persistent": False,
        "FLAGS_cudnn_deterministic": False,
        "FLAGS_cudnn_exhaustive_search": False,
        "FLAGS_eager_delete_tensor_gb": 0.0,
        "FLAGS_enable_parallel_graph": False,
        "FLAGS_enable_rpc_profiler": False,
        "FLAGS_fraction_of_cpu_memory_to_use": 1.0,
        "FLAGS_fraction_of_gpu_memory_to_use": 0.92,
        "FLAGS_free_idle_chunk": False,
        "FLAGS_free_when_no_cache_hit": False,
        "FLAGS_fuse_parameter_groups_size": 1,
        BUCKET_SIZE: -1.0,
        "FLAGS_init_allocated_mem": False,
        "FLAGS_initial_cpu_memory_in_mb": 500,
        "FLAGS_inner_op_parallelism": 0,
        "FLAGS_memory_fraction_of_eager_deletion": 1.0,
        "FLAGS_multiple_of_cupti_buffer_size": 1,
        "FLAGS_paddle_num_threads": 1,
        "FLAGS_pe_profile_fname": "",
        "FLAGS_print_sub_graph_dir": "",
        "FLAGS_reader_queue_speed_test_mode": False,
        "FLAGS_sync_nccl_allreduce": True,
        "FLAGS_tracer_profile_fname": "xxgperf",
        "FLAGS_use_mkldnn": False,
        "FLAGS_use_pinned_memory": True,
        "FLAGS_use_system_allocator": False,
    }


def set_flags(flags: Mapping[str, Any]) -> None:
    """Change settings; raises ArgumentTypeError unless given a dict, UsageError for an unknown one."""
    if not isinstance(flags, Mapping):
        raise ArgumentTypeError(f"flags in set_flags should be a dict, found {type(flags).__name__}")
    for name in flags:
        _known(name, "set")
    for name, value in flags.items():
        _Flags.values[name] = type(_Flags.values[name])(value)


def get_flags(flags: Any) -> dict[str, Any]:
    """The settings of these names (a list, or one); raises ArgumentTypeError, UsageError."""
    if not isinstance(flags, (str, list, tuple)):
        raise ArgumentTypeError(f"Flags in get_flags should be a list, tuple or string, found {type(flags).__name__}")
    names = [flags] if isinstance(flags, str) else flags
    return {_known(name, "get"): _Flags.values[name] for name in names}


def checks_finite() -> bool:
    """Whether runs check for NaN and infinity: the flag, or the environment variable of its name."""
    return bool(_Flags.values[CHECK_FINITE]) or os.environ.get(CHECK_FINITE, "").lower() in ("1", "true")


def bucket_bytes(is_fused: bool) -> int:
    """How many bytes of gradients trainers send at once; 0: each gradient separately."""
    return buckets.bucket_bytes(os.environ, _Flags.values[BUCKET_SIZE]) if is_fused else 0


class Globals:
    """`core.globals()`: every setting by its name, like a dict; UsageError for an unknown one, or one that is fixed."""

    def __getitem__(self, name: str) -> Any:
        if name not in _Flags.values:
            raise UsageError(f"Cannot find global variable {name}")
        return _Flags.values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name in FIXED:
            raise UsageError(f"Global variable {name} is not writable")
        set_flags({name: value})

    def __contains__(self, name: str) -> bool:
        return name in _Flags.values

    def keys(self) -> set[str]:
        """All names."""
        return set(_Flags.values)

    def get(self, name: str, default: Any = None) -> Any:
        """The setting, or the default."""
        return _Flags.values.get(name, default)

    def is_public(self, name: str) -> bool:
        """Whether `set_flags` knows it."""
        return name in _Flags.values and name not in FIXED


def _set_eager_deletion_mode(threshold: float, fraction: float, fast: bool) -> None:
    """The settings of Paddle's garbage collection, which are kept and not used: values go after their last use."""
    set_flags({"FLAGS_eager_delete_tensor_gb": threshold, "FLAGS_memory_fraction_of_eager_deletion": fraction})


def _set_fuse_parameter_group_size(count: int) -> None:
    set_flags({"FLAGS_fuse_parameter_groups_size": count})


def _set_fuse_parameter_memory_size(mebibytes: float) -> None:
    set_flags({BUCKET_SIZE: mebibytes})


def _known(name: Any, verb: str) -> str:
    if name not in _Flags.values or name in FIXED:
        raise UsageError(f"Flag {name} cannot {verb} its value through this function.")
    return str(name)
