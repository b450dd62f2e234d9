"""Running a program over a data set, and reporting progress (Paddle 1.8.5 executor.py, hogwild_worker.cc)."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from fluidtool.errors import ArgumentTypeError, FetchedLoDError, UsageError
from fluidtool.fluid.dataset import DatasetBase
from fluidtool.fluid.fetched import fetched_array
from fluidtool.ir import Program, Variable
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import LoDTensor

if TYPE_CHECKING:
    from fluidtool import runtime
    from fluidtool.runtime.executor import Observer


EXAMPLE = """
class FetchHandlerExample(FetchHandler):
    def handler(self, res_dict):
        print(res_dict["auc"])
        print("auc: {}, {}".format(res_dict["auc"], time.ctime()))

auc = Variable()
var_dict = {"auc": auc}
handler = FetchHandlerExample(var_dict=var_dict)

"""


class FetchHandler:
    """Receives variables of a running `train_from_dataset` every `period_secs` seconds: override `handler`.

    var_dict: Variables by the names that `handler` sees.
    """

    def __init__(self, var_dict: Mapping[str, Any] | None = None, period_secs: float = 60) -> None:
        if var_dict is None:
            raise UsageError("FetchHandler takes var_dict, the variables by name, found None")
        self.var_dict, self.period_secs = var_dict, period_secs

    def handler(self, res_dict: Mapping[str, Any]) -> None:
        """Called with arrays by name, None for missing values; writes the first element of each to stdout."""
        for key, value in res_dict.items():
            if isinstance(value, np.ndarray):
                sys.stdout.write(f"{key}[0]: {value[0]} ")
        sys.stdout.write("\n")

    @staticmethod
    def help() -> None:
        """Print an example."""
        sys.stdout.write(EXAMPLE)


def run_from_dataset(
    executor: runtime.Executor,
    program: Program,
    dataset: Any,
    scope: Scope,
    *,
    thread: int = 0,
    fetch_list: Sequence[Any] | None = None,
    fetch_info: Sequence[str] | None = None,
    print_period: int = 100,
    fetch_handler: FetchHandler | None = None,
    observer: Observer | None = None,
) -> None:
    """Run all operators of block 0 for every mini-batch; see `Executor.train_from_dataset`."""
    if dataset is None:
        raise UsageError("dataset is need and should be initialized: fluid.DatasetFactory().create_dataset()")
    if not isinstance(dataset, DatasetBase):
        raise ArgumentTypeError(f"dataset must be an InMemoryDataset or a QueueDataset, found {type(dataset).__name__}")
    if not isinstance(program, Program):
        raise ArgumentTypeError(f"a data set is run through a Program, not through a {type(program).__name__}")
    fetches, infos = list(fetch_list or []), list(fetch_info or [])
    if len(fetches) != len(infos):
        raise UsageError(
            f"fetch_list has {len(fetches)} variables, but fetch_info has {len(infos)} texts; pass one text per variable"
        )
    if print_period < 1:
        raise UsageError(f"print_period must be at least 1, found {print_period}")
    names = [item if isinstance(item, str) else str(item.name) for item in fetches]
    watch = _Watch(fetch_handler, program)
    counted = 0
    for reader, feed in dataset.batches(dataset.readers(thread)):
        counted += reader == 0
        shown = names if reader == 0 and counted % print_period == 0 else []
        watched = watch.due() if reader == 0 else []
        wanted = list(dict.fromkeys([*shown, *watched]))
        found = executor.run(program, feed, wanted, scope, optional=watched, observer=observer)
        values = dict(zip(wanted, found, strict=True))
        for name, info in zip(shown, infos, strict=False):
            sys.stdout.write(f"{info}\t{name}\t{values[name]}\t\n")
        if watched:
            watch.tell(values)


class _Watch:
    """When a FetchHandler is called, and with what."""

    def __init__(self, handler: FetchHandler | None, program: Program) -> None:
        self.handler, self.last = handler, monotonic()
        self.names: dict[str, str] = {}
        for key, var in {} if handler is None else handler.var_dict.items():
            if isinstance(var, Variable):
                self.names[key] = var.name
            else:
                logging.getLogger(__name__).warning("the value of %s is not a Variable", key)
                self.names[key] = ""
        known = program.global_block().vars
        self.fetches = [name for name in self.names.values() if name in known]

    def due(self) -> list[str]:
        """The names to fetch in this step: none before the period is over."""
        if self.handler is None or monotonic() - self.last < self.handler.period_secs:
            return []
        self.last = monotonic()
        return self.fetches

    def tell(self, values: Mapping[str, Any]) -> None:
        """Call the handler. Raises FetchedLoDError for a value with LoD."""
        assert self.handler is not None
        self.handler.handler({key: self._array(key, values.get(name)) for key, name in self.names.items()})

    def _array(self, key: str, value: Any) -> Any:
        if not isinstance(value, LoDTensor) or not value.is_initialized():
            logging.getLogger(__name__).warning("%s value currently not available", key)
            return None
        if value.offsets:
            raise FetchedLoDError(
                f"{key}: Some of your fetched tensors hold LoD information. They can not be completely cast to Python "
                "ndarray, please choose another targets"
            )
        return fetched_array(value.numpy())
