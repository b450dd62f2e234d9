"""DataLoader, PyReader and the reader layers, as in Paddle 1.8.5."""

from __future__ import annotations

import gc
import multiprocessing
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import FeedError, UsageError
from fluidtool.proto.enums import VarType

CPU = fluid.CPUPlace()


@pytest.fixture(autouse=True)
def own_world() -> Iterator[None]:
    programs = fluid.program_guard(fluid.Program(), fluid.Program())
    with fluid.scope_guard(fluid.Scope()), programs, fluid.unique_name.guard():
        yield


def rows(count: int = 3) -> Any:
    """A generator of batches: i + 1 rows of i."""
    return lambda: ([np.full((i + 1, 2), i, "float32")] for i in range(count))


def loader(**options: Any) -> Any:
    return fluid.io.DataLoader.from_generator([fluid.layers.data("x", [2])], capacity=2, **options)


def shapes(feeds: Any) -> list[list[list[int]]]:
    return [[one["x"].shape() for one in feed] for feed in feeds]


def epoch(program: Any, out: Any, executor: Any) -> list[float]:
    """The fetched values until the data ends."""
    found = []
    with pytest.raises(fluid.core.EOFException):
        while True:
            found.append(float(executor.run(program, fetch_list=[out])[0].ravel()[0]))
    return found


def test_every_batch_comes_as_a_list_with_a_dict() -> None:
    assert shapes(loader().set_batch_generator(rows(), places=CPU)) == [[[1, 2]], [[2, 2]], [[3, 2]]]


def test_a_loader_can_be_called_for_its_iterator() -> None:
    source = loader().set_batch_generator(rows(), places=CPU)
    assert shapes(source()) == shapes(source())


def test_every_place_gets_a_batch_of_its_own() -> None:
    assert shapes(loader().set_batch_generator(rows(), places=[CPU] * 2)) == [[[1, 2], [2, 2]]]


def test_an_incomplete_group_is_kept_on_demand() -> None:
    source = loader(drop_last=False).set_batch_generator(rows(), places=[CPU] * 2)
    assert shapes(source) == [[[1, 2], [2, 2]], [[3, 2]]]


def test_return_list_gives_lists_instead_of_dicts() -> None:
    source = loader(return_list=True).set_batch_generator(rows(1), places=CPU)
    ((tensor,),) = next(iter(source))
    assert tensor.shape() == [1, 2]


def test_samples_are_put_into_batches() -> None:
    samples = lambda: (([i, i],) for i in range(5))  # noqa: E731
    assert shapes(loader().set_sample_generator(samples, 2, places=CPU)) == [[[2, 2]], [[2, 2]]]
    assert shapes(loader().set_sample_generator(samples, 2, drop_last=False, places=CPU))[-1] == [[1, 2]]


def test_sample_lists_with_sequences_get_their_lengths() -> None:
    words = fluid.layers.data("w", [1], dtype="int64", lod_level=1)
    source = fluid.io.PyReader([words], capacity=2)
    source.decorate_sample_list_generator(lambda: iter([[([1, 2],), ([3],)]]), places=CPU)
    assert next(iter(source))[0]["w"].recursive_sequence_lengths() == [[2, 1]]


def test_the_feed_goes_into_the_executor_as_it_comes() -> None:
    source = loader().set_batch_generator(rows(), places=CPU)
    total = fluid.layers.reduce_sum(fluid.default_main_program().global_block().var("x"))
    executor = fluid.Executor()
    assert [float(executor.run(feed=feed, fetch_list=[total])[0][0]) for feed in source] == [0.0, 4.0, 12.0]


def test_a_loader_feeds_all_devices_of_a_compiled_program() -> None:
    source = loader().set_batch_generator(rows(4), places=[CPU] * 2)
    total = fluid.layers.reduce_sum(fluid.default_main_program().global_block().var("x"))
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(places=[CPU] * 2)
    executor = fluid.Executor()
    found = [executor.run(program, feed=feed, fetch_list=[total])[0].tolist() for feed in source]
    assert found == [[0.0, 4.0], [12.0, 24.0]]


def test_the_generators_exception_comes_out_after_its_batches() -> None:
    def broken() -> Iterator[Any]:
        yield [np.ones((1, 2), "float32")]
        raise KeyError("lost")

    seen = []
    with pytest.raises(KeyError, match="lost"):
        for feed in loader().set_batch_generator(broken, places=CPU):
            seen.append(feed)
    assert len(seen) == 1


