"""`fluid.device_worker`: what each thread of a trainer does, as a description (Paddle 1.8.5 device_worker.py).

`train_from_dataset` needs none: it runs the program itself. `fluid.trainer_desc` writes the descriptions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fluidtool.errors import UsageError
from fluidtool.proto import trainer_desc_pb2 as messages
from fluidtool.tensor import CPUPlace, CUDAPinnedPlace, CUDAPlace

__all__ = ["DeviceWorker", "DeviceWorkerFactory", "DownpourSGD", "DownpourSGDOPT", "Hogwild", "Section"]

Place = messages.SectionConfig
PLACES: tuple[tuple[type, Any], ...] = (
    (CPUPlace, Place.CPUPlace),
    (CUDAPlace, Place.CUDAPlace),
    (CUDAPinnedPlace, Place.CUDAPinnedPlace),
)


class DeviceWorker:
    """The settings that all workers have: the program, whether it only infers, the description of a fleet."""

    def __init__(self) -> None:
        self._program: Any = None
        self._infer: bool | None = None
        self._fleet_desc: Any = None

    def _set_infer(self, infer: bool = False) -> None:
        self._infer = infer

    def _set_fleet_desc(self, fleet_desc: Any) -> None:
        self._fleet_desc = fleet_desc

    def _set_program(self, program: Any) -> None:
        self._program = program

    def _gen_worker_desc(self, trainer_desc: messages.TrainerDesc) -> None:
        """Write the worker's part of the description; raises NotImplementedError: each kind has its own."""
        raise NotImplementedError(
            "DeviceWorker does not implement gen_worker_desc, please use Hogwild or DownpourSGD, etc."
        )

    def _settings(self) -> Mapping[str, Any]:
        """What a fleet has put into the program, {} without one; raises UsageError where no program was set."""
        if self._program is None:
            raise UsageError("program of current device worker is not configured: _set_program comes first")
        settings: Mapping[str, Any] = self._program._fleet_opt or {}
        return settings

    def _tables(self, trainer: messages.TrainerDesc, settings: Mapping[str, Any], *, counts: bool) -> Any:
        """Write which tables of a server the program pulls and pushes; the worker that `settings` name for it.

        counts: columns of shows and clicks are not part of an embedding, unless the settings keep them (`use_cvm`, `no_cvm`).
        """
        program_id = str(id(self._program))
        dense = _add_program(trainer.downpour_param, program_id, settings["program_configs"])
        workers = settings.get("program_id_to_worker")
        if workers is None:
            raise UsageError("opt_info must have program_id_to_worker")
        if workers.get(program_id) is None:
            raise UsageError(f"{program_id} not found in program_id_to_worker")
        worker = workers[program_id].get_desc()
        trainer.pull_dense_param.device_num = trainer.thread_num
        for table in worker.dense_table:
            if table.table_id in dense:
                names = list(table.dense_variable_name)
                trainer.pull_dense_param.dense_table.add(table_id=table.table_id, dense_value_name=names)
                gradients = list(table.dense_gradient_variable_name)
                trainer.downpour_param.dense_table.add(
                    table_id=table.table_id, dense_value_name=names, dense_grad_name=gradients
                )
        kept = bool(settings.get("use_cvm")) or settings.get("no_cvm") is True
        of_server = (
            self._fleet_desc.server_param.downpour_server_param.downpour_table_param if worker.sparse_table else []
        )
        for table, parameters in zip(worker.sparse_table, of_server, strict=False):
            width = parameters.accessor.fea_dim
            trainer.downpour_param.sparse_table.add(
                table_id=table.table_id,
                sparse_key_name=list(table.slot_key),
                sparse_value_name=list(table.slot_value),
                sparse_grad_name=list(table.slot_gradient),
                fea_dim=width,
                emb_dim=(width if kept else width - 2) if counts else -1,
                label_var_name="click" if counts else "",
            )
        trainer.downpour_param.stat_var_names.extend(settings["stat_var_names"] or [])
        return worker


