"""`paddle.reader`: functions that make readers from readers (a reader is a function that returns an iterable), and `batch`."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import get_context
from queue import Queue
from threading import Thread
from typing import Any

from fluidtool.errors import AssertedError, FeedError, UsageError

Reader = Callable[[], Iterable[Any]]
_MISSING = object()


class ComposeNotAligned(FeedError):
    """Composed readers ended at different places."""


def batch(reader: Reader, batch_size: int, drop_last: bool = False) -> Reader:
    """Lists of batch_size samples; the last may be shorter, or is dropped."""
    batch_size = int(batch_size)
    if batch_size <= 0:
        raise UsageError(f"batch_size should be a positive integer value, but got batch_size={batch_size}")

    def batches() -> Iterator[list[Any]]:
        iterator = iter(reader())
        while items := list(itertools.islice(iterator, batch_size)):
            if len(items) == batch_size or not drop_last:
                yield items

    return batches


def cache(reader: Reader) -> Reader:
    """Reads everything once, immediately, and yields it from memory from then on."""
    items = tuple(reader())
    return lambda: iter(items)


def map_readers(func: Callable[..., Any], *readers: Reader) -> Reader:
    """func applied to the samples of all readers."""
    return lambda: map(func, *(reader() for reader in readers))


def shuffle(reader: Reader, buf_size: int) -> Reader:
    """Samples in random order within windows of buf_size."""

    def shuffled() -> Iterator[Any]:
        iterator = iter(reader())
        while items := list(itertools.islice(iterator, buf_size)):
            random.shuffle(items)
            yield from items

    return shuffled


def chain(*readers: Reader) -> Reader:
    """Readers in sequence."""
    return lambda: itertools.chain(*(reader() for reader in readers))


def compose(*readers: Reader, check_alignment: bool = True) -> Reader:
    """Tuples of the samples of all readers, flattened; raises ComposeNotAligned if one ends before another."""

    def composed() -> Iterator[tuple[Any, ...]]:
        for items in itertools.zip_longest(*(reader() for reader in readers), fillvalue=_MISSING):
            if any(item is _MISSING for item in items):
                if check_alignment:
                    raise ComposeNotAligned("outputs of readers are not aligned.")
                return
            yield tuple(itertools.chain.from_iterable(item if isinstance(item, tuple) else (item,) for item in items))

    return composed


def firstn(reader: Reader, n: int) -> Reader:
    """The first n samples."""
    return lambda: itertools.islice(reader(), n)


def buffered(reader: Reader, size: int) -> Reader:
    """Reads up to `size` samples ahead in a thread; an error there is raised here."""

    def ahead() -> Iterator[Any]:
        queue: Queue[tuple[bool, Any]] = Queue(maxsize=size)

        def work() -> None:
            try:
                for item in reader():
                    queue.put((True, item))
                queue.put((False, None))
            except BaseException as error:
                queue.put((False, error))

        Thread(target=work, daemon=True).start()
        while True:
            more, item = queue.get()
            if more:
                yield item
            elif item is None:
                return
            else:
                raise item

    return ahead


def xmap_readers(
    mapper: Callable[[Any], Any], reader: Reader, process_num: int, buffer_size: int, order: bool = False
) -> Reader:
    """mapper applied to every sample, ahead of use by process_num threads; with order=True in the reader's order."""

    def mapped() -> Iterator[Any]:
        with ThreadPoolExecutor(process_num) as pool:
            waiting: list[Future[Any]] = []
            for item in reader():
                waiting.append(pool.submit(mapper, item))
                if len(waiting) >= max(buffer_size, 1):
                    yield _take(waiting, order).result()
            while waiting:
                yield _take(waiting, order).result()

    return mapped


def _take(waiting: list[Future[Any]], order: bool) -> Future[Any]:
    """The first one, or the first that has finished."""
    if not order:
        for index, future in enumerate(waiting):
            if future.done():
                return waiting.pop(index)
    return waiting.pop(0)


def multiprocess_reader(readers: Sequence[Reader], use_pipe: bool = True, queue_size: int = 1000) -> Reader:
    """The samples of several readers, each in a separate process, as they come; errors there are raised here."""
    if not isinstance(readers, (list, tuple)) or not readers:
        raise AssertedError(f"multiprocess_reader takes a list of at least one reader, found {readers!r}")

    def merged() -> Iterator[Any]:
        context = get_context("fork")
        queue: Any = context.Queue(queue_size)
        processes = [context.Process(target=_read_into, args=(reader, queue), daemon=True) for reader in readers]
        for process in processes:
            process.start()
        running = len(processes)
        try:
            while running:
                kind, item = queue.get()
                if kind == "item":
                    yield item
                elif kind == "end":
                    running -= 1
                else:
                    raise FeedError(f"multiprocess reader raises an exception: {item}")
        finally:
            for process in processes:
                if running:
                    process.kill()  # not SIGTERM, for which the script may have a handler that kills its whole group
                process.join()

    return merged


def _read_into(reader: Reader, queue: Any) -> None:
    try:
        for item in reader():
            if item is None:
                raise FeedError("sample has None")
            queue.put(("item", item))
        queue.put(("end", None))
    except Exception as error:
        queue.put(("error", f"{type(error).__name__}: {error}"))
