"""Readers: batches that a Python thread puts into a queue and that the program takes out (`py_reader`, DataLoader).

The queue is a Python object held by a variable of the scope: a TensorQueue, or anything with its `pop`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from threading import Condition
from typing import Protocol

from fluidtool.errors import OperatorError
from fluidtool.ops.context import OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INTS, required
from fluidtool.ops.traits import Traits
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text
from fluidtool.tensor import LoDTensor, numpy_dtype


class EndOfDataError(OperatorError):
    """A reader's queue is closed and empty: the end of an epoch."""

    code = "FT602"


class Queue(Protocol):
    """A source of batches for a reader."""

    def pop(self) -> list[LoDTensor] | None: ...


class TensorQueue:
    """A bounded queue of batches between threads; one batch is a list of LoDTensors."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._batches: deque[list[LoDTensor]] = deque()
        self._closed = False
        self._changed = Condition()

    @property
    def closed(self) -> bool:
        """Whether no more batches are taken."""
        return self._closed

    def push(self, batch: Iterable[LoDTensor]) -> bool:
        """Append a batch, waiting while the queue is full; False if the queue is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._batches) < self.capacity)
            if not self._closed:
                self._batches.append(list(batch))
                self._changed.notify_all()
            return not self._closed

    def pop(self) -> list[LoDTensor] | None:
        """The oldest batch, waiting while the queue is empty; None if it is closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._batches)
            batch = self._batches.popleft() if self._batches else None
            self._changed.notify_all()
            return batch

    def size(self) -> int:
        """The number of batches waiting."""
        with self._changed:
            return len(self._batches)

    def close(self) -> None:
        """Accept no more batches; waiting ones can still be popped."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def reopen(self) -> None:
        """Drop waiting batches and accept new ones."""
        with self._changed:
            self._batches.clear()
            self._closed = False


@dataclass(frozen=True, slots=True)
class Slot:
    """A reader's description of one tensor of its batches: -1 in `shape` is any size."""

    shape: tuple[int, ...]
    dtype: int
    lod_level: int
    checked: bool

    def fault(self, tensor: LoDTensor) -> str | None:
        """Why the tensor does not fit, or None."""
        if not self.checked:
            return None
        found, dtype = tuple(tensor.shape()), numpy_dtype(self.dtype)
        fits = len(found) == len(self.shape) and all(
            want < 0 or want == size for want, size in zip(self.shape, found, strict=True)
        )
        if fits and tensor.array.dtype == dtype:
            return None
        return (
            f"expected shape {shape_text(self.shape)} and {dtype}, found {shape_text(found)} and {tensor.array.dtype}"
        )


@dataclass(frozen=True, slots=True)
class Reader:
    """A queue and the description of its batches."""

    queue: Queue
    slots: tuple[Slot, ...]


@op(
    "create_py_reader",
    inputs="blocking_queue",
    outputs="Out*",
    attrs={
        "shape_concat": required(INTS),
        "ranks": required(INTS),
        "lod_levels": required(INTS),
        "dtypes": required(INTS),
        "need_check_feed": required(INTS),
        "use_data_config": True,
        "device_index": 0,
        "device_count": 1,
    },
    traits=Traits(held="blocking_queue"),
    raw=True,
    side_effects=True,
)
def create_py_reader(
    ctx: OpContext,
    *,
    shape_concat: list[int],
    ranks: list[int],
    lod_levels: list[int],
    dtypes: list[int],
    need_check_feed: list[int],
) -> None:
    """Create a reader for the queue in `blocking_queue`, unless it exists (Paddle 1.8.5 create_py_reader_op.cc)."""
    queue = ctx.value("blocking_queue")
    if not (hasattr(queue, "pop") and not isinstance(queue, list)):
        raise ctx.error(
            f"blocking_queue must hold a queue, found {type(queue).__name__}; put a TensorQueue into that variable first"
        )
    count = len(ranks)
    if sum(ranks) != len(shape_concat) or {len(lod_levels), len(dtypes), len(need_check_feed)} != {count}:
        raise ctx.error(
            f"ranks {ranks}, shape_concat {shape_concat}, lod_levels {lod_levels}, dtypes {dtypes} and need_check_feed "
            f"{need_check_feed} must describe the same tensors"
        )
    slots, start = [], 0
    for rank, lod_level, dtype, check in zip(ranks, lod_levels, dtypes, need_check_feed, strict=True):
        slots.append(Slot(tuple(shape_concat[start : start + rank]), dtype, lod_level, bool(check)))
        start += rank
    for holder in ctx.outputs.get("Out", ()):
        if not isinstance(holder.value, Reader):
            holder.value = Reader(queue, tuple(slots))


@op(
    "create_double_buffer_reader",
    inputs="UnderlyingReader",
    outputs="Out",
    attrs={"place": "AUTO"},
    raw=True,
    side_effects=True,
)
def create_double_buffer_reader(ctx: OpContext) -> None:
    """The reader itself: batches go to the device when they are read (Paddle 1.8.5 create_double_buffer_reader_op.cc)."""
    ctx.outputs["Out"][0].value = _reader(ctx, "UnderlyingReader")


@op(
    "read",
    inputs="Reader",
    outputs="Out*",
    attrs={"throw_eof_exp": True, "infer_out": True, "drop_last": True},
    raw=True,
    side_effects=True,
)
def read(ctx: OpContext, *, throw_eof_exp: bool) -> dict[str, list[LoDTensor]]:
    """The next batch of a reader, one tensor for every output (Paddle 1.8.5 read_op.cc).

    At the end of the data it raises EndOfDataError, or returns empty tensors if `throw_eof_exp` is not set.
    """
    reader, names = _reader(ctx, "Reader"), ctx.op.output("Out")
    batch = reader.queue.pop()
    if batch is None:
        if throw_eof_exp:
            raise EndOfDataError(
                "operator read: there is no next batch, the queue is closed and empty; reset the reader to restart"
            )
        return {"Out": [LoDTensor() for _ in names]}
    if not len(batch) == len(names) == len(reader.slots):
        raise ctx.error(f"a batch must have {len(names)} tensors ({', '.join(names)}), found {len(batch)}")
    for name, slot, tensor in zip(names, reader.slots, batch, strict=True):
        if tensor.array is None:
            raise ctx.error(f"the batch holds no value for {name}")
        fault = slot.fault(tensor)
        if fault is not None:
            raise ctx.error(f"the batch does not fit {name}: {fault}")
    return {"Out": [LoDTensor(ctx.array(tensor.array), tensor.offsets) for tensor in batch]}


def _reader(ctx: OpContext, slot: str) -> Reader:
    reader = ctx.value(slot)
    if not isinstance(reader, Reader):
        raise ctx.error(
            f"input {slot} must hold a reader, found {type(reader).__name__}; run the startup program, which creates it"
        )
    return reader