def test_batches_are_read_ahead_up_to_the_capacity() -> None:
    made: list[int] = []

    def counted() -> Iterator[Any]:
        for number in range(10):
            made.append(number)
            yield [np.ones((1, 2), "float32")]

    source = loader().set_batch_generator(counted, places=CPU)
    next(iter(source))
    deadline = time.monotonic() + 5
    while len(made) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    assert len(made) == 4  # one taken, two waiting, one at the door


def test_a_new_epoch_may_begin_in_the_middle_of_one() -> None:
    source = loader().set_batch_generator(rows(), places=CPU)
    next(iter(source))
    assert len(shapes(source)) == 3


def test_the_thread_ends_when_the_loader_is_gone() -> None:
    before = set(threading.enumerate())
    source = loader().set_batch_generator(rows(50), places=CPU)
    next(iter(source))
    (thread,) = set(threading.enumerate()) - before
    del source
    gc.collect()
    thread.join(5)
    assert not thread.is_alive()


def test_lists_of_different_lengths_need_a_lod_tensor() -> None:
    source = loader().set_batch_generator(lambda: iter([[[[1.0], [1.0, 2.0]]]]), places=CPU)
    with pytest.raises(TypeError, match=r"use fluid\.create_lod_tensor"):
        list(source)


def test_a_batch_has_a_value_for_every_variable() -> None:
    source = loader().set_batch_generator(lambda: iter([[np.ones(2), np.ones(2)]]), places=CPU)
    with pytest.raises(FeedError, match=r"each of 1 variables \(x\), found 2"):
        list(source)


def test_an_iterable_loader_needs_its_source() -> None:
    with pytest.raises(AssertionError, match="Data source of DataLoader has not set yet"):
        list(loader())


def test_an_iterable_loader_needs_places() -> None:
    with pytest.raises(AssertionError, match="Places cannot be None when DataLoader is iterable"):
        loader().set_batch_generator(rows())


def test_a_loader_needs_a_capacity() -> None:
    with pytest.raises(ValueError, match="Please give value to capacity"):
        fluid.io.DataLoader.from_generator([fluid.layers.data("x", [2])])


def test_a_loader_needs_variables() -> None:
    with pytest.raises(ValueError, match="Feed list must be given"):
        fluid.io.DataLoader.from_generator(capacity=2)


def test_batches_have_at_least_one_sample() -> None:
    with pytest.raises(AssertionError, match="batch_size must be larger than 0"):
        loader().set_sample_generator(rows(), 0, places=CPU)


@pytest.mark.parametrize("method", ["start", "reset"])
def test_iterable_loaders_are_not_started_by_hand(method: str) -> None:
    with pytest.raises(AssertionError, match=rf"{method}\(\) cannot be called when DataLoader is iterable"):
        getattr(loader(), method)()


def test_loaders_inside_programs_are_not_iterated() -> None:
    with pytest.raises(AssertionError, match="DataLoader is not iterable"):
        iter(loader(iterable=False))


def test_a_loader_inside_a_program_appends_its_operators() -> None:
    fluid.io.PyReader([fluid.data("x", [None, 2])], capacity=4, iterable=False)
    ops = fluid.default_main_program().global_block().ops
    assert [op.type for op in ops] == ["create_py_reader", "create_double_buffer_reader", "read"]
    assert (ops[0].attr("shape_concat"), ops[0].attr("ranks"), ops[0].attr("need_check_feed")) == ([-1, 2], [2], [1])
    assert ops[2].output("Out") == ["x"]
    assert ops[2].attr("drop_last") is True


def test_without_double_buffer_there_is_one_reader() -> None:
    loader(iterable=False, use_double_buffer=False)
    assert [op.type for op in fluid.default_main_program().global_block().ops] == ["create_py_reader", "read"]


def test_epochs_of_a_loader_inside_a_program_end_with_eof() -> None:
    source = loader(iterable=False).set_batch_generator(rows())
    program = fluid.default_main_program()
    total, executor = fluid.layers.reduce_sum(program.global_block().var("x")), fluid.Executor()
    for _ in range(2):
        source.start()
        assert epoch(program, total, executor) == [0.0, 4.0, 12.0]
        source.reset()


def test_devices_take_their_batches_in_order() -> None:
    source = loader(iterable=False).set_batch_generator(rows(5))
    program = fluid.default_main_program()
    total, executor = fluid.layers.reduce_sum(program.global_block().var("x")), fluid.Executor()
    parallel = fluid.CompiledProgram(program).with_data_parallel(places=[CPU] * 2)
    source.start()
    assert [executor.run(parallel, fetch_list=[total])[0].tolist() for _ in range(2)] == [[0.0, 4.0], [12.0, 24.0]]
    with pytest.raises(fluid.core.EOFException):  # one batch is left for two devices
        executor.run(parallel, fetch_list=[total])


