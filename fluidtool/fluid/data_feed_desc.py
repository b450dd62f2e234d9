"""DataFeedDesc: how the slots of text files feed a program (Paddle 1.8.5 data_feed_desc.py)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fluidtool.errors import UsageError
from fluidtool.fluid.multi_slot import Slot
from fluidtool.io.data_feed import description_text, read_description
from fluidtool.proto import data_feed_pb2

__all__ = ["DataFeedDesc"]


def feed_text(name: str, batch_size: int | None, slots: Iterable[Slot], pipe_command: str) -> str:
    """The description of a data set, in which every slot is used."""
    description = data_feed_pb2.DataFeedDesc(name=name, pipe_command=pipe_command)
    if batch_size is not None:
        description.batch_size = batch_size
    for slot in slots:
        added = description.multi_slot_desc.slots.add(name=slot.name, type=slot.type, is_used=True, shape=slot.shape)
        if slot.dense:
            added.is_dense = True
    return description_text(description)


class DataFeedDesc:
    """The description in a file; batch size, dense and used slots can be changed.

    Raises UnreadableError for a file that is not one.
    """

    def __init__(self, proto_file: str) -> None:
        self.proto_desc = read_description(proto_file)

    def set_batch_size(self, batch_size: int) -> None:
        """Set the number of samples per batch."""
        self.proto_desc.batch_size = batch_size

    def set_dense_slots(self, dense_slots_name: Sequence[str]) -> None:
        """Make slots dense: all samples have the same count of numbers. Raises UsageError for an unknown slot."""
        for slot in self._slots(dense_slots_name, "set_dense_slots"):
            slot.is_dense = True

    def set_use_slots(self, use_slots_name: Sequence[str]) -> None:
        """Set the slots that are used. Raises UsageError for an unknown slot."""
        for slot in self._slots(use_slots_name, "set_use_slots"):
            slot.is_used = True

    def desc(self) -> str:
        """The description as text."""
        return description_text(self.proto_desc)

    def _slots(self, names: Sequence[str], method: str) -> list[data_feed_pb2.Slot]:
        if self.proto_desc.name != "MultiSlotDataFeed":
            raise UsageError(
                f"Only MultiSlotDataFeed needs {method}, please check your datafeed.proto: found {self.proto_desc.name!r}"
            )
        known = {slot.name: slot for slot in self.proto_desc.multi_slot_desc.slots}
        unknown = [name for name in names if name not in known]
        if unknown:
            raise UsageError(f"{method}: no slot {unknown[0]!r}; the slots are {', '.join(known)}")
        return [known[name] for name in names]
