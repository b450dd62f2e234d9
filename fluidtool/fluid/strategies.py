"""BuildStrategy and ExecutionStrategy: the settings of data parallel runs (Paddle 1.8.5 pybind.cc, measured)."""

from __future__ import annotations

from typing import Any, ClassVar

from fluidtool.errors import ArgumentTypeError
from fluidtool.proto.enums import NamedInteger


class Strategy:
    """Named settings with defaults: reading or setting an unknown one raises AttributeError.

    Classes that derive from these take further attributes, as in Python any class does.
    """

    defaults: ClassVar[dict[str, Any]] = {}
    derived: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        cls.derived = "defaults" not in vars(cls)

    def __init__(self) -> None:
        for name, value in self.defaults.items():
            object.__setattr__(self, name, set(value) if isinstance(value, set) else _copied(value))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(self._unknown(name), name=name, obj=self)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.defaults:
            if not self.derived:
                raise AttributeError(self._unknown(name), name=name, obj=self)
            object.__setattr__(self, name, value)
            return
        expected = type(self.defaults[name])
        if expected is not type(None) and not _fits(value, expected):
            raise ArgumentTypeError(
                f"{type(self).__name__}.{name} takes {expected.__name__}, found {type(value).__name__}: {value!r}"
            )
        object.__setattr__(self, name, value)

    def _unknown(self, name: str) -> str:
        return f"'{type(self).__name__}' object has no attribute '{name}'; it has {', '.join(sorted(self.defaults))}"


def _copied(value: Any) -> Any:
    return list(value) if isinstance(value, list) else value


def _fits(value: Any, expected: type) -> bool:
    if expected is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, expected)


class ReduceStrategy(NamedInteger):
    """How gradients are combined, with the same results.

    With Reduce, CPU devices share what forward operators keep (the counts of `auc`, the averages of batch_norm), as in
    Paddle 1.8.5's parallel_executor.cc: there is one count of all samples. With AllReduce each device has its own.
    """

    AllReduce = 0
    Reduce = 1


class GradientScaleStrategy(NamedInteger):
    """The initial gradient on every device: 1/devices, 1, or one that the user feeds."""

    CoeffNumDevice = 0
    One = 1
    Customized = 2


class BuildStrategy(Strategy):
    """How a program is compiled for several devices.

    `gradient_scale_strategy` and `reduce_strategy` change results; the fusions and memory settings have no effect here.
    """

    ReduceStrategy: ClassVar[type[ReduceStrategy]] = ReduceStrategy
    GradientScaleStrategy: ClassVar[type[GradientScaleStrategy]] = GradientScaleStrategy
    defaults: ClassVar[dict[str, Any]] = {
        "async_mode": False,
        "cache_runtime_context": False,
        "debug_graphviz_path": "",
        "enable_auto_fusion": False,
        "enable_backward_optimizer_op_deps": True,
        "enable_inplace": True,
        "enable_sequential_execution": False,
        "fuse_all_optimizer_ops": False,
        "fuse_all_reduce_ops": True,
        "fuse_bn_act_ops": False,
        "fuse_broadcast_ops": True,
        "fuse_elewise_add_act_ops": False,
        "fuse_relu_depthwise_conv": False,
        "gradient_scale_strategy": GradientScaleStrategy.CoeffNumDevice,
        "hierarchical_allreduce_inter_nranks": 0,
        "is_distribution": False,
        "memory_optimize": None,
        "mkldnn_enabled_op_types": set(),
        "nccl_comm_num": 1,
        "num_trainers": 1,
        "reduce_strategy": ReduceStrategy.AllReduce,
        "remove_unnecessary_lock": True,
        "sync_batch_norm": False,
        "trainer_id": 0,
        "trainers_endpoints": [],
        "use_hierarchical_allreduce": False,
    }


class ExecutionStrategy(Strategy):
    """How operators are scheduled; here every device has one thread, so these settings are kept and not used."""

    defaults: ClassVar[dict[str, Any]] = {
        "allow_op_delay": False,
        "num_iteration_per_drop_scope": 100,
        "num_iteration_per_run": 1,
        "num_threads": 0,
        "use_cuda": True,
        "use_experimental_executor": True,
        "use_thread_barrier": False,
    }
