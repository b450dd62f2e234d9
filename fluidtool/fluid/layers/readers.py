"""Readers inside a program: `py_reader`, `double_buffer`, `read_file`; and `load` (Paddle 1.8.5 layers/io.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.fluid.checks import check_type
from fluidtool.fluid.data_feeder import DataFeeder
from fluidtool.fluid.executor import global_scope
from fluidtool.fluid.framework import default_main_program, default_startup_program, program_guard
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.io import data
from fluidtool.fluid.reader_thread import Batches, ReaderThread
from fluidtool.ir import Block, Program, Variable, unique_name
from fluidtool.ir.variable import data_type
from fluidtool.ops.control_flow.readers import Slot
from fluidtool.proto import framework_pb2 as pb
from fluidtool.proto.enums import VarType
from fluidtool.tensor import CPUPlace, LoDTensor, Place


class ReaderVariable(Variable):
    """A variable that holds a reader; `tensors` describes its batches, `thread` fills its queue."""

    __slots__ = ("feed_list", "tensors", "thread")

    def __init__(
        self, block: Block, name: str, tensors: Sequence[Slot], thread: ReaderThread | None, stop_gradient: bool = True
    ) -> None:
        super().__init__(block, type=VarType.READER, name=name, persistable=True, stop_gradient=stop_gradient)
        self.tensors, self.thread = tuple(tensors), thread
        self.feed_list: list[Variable] | None = None
        desc: Any = pb.VarType()
        desc.type = int(VarType.READER)
        for slot in self.tensors:
            item = desc.reader.lod_tensor.add()
            item.tensor.data_type = slot.dtype
            item.tensor.dims.extend(slot.shape)
            item.lod_level = slot.lod_level
        self.type_bytes = desc.SerializePartialToString()
        block.add_var(self)

    @property
    def queue(self) -> Any:
        """Where batches wait."""
        return self._source().open_queue()

    @property
    def exited(self) -> bool:
        """Whether the epoch has been ended by setting this to True."""
        return self._source().queue.closed

    @exited.setter
    def exited(self, exited: bool) -> None:
        if exited:
            self._source().queue.close()

    def start(self) -> None:
        """Begin an epoch; runs after the last batch raise EOFException."""
        self._source().start()

    def reset(self) -> None:
        """End the epoch, finished or not; `start` begins the next one."""
        self._source().reset()

    def decorate_batch_generator(self, reader: Batches) -> None:
        """Set a source of whole batches: lists of arrays or LoDTensors, one per tensor."""
        self._source().batches = reader

    def decorate_sample_list_generator(self, reader: Callable[[], Iterable[Any]]) -> None:
        """Set a source of mini-batches of samples, as for DataFeeder."""
        self._source().batches = fed_batches(reader, self.feed_list or _inputs(self.tensors))

    decorate_tensor_provider = decorate_batch_generator
    decorate_paddle_reader = decorate_sample_list_generator

    def _source(self) -> ReaderThread:
        if self.thread is None:
            raise UsageError(f"reader {self.name} is not fed from Python: it was not created by py_reader")
        return self.thread


def fed_batches(reader: Callable[[], Iterable[Any]], feed_list: Sequence[Variable]) -> Batches:
    """Batches of LoDTensors from mini-batches of samples."""
    feeder = DataFeeder(feed_list, CPUPlace())

    def batches() -> Iterable[list[LoDTensor]]:
        for samples in reader():
            fed = feeder.feed(samples)
            yield [fed[name] for name in feeder.feed_names]

    return batches


def _inputs(tensors: Sequence[Slot]) -> list[Variable]:
    with program_guard(Program(), Program()):
        return [
            data(name=str(number), shape=slot.shape, dtype=slot.dtype, lod_level=slot.lod_level)
            for number, slot in enumerate(tensors)
        ]


def slots_of(feed_list: Sequence[Variable]) -> list[Slot]:
    """The description of batches for these variables."""
    return [
        Slot(
            tuple(var.shape), int(VarType.FP32 if var.dtype is None else var.dtype), var.lod_level, var.need_check_feed
        )
        for var in feed_list
    ]


def append_reader(
    block: Block, name: str, queue_name: str, tensors: Sequence[Slot], thread: ReaderThread, stop_gradient: bool = True
) -> ReaderVariable:
    """The operator `create_py_reader` over a queue, which is put into the global scope; returns the reader."""
    global_scope().var(queue_name).value = thread.queue
    reader = ReaderVariable(block, name, tensors, thread, stop_gradient)
    block.append_op(
        type="create_py_reader",
        inputs={"blocking_queue": [queue_name]},
        outputs={"Out": [reader]},
        attrs={
            "shape_concat": [size for slot in tensors for size in slot.shape],
            "lod_levels": [slot.lod_level for slot in tensors],
            "dtypes": [slot.dtype for slot in tensors],
            "need_check_feed": [int(slot.checked) for slot in tensors],
            "ranks": [len(slot.shape) for slot in tensors],
        },
    )
    return reader


def py_reader(
    capacity: int,
    shapes: Sequence[Sequence[int]],
    dtypes: Sequence[Any],
    lod_levels: Sequence[int] | None = None,
    name: str | None = None,
    use_double_buffer: bool = True,
) -> ReaderVariable:
    """A reader of batches that a Python generator produces in the background: decorate it, read_file it, start it."""
    if lod_levels is None:
        lod_levels = [0] * len(shapes)
    if not len(shapes) == len(dtypes) == len(lod_levels):
        raise UsageError(
            f"shapes, dtypes and lod_levels must have the same length, found {len(shapes)}, {len(dtypes)} and "
            f"{len(lod_levels)}"
        )
    tensors = [
        Slot(tuple(shape), int(data_type(dtype)), level, False)
        for shape, dtype, level in zip(shapes, dtypes, lod_levels, strict=True)
    ]
    return _py_reader(capacity, tensors, name, use_double_buffer)


def create_py_reader_by_data(
    capacity: int, feed_list: Sequence[Variable], name: str | None = None, use_double_buffer: bool = True
) -> ReaderVariable:
    """A py_reader whose batches match these variables."""
    if not isinstance(feed_list, list):
        raise ArgumentTypeError(f"feed_list should be a list of Variable instead of {type(feed_list)}")
    reader = _py_reader(capacity, slots_of(feed_list), name, use_double_buffer)
    reader.feed_list = list(feed_list)
    return reader


def _py_reader(capacity: int, tensors: Sequence[Slot], name: str | None, use_double_buffer: bool) -> ReaderVariable:
    check_type(capacity, "capacity", int, "py_reader")
    if capacity <= 0:
        raise UsageError(f"capacity of py_reader must be above 0, found {capacity}")
    if name is None:
        keys = ("lod_tensor_blocking_queue", "create_py_reader", "double_buffer")
        queue_name, reader_name, buffer_name = map(unique_name.generate, keys)
    else:
        queue_name, reader_name, buffer_name = f"{name}_queue", f"{name}_reader", f"{name}_double_buffer"
    thread = ReaderThread(capacity)
    startup = default_startup_program().current_block()
    append_reader(startup, reader_name, queue_name, tensors, thread, stop_gradient=False)
    reader = ReaderVariable(default_main_program().current_block(), reader_name, tensors, thread)
    return double_buffer(reader, name=buffer_name) if use_double_buffer else reader


def double_buffer(reader: Variable, place: Place | None = None, name: str | None = None) -> ReaderVariable:
    """The reader with batches read ahead; `place`: their destination."""
    if not isinstance(reader, ReaderVariable):
        raise ArgumentTypeError(
            f"double_buffer takes a reader, found {type(reader).__name__}; create one with py_reader"
        )
    block = default_main_program().current_block()
    name = unique_name.generate("create_double_buffer_reader") if name is None else name
    buffered = ReaderVariable(block, name, reader.tensors, reader.thread)
    buffered.feed_list = reader.feed_list
    block.append_op(
        type="create_double_buffer_reader",
        inputs={"UnderlyingReader": reader},
        outputs={"Out": [buffered]},
        attrs={} if place is None else {"place": str(place).upper()},
    )
    return buffered


def read_file(reader: Variable) -> Any:
    """The tensors of the reader's next batch: a Variable, or a list if there are several."""
    if not isinstance(reader, ReaderVariable):
        raise ArgumentTypeError(f"read_file takes a reader, found {type(reader).__name__}; create one with py_reader")
    helper = LayerHelper("read_file")
    out = [helper.create_variable_for_type_inference(dtype="float32", stop_gradient=True) for _ in reader.tensors]
    helper.append_op(type="read", inputs={"Reader": [reader]}, outputs={"Out": out})
    for var, slot in zip(out, reader.tensors, strict=True):
        var.shape, var.dtype, var.lod_level = slot.shape, VarType(slot.dtype), slot.lod_level
    return out[0] if len(out) == 1 else out


def load(out: Variable, file_path: str, load_as_fp16: bool | None = None) -> None:
    """Fill `out` with the variable in a file."""
    attrs: dict[str, Any] = {"file_path": file_path}
    if load_as_fp16 is not None:
        attrs["load_as_fp16"] = load_as_fp16
    LayerHelper("load").append_op(type="load", inputs={}, outputs={"Out": out}, attrs=attrs)