def test_an_epoch_inside_a_program_can_be_cut_short() -> None:
    source = loader(iterable=False).set_batch_generator(rows(50))
    program = fluid.default_main_program()
    total, executor = fluid.layers.reduce_sum(program.global_block().var("x")), fluid.Executor()
    source.start()
    executor.run(program, fetch_list=[total])
    source.reset()
    assert epoch(program, total, executor) == []


def test_a_run_before_start_says_so() -> None:
    source = loader(iterable=False).set_batch_generator(rows())
    with pytest.raises(FeedError, match=r"call its start\(\) before the program runs"):
        fluid.Executor().run(fluid.default_main_program())
    assert not source.iterable


def test_a_second_start_needs_a_reset() -> None:
    source = loader(iterable=False).set_batch_generator(rows(50))
    source.start()
    with pytest.raises(UsageError, match=r"call reset\(\) before the next start\(\)"):
        source.start()
    source.reset()


def test_an_exception_of_the_generator_stops_the_run() -> None:
    def broken() -> Iterator[Any]:
        raise ValueError("lost")
        yield

    source = loader(iterable=False).set_batch_generator(broken)
    source.start()
    with pytest.raises(RuntimeError, match="operator read failed: lost"):
        fluid.Executor().run(fluid.default_main_program())


def test_py_reader_makes_its_reader_in_the_startup_program() -> None:
    reader = fluid.layers.py_reader(3, [(-1, 2), (-1, 1)], ["float32", "int64"], lod_levels=[0, 1])
    picture, label = fluid.layers.read_file(reader)
    assert [op.type for op in fluid.default_startup_program().global_block().ops] == ["create_py_reader"]
    main = fluid.default_main_program().global_block()
    assert [op.type for op in main.ops] == ["create_double_buffer_reader", "read"]
    assert (reader.name, reader.type, picture.name) == ("double_buffer_0", VarType.READER, "read_file_0.tmp_0")
    assert (label.shape, label.dtype, label.lod_level) == ((-1, 1), VarType.INT64, 1)


def test_py_reader_reads_what_samples_it_is_given() -> None:
    reader = fluid.layers.py_reader(3, [(-1, 2)], ["float32"], name="train", use_double_buffer=False)
    total = fluid.layers.reduce_sum(fluid.layers.read_file(reader))
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    reader.decorate_paddle_reader(lambda: iter([[([1.0, 2.0],), ([3.0, 4.0],)], [([5.0, 6.0],)]]))
    for _ in range(2):
        reader.start()
        assert epoch(fluid.default_main_program(), total, executor) == [10.0, 11.0]
        reader.reset()


def test_py_reader_by_data_reads_whole_batches() -> None:
    like = fluid.layers.data("like", [2])
    reader = fluid.layers.create_py_reader_by_data(3, [like], name="nm")
    total = fluid.layers.reduce_sum(fluid.layers.read_file(reader))
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    reader.decorate_batch_generator(rows())
    reader.start()
    assert epoch(fluid.default_main_program(), total, executor) == [0.0, 4.0, 12.0]
    assert reader.name == "nm_double_buffer"


def test_a_program_with_readers_survives_its_bytes() -> None:
    fluid.layers.read_file(fluid.layers.py_reader(3, [(-1, 2)], ["float32"]))
    encoded = fluid.default_main_program().serialize_to_string()
    assert fluid.Program.parse_from_string(encoded).serialize_to_string() == encoded


def test_py_reader_needs_lists_of_one_length() -> None:
    with pytest.raises(UsageError, match="must have the same length, found 2, 1 and 2"):
        fluid.layers.py_reader(3, [(-1, 2), (-1, 1)], ["float32"])


def test_py_reader_by_data_needs_a_list() -> None:
    with pytest.raises(TypeError, match="feed_list should be a list of Variable"):
        fluid.layers.create_py_reader_by_data(3, fluid.layers.data("x", [2]))


@pytest.mark.parametrize("layer", [fluid.layers.read_file, fluid.layers.double_buffer])
def test_reader_layers_take_readers(layer: Any) -> None:
    with pytest.raises(TypeError, match="takes a reader, found Variable"):
        layer(fluid.layers.data("x", [2]))


