"""Several processes that train one program, each on its own batches: what they share after every step."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from fluidtool.distribute.collective.buckets import BUCKET_BYTES, Sums, gather_rows
from fluidtool.distribute.collective.communicator import Communicator
from fluidtool.distribute.collective.compression import COMPRESSION, compression_of
from fluidtool.distribute.collective.order import check_order
from fluidtool.errors import CollectiveError
from fluidtool.ir import Program
from fluidtool.records import dataclass
from fluidtool.runtime.phases import Phase
from fluidtool.runtime.scope import Scope
from fluidtool.shapes import shape_text
from fluidtool.tensor import LoDTensor, SelectedRows

IDENTIFIER = "NCCLID"


@dataclass(frozen=True, slots=True)
class TrainerSettings:
    """number: how many processes train; trainer_id: which of them this is. bucket_bytes: gradients sent together
    (0: each separately).
    """

    number: int
    trainer_id: int
    bucket_bytes: int = BUCKET_BYTES


class Trainers:
    """One trainer's view of all. `xp`: the array library of the device that parameters are on."""

    def __init__(self, communicator: Communicator, settings: TrainerSettings, device: Any) -> None:
        self._communicator, self._settings, self._device = communicator, settings, device
        self._sums = Sums(communicator, settings.bucket_bytes, compression_of(os.environ), xp=device.xp)
        self._agreed: int | None = None

    def start_alike(self, program: Program, scope: Scope) -> None:
        """Give every trainer the persistable variables of trainer 0 (Paddle 1.8.5 BCastParamsToDevices).

        Raises CollectiveError if their names differ.
        """
        held = {}
        for name, var in sorted(program.global_block().vars.items()):
            holder = scope.find_var(name) if var.persistable else None
            if holder is not None and isinstance(holder.value, LoDTensor) and holder.value.is_initialized():
                held[name] = holder.value
        check_order(self._communicator, [_line("variable", name, value.array) for name, value in held.items()])
        for value in held.values():
            if value.array.dtype.kind != "O":
                value.array = self._communicator.broadcast(self._device.array(value.array), 0)

    def agree(self, program: Program, phases: Sequence[Phase]) -> None:
        """Before the first step: raise CollectiveError unless all trainers sum the same gradients in the same order."""
        if self._agreed == program.mutation:
            return
        block = program.global_block()
        lines = []
        for name in (name for phase in phases for name in phase.gradients):
            var = block.vars.get(name)
            lines.append(f"gradient {name} {shape_text(var.shape) if var is not None else ''}")
        lines.append(f"buckets of {self._settings.bucket_bytes} bytes")
        check_order(self._communicator, [*lines, f"{COMPRESSION}={os.environ.get(COMPRESSION, 'none')}"])
        self._agreed = program.mutation

    def sum_gradients(self, names: Sequence[str], values: Sequence[Any]) -> list[Any]:
        """Each gradient summed over all trainers: tensors in buckets, the rows of SelectedRows concatenated."""
        for name, value in zip(names, values, strict=True):
            if value is None:
                raise CollectiveError(
                    f"trainer {self._settings.trainer_id} has no gradient {name} in this step, which the others wait for; every "
                    "trainer must compute every gradient"
                )
        xp, results = self._device.xp, list(values)
        dense = [index for index, value in enumerate(values) if isinstance(value, LoDTensor)]
        arrays = [self._device.array(values[index].array) for index in dense]
        summed = self._sums.of(arrays)
        for index, array in zip(dense, summed, strict=True):
            results[index] = LoDTensor(array, values[index].offsets)
        for index, value in enumerate(values):
            if isinstance(value, SelectedRows):
                results[index] = gather_rows(self._communicator, value, xp)
        return results

    def abort(self, reason: str) -> None:
        """Make pending operations of the other trainers fail."""
        self._communicator.abort(reason)


def _line(kind: str, name: str, array: Any) -> str:
    return f"{kind} {name} {shape_text(array.shape)} {array.dtype}"
