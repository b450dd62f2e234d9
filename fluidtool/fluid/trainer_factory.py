"""`fluid.trainer_factory`: a trainer and its worker from the settings of a fleet (Paddle 1.8.5 trainer_factory.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from fluidtool.errors import UsageError
from fluidtool.fluid.dataset_runs import FetchHandler
from fluidtool.fluid.device_worker import DeviceWorker, DownpourSGD, DownpourSGDOPT, Hogwild, Section
from fluidtool.fluid.trainer_desc import DistMultiTrainer, MultiTrainer, PipelineTrainer, TrainerDesc

__all__ = ["FetchHandler", "TrainerFactory"]

T = TypeVar("T")
TRAINERS: dict[str, type[TrainerDesc]] = {
    kind.__name__: kind for kind in (MultiTrainer, DistMultiTrainer, PipelineTrainer)
}
WORKERS: dict[str, type[DeviceWorker]] = {
    kind.__name__: kind for kind in (Hogwild, DownpourSGD, Section, DownpourSGDOPT)
}
SETTINGS = (
    "dump_slot",
    "mpi_rank",
    "mpi_size",
    "dump_fields",
    "dump_fields_path",
    "dump_file_num",
    "dump_converter",
    "dump_param",
)
OF_FLEETS = {
    "use_cvm": "use_cvm",
    "no_cvm": "no_cvm",
    "scale_datanorm": "scale_datanorm",
    "adjust_ins_weight": "adjust_ins_weight",
    "copy_table": "copy_table_config",
    "check_nan_var_names": "check_nan_var_names",
    "loss_names": "loss_names",
}


class TrainerFactory:
    """Makes trainers."""

    def _create_trainer(self, opt_info: Mapping[str, Any] | None = None) -> TrainerDesc:
        """The trainer that `opt_info` names with its settings; MultiTrainer with Hogwild without it."""
        settings = opt_info or {"trainer": "MultiTrainer", "device_worker": "Hogwild"}
        trainer = _named(TRAINERS, settings["trainer"])()
        worker = _named(WORKERS, settings["device_worker"])()
        wanted = {name: name for name in SETTINGS}
        if "fleet_desc" in settings:
            worker._set_fleet_desc(settings["fleet_desc"])
            trainer._set_fleet_desc(settings["fleet_desc"])
            wanted |= OF_FLEETS
        for name, method in wanted.items():
            if settings.get(name) is not None:
                getattr(trainer, f"_set_{method}")(settings[name])
        trainer._set_device_worker(worker)
        return trainer


def _named(kinds: Mapping[str, type[T]], name: str) -> type[T]:
    if name not in kinds:
        raise UsageError(f"there is no {name!r}; expected one of {', '.join(kinds)}")
    return kinds[name]