def test_load_appends_its_operator() -> None:
    out = fluid.layers.create_tensor("float32")
    fluid.layers.load(out, "weights", load_as_fp16=True)
    (op,) = fluid.default_main_program().global_block().ops
    assert (op.type, op.output("Out"), op.attr("file_path"), op.attr("load_as_fp16")) == (
        "load",
        [out.name],
        "weights",
        True,
    )


def test_core_offers_the_compiled_modules_names() -> None:
    assert fluid.core.Scope is fluid.Scope
    assert fluid.core.LoDTensor is fluid.core.Tensor is fluid.LoDTensor
    assert issubclass(fluid.core.EOFException, Exception)
    assert not hasattr(fluid.core, "nosuch")


def test_batches_that_a_script_pushes_itself() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        reader = fluid.layers.py_reader(capacity=2, shapes=[(-1, 2)], dtypes=["float32"])
        queue = reader.queue
        data = fluid.layers.read_file(reader)
        executor = fluid.Executor()
        executor.run(fluid.default_startup_program())
        queue.push([fluid.LoDTensor(np.ones((3, 2), "float32"))])
        (fetched,) = executor.run(fetch_list=[data])
        assert fetched.shape == (3, 2)
        queue.close()
        with pytest.raises(fluid.core.EOFException):
            executor.run(fetch_list=[data])


def test_a_reader_that_exits() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        reader = fluid.layers.py_reader(capacity=1, shapes=[(-1, 1)], dtypes=["float32"])
        reader.decorate_tensor_provider(lambda: iter([[np.ones((1, 1), "float32")]] * 9))
        fluid.layers.read_file(reader)
        reader.start()
        assert not reader.exited
        reader.exited = True
        reader.thread.join()
        assert reader.exited


def test_a_loader_of_nothing_is_not_iterated() -> None:
    loader = fluid.reader.DataLoaderBase()
    assert loader() is loader
    for call in (loader.__iter__, loader.__next__, loader.next):
        with pytest.raises(NotImplementedError):
            call()


def test_lists_of_different_lengths_are_no_array() -> None:
    check = fluid.reader.GeneratorLoader._check_input_array
    assert check([[1, 2], [3, 4]]).shape == (2, 2)
    with pytest.raises(TypeError, match="different lengths"):
        check([[1, 2], [3]])


def test_the_order_of_batches() -> None:
    before = fluid.reader.keep_data_loader_order()
    fluid.reader.keep_data_loader_order(False)
    assert fluid.reader.keep_data_loader_order() is False
    fluid.reader.keep_data_loader_order(before)
    with pytest.raises(AssertionError, match="takes one bool"):
        fluid.reader.keep_data_loader_order(1)


def test_the_older_name_of_a_source_of_samples_is_taken_by_keyword() -> None:
    reader = fluid.io.PyReader([fluid.layers.data("x", [2])], capacity=2)
    samples = [(np.full(2, i, "float32"),) for i in range(5)]
    reader.decorate_sample_generator(sample_generator=lambda: iter(samples), batch_size=2, places=CPU)
    assert shapes(reader()) == [[[2, 2]], [[2, 2]]]


@pytest.mark.parametrize("taken", [None, 1])
def test_processes_of_a_reader_end_without_the_script_s_handlers(taken: int | None, tmp_path: Path) -> None:
    def reader() -> Iterator[int]:
        yield 0
        yield from range(1, 3 if taken is None else 10**9)

    heard = tmp_path / "heard"
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.touch())
    try:
        samples = fluid.io.multiprocess_reader([reader], use_pipe=False)()
        found = list(samples) if taken is None else [next(samples)]
        samples.close()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert found == ([0, 1, 2] if taken is None else [0])
    assert not multiprocessing.active_children()
    assert not heard.exists()


# ---------------------------------------------------------------- arguments of decorators
@pytest.mark.parametrize("readers", [3, [], None])
def test_several_processes_need_a_list_of_readers(readers: Any) -> None:
    with pytest.raises(AssertionError, match="multiprocess_reader takes a list of at least one reader, found"):
        fluid.io.multiprocess_reader(readers)


def test_the_size_of_a_batch_is_cut_to_a_whole_number() -> None:
    assert list(fluid.io.batch(lambda: iter(range(5)), 2.5)()) == [[0, 1], [2, 3], [4]]  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0, -1, 0.5, "a"])
def test_a_batch_of_no_samples(size: Any) -> None:
    with pytest.raises(ValueError, match=r"batch_size|invalid literal"):
        fluid.io.batch(lambda: iter(range(5)), size)
