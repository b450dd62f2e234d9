"""`fluid.trainer_desc`: the settings of a trainer that reads a data set, as a message (Paddle 1.8.5 trainer_desc.py).

`train_from_dataset` takes its arguments directly; the descriptions are for scripts that look at or print them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from multiprocessing import cpu_count
from typing import Any

from google.protobuf import text_format

from fluidtool.errors import UsageError
from fluidtool.fluid.device_worker import DeviceWorker
from fluidtool.proto import trainer_desc_pb2 as messages

__all__ = ["DistMultiTrainer", "MultiTrainer", "PipelineTrainer", "TrainerDesc"]


class TrainerDesc:
    """Settings of a trainer in `proto_desc`; each method sets one."""

    def __init__(self) -> None:
        self.proto_desc = messages.TrainerDesc(thread_num=cpu_count())
        self._fleet_desc: Any = None
        self._device_worker: DeviceWorker | None = None
        self._program: Any = None
        self._infer = False

    def _set_fetch_var_and_info(self, fetch_vars: Sequence[Any], fetch_info: Iterable[str], print_period: int) -> None:
        config = self.proto_desc.fetch_config
        for var, info in zip(fetch_vars, fetch_info, strict=False):
            config.fetch_var_names.append(var.name)
            config.fetch_var_str_format.append(info)
        config.print_period = print_period

    def _set_debug(self, debug: bool) -> None:
        self.proto_desc.debug = debug

    def _set_thread(self, thread_num: int) -> None:
        self.proto_desc.thread_num = thread_num

    def _set_device_worker(self, device_worker: DeviceWorker) -> None:
        self._device_worker = device_worker

    def _set_infer(self, infer: bool) -> None:
        self._infer = infer

    def _set_fleet_desc(self, fleet_desc: Any) -> None:
        self._fleet_desc = fleet_desc

    def _gen_trainer_desc(self) -> None:
        """Nothing: each kind of trainer has its own."""

    def _set_program(self, program: Any) -> None:
        self._program = program

    def _set_use_cvm(self, use_cvm: bool = False) -> None:
        self.proto_desc.use_cvm = use_cvm

    def _set_no_cvm(self, no_cvm: bool = False) -> None:
        self.proto_desc.no_cvm = no_cvm

    def _set_scale_datanorm(self, scale_datanorm: float = -1) -> None:
        self.proto_desc.scale_datanorm = scale_datanorm

    def _set_dump_slot(self, dump_slot: bool) -> None:
        self.proto_desc.dump_slot = dump_slot

    def _set_mpi_rank(self, mpi_rank: int) -> None:
        self.proto_desc.mpi_rank = mpi_rank

    def _set_mpi_size(self, mpi_size: int) -> None:
        self.proto_desc.mpi_size = mpi_size

    def _set_dump_fields(self, dump_fields: Iterable[str]) -> None:
        self.proto_desc.dump_fields.extend(dump_fields)

    def _set_dump_fields_path(self, path: str) -> None:
        self.proto_desc.dump_fields_path = path

    def _set_dump_file_num(self, dump_file_num: int) -> None:
        self.proto_desc.dump_file_num = dump_file_num

    def _set_dump_converter(self, converter: str) -> None:
        self.proto_desc.dump_converter = converter

    def _set_dump_param(self, dump_param: Iterable[str]) -> None:
        self.proto_desc.dump_param.extend(dump_param)

    def _set_thread_barrier(self, thread_barrier: bool) -> None:
        self.proto_desc.thread_barrier = thread_barrier

    def _set_check_nan_var_names(self, check_nan_var_names: Iterable[str]) -> None:
        self.proto_desc.check_nan_var_names.extend(check_nan_var_names)

    def _set_loss_names(self, loss_names: Iterable[str]) -> None:
        self.proto_desc.loss_names.extend(loss_names)

    def _set_adjust_ins_weight(self, config_dict: Mapping[str, Any]) -> None:
        config = self.proto_desc.adjust_ins_weight_config
        config.need_adjust = config_dict.get("need_adjust", False)
        config.nid_slot = config_dict.get("nid_slot", "")
        config.nid_adjw_threshold = config_dict.get("nid_adjw_threshold", 0.0)
        config.nid_adjw_ratio = config_dict.get("nid_adjw_ratio", 0.0)
        config.ins_weight_slot = config_dict.get("ins_weight_slot", "")

    def _set_copy_table_config(self, config_dict: Mapping[str, Any]) -> None:
        """Which tables are copied to which; raises UsageError where there is not one for the other."""
        config = self.proto_desc.copy_table_config
        config.need_copy = config_dict.get("need_copy", False)
        config.batch_num = config_dict.get("batch_num", 100)
        for kind in ("sparse_tables", "dense_tables", "var_list"):
            sources, targets = (_listed(config_dict.get(f"{side}_{kind}", [])) for side in ("src", "dest"))
            if len(sources) != len(targets):
                raise UsageError(f"len(src_{kind}) != len(dest_{kind}), {len(sources)} vs {len(targets)}")
            getattr(config, f"src_{kind}").extend(sources)
            getattr(config, f"dest_{kind}").extend(targets)
        for key, values in config_dict.get("dependency_map", {}).items():
            if len(_listed(values)) != 1:
                raise UsageError(f"dependency len {len(_listed(values))} != 1")
            config.table_denpendency_map.add(key=key, values=_listed(values))
        config.dense_pull_after_copy = config_dict.get("dense_pull_after_copy", True)
        config.enable_dependency = config_dict.get("enable_dependency", False)
        config.sparse_copy_by_feasign = config_dict.get("sparse_copy_by_feasign", True)

    def _desc(self) -> bytes:
        """The description as bytes."""
        return self.proto_desc.SerializeToString()

    def __str__(self) -> str:
        return text_format.MessageToString(self.proto_desc)

    def _describe(self, name: str, *, needs_program: bool) -> None:
        """Write the name of the trainer and what its worker does."""
        self.proto_desc.class_name = name
        if needs_program and self._program is None:
            raise UsageError(f"{name} has no program: _set_program comes first")
        if self._device_worker is None:
            raise UsageError(f"{name} has no device worker: _set_device_worker comes first")
        self._device_worker._set_infer(self._infer)
        self._device_worker._set_program(self._program)
        self._device_worker._gen_worker_desc(self.proto_desc)


def _listed(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [given]


class MultiTrainer(TrainerDesc):
    """Threads of one process."""

    def _gen_trainer_desc(self) -> None:
        self._describe("MultiTrainer", needs_program=False)


class DistMultiTrainer(TrainerDesc):
    """Threads whose parameters are on servers."""

    def _gen_trainer_desc(self) -> None:
        self._describe("DistMultiTrainer", needs_program=True)


class PipelineTrainer(TrainerDesc):
    """Sections of a program, one after the other."""

    def _gen_trainer_desc(self) -> None:
        self._describe("PipelineTrainer", needs_program=True)