def _add_program(downpour: Any, program_id: str, configs: Mapping[str, Any]) -> set[int]:
    """Write which tables a program pushes and pulls; the dense ones."""
    if program_id not in configs:
        return set()
    given = configs[program_id]
    names = ("push_sparse", "push_dense", "pull_sparse", "pull_dense")
    downpour.program_config.add(program_id=program_id, **{f"{name}_table_id": list(given[name]) for name in names})
    return {*given["push_dense"], *given["pull_dense"]}


class Hogwild(DeviceWorker):
    """Threads that update shared parameters without waiting for one another."""

    def _gen_worker_desc(self, trainer_desc: messages.TrainerDesc) -> None:
        trainer_desc.device_worker_name = "HogwildWorker"
        if self._infer:
            trainer_desc.hogwild_param.skip_ops.append("feed")
        settings = self._settings()
        if "fleet_desc" not in settings:
            return
        worker = self._tables(trainer_desc, settings, counts=False)
        skipped = ["push_sparse", "push_sparse_v2", "push_dense"] if self._infer else []
        trainer_desc.hogwild_param.skip_ops.extend([*worker.skip_op, *skipped])
        trainer_desc.hogwild_param.stat_var_names.extend(settings["stat_var_names"] or [])


class DownpourSGD(DeviceWorker):
    """Threads whose parameters are on servers."""

    name = "DownpourWorker"

    def _gen_worker_desc(self, trainer_desc: messages.TrainerDesc) -> None:
        trainer_desc.device_worker_name = self.name
        worker = self._tables(trainer_desc, self._settings(), counts=True)
        downpour = trainer_desc.downpour_param
        downpour.skip_ops.extend(worker.skip_op)
        if self._infer:
            downpour.push_dense = downpour.push_sparse = False


class DownpourSGDOPT(DownpourSGD):
    """The same; the last table may be local or asynchronous."""

    name = "DownpourWorkerOpt"

    def _gen_worker_desc(self, trainer_desc: messages.TrainerDesc) -> None:
        super()._gen_worker_desc(trainer_desc)
        settings, tables = self._settings(), trainer_desc.downpour_param.sparse_table
        if tables and tables[-1].table_id in settings.get("local_tables", ()):
            tables[-1].is_local = True
        if tables and tables[-1].table_id in settings.get("async_tables", ()):
            tables[-1].is_async = True


class Section(DeviceWorker):
    """Threads that run a section of a pipeline each (`_pipeline_opt` of the program)."""

    def _gen_worker_desc(self, trainer_desc: messages.TrainerDesc) -> None:
        trainer_desc.device_worker_name = "SectionWorker"
        settings, section = self._program._pipeline_opt, trainer_desc.section_param
        section.queue_size, section.sync_steps = settings["queue_size"], settings["sync_steps"]
        section.start_cpu_core_id = settings["start_cpu_core_id"]
        section.param_need_sync.extend(settings["param_need_sync"])
        columns = (settings["section_program_list"], settings["place_list"], settings["concurrency_list"])
        for given, place, concurrency in zip(*columns, strict=False):
            config = section.section_config.add(
                place=_place(place),
                concurrency=concurrency,
                section_in_var_names=list(given["input_set"]),
                section_out_var_names=list(given["output_set"]),
            )
            config.program_desc.ParseFromString(given["program"].serialize_to_string())


def _place(place: Any) -> Any:
    for kind, value in PLACES:
        if isinstance(place, kind):
            return value
    raise UsageError(f"SectionWorker only supports CPUPlace, CUDAPlace and CUDAPinnedPlace now, found {place!r}")


class DeviceWorkerFactory:
    """Makes a worker of the kind that is named."""

    def _create_device_worker(self, worker_type: str) -> DeviceWorker:
        name = worker_type.capitalize()
        kinds: dict[str, type[DeviceWorker]] = {kind.__name__: kind for kind in (Hogwild, Section)}
        if name not in kinds:
            raise UsageError(f"there is no device worker {worker_type!r}; expected one of {', '.join(kinds)}")
        return kinds[name]()
