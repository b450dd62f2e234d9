"""Files as bytes: read whole, or mapped into memory and read where they are looked at.

Of a mapped file no descriptor stays open, and it may be removed or replaced by another of its name: what was mapped stays.
But a file that is cut short in place takes its pages away, and a process that touches one of them is ended by a signal
(SIGBUS) that no exception can stand for. So code that keeps a value takes a private copy, which the system makes: there, a
page that is gone is an error of the call. Large values stay in the file, which is then looked at before they are used.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import stat
import weakref
from collections.abc import Iterable
from functools import cache
from typing import Any, BinaryIO

import numpy as np

from fluidtool.errors import Location, UnreadableError

Array = np.ndarray[Any, Any]
LEAST_MAPPED = 16 << 10  # bytes of a file; smaller ones are read
LARGEST_COPIED = 64 << 20  # bytes of a value; larger ones are used where they lie
CHUNK = 64 << 10


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """A regular file, opened for reading; raises UnreadableError for anything else, at once (a pipe is not waited for)."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return os.fdopen(descriptor, "rb")
        os.close(descriptor)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise UnreadableError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}", location=Location(str(path))
        ) from error
    raise UnreadableError(
        f"cannot read {path}: it is not a regular file; fluidtool reads no folders, pipes or devices",
        location=Location(str(path)),
    )


def read_file(path: str | os.PathLike[str], largest: int | None = None) -> bytes:
    """The bytes of a regular file; raises UnreadableError when it cannot be read or has more than `largest` bytes."""
    with open_file(path) as file:
        try:
            size = os.fstat(file.fileno()).st_size  # 0 of what the system makes up, such as a file of /proc
            fits = largest is None or size <= largest
            data = file.read(-1 if largest is None else largest + 1) if fits else b""
        except OSError as error:
            raise UnreadableError(
                f"cannot read {path}: {error.strerror or error}", location=Location(str(path))
            ) from error
    if largest is not None and max(size, len(data)) > largest:
        raise UnreadableError(
            f"{path} has more than {largest} bytes, too many for such a file", location=Location(str(path))
        )
    return data


def map_file(path: str | os.PathLike[str]) -> bytes | memoryview:
    """The bytes of a regular file: of a small one in memory, else mapped; raises UnreadableError when it cannot be read."""
    with open_file(path) as file:
        try:
            found = os.fstat(file.fileno())
            if found.st_size < LEAST_MAPPED:
                return file.read()
            memory = _map(file.fileno(), found.st_size)
        except (OSError, ValueError) as error:
            raise UnreadableError(
                f"cannot read {path}: {getattr(error, 'strerror', None) or error}", location=Location(str(path))
            ) from error
    memory.file = MappedFile(os.path.abspath(path), found, memory)
    return memoryview(memory).cast("B").toreadonly()


def map_unwatched(path: str | os.PathLike[str]) -> memoryview:
    """The bytes of a regular file that nobody ever writes to once it has its name, mapped: `file_of` does not know it.

    Raises OSError when it cannot be mapped.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or not found.st_size:
            raise OSError(errno.EINVAL, "not a regular file with contents", str(path))
        return memoryview(_map(descriptor, found.st_size)).cast("B").toreadonly()
    finally:
        os.close(descriptor)


class MappedFile:
    """Which file some memory is of, and how it was when it was mapped."""

    __slots__ = ("_memory", "path", "size", "status")

    def __init__(self, path: str, status: os.stat_result, memory: Any) -> None:
        self.path, self.status, self.size = path, status, status.st_size
        self._memory = weakref.ref(memory)

    @property
    def memory(self) -> Any:
        """The mapped bytes, as long as anything looks at them."""
        return self._memory()

    @property
    def start(self) -> int:
        """The address of its first byte."""
        return int(np.frombuffer(self.memory, np.uint8, 1).ctypes.data)

    def check(self) -> None:
        """Raise UnreadableError when the file was written to. One that is gone, or has another in its place, is well."""
        try:
            self.is_named(os.stat(self.path))
        except OSError:
            return

    def is_named(self, now: os.stat_result) -> bool:
        """Whether this is what its name stands for now; raises UnreadableError when it was written to."""
        then = self.status
        if (now.st_dev, now.st_ino) != (then.st_dev, then.st_ino):
            return False
        if (now.st_size, now.st_mtime_ns) != (then.st_size, then.st_mtime_ns):
            raise self.changed()
        return True

    def changed(self) -> UnreadableError:
        """The error of a file that is not any more what it was."""
        return UnreadableError(
            f"{self.path} was changed after it was opened (it had {self.size} bytes)",
            hint="load the model again, and replace files with new ones instead of writing into them",
            location=Location(str(self.path)),
        )

    def copy(self, begin: int, end: int) -> Array:
        """Bytes of the file in memory of their own; raises UnreadableError when it was changed, even meanwhile."""
        copied = np.empty(end - begin, np.uint8)
        if not self._read(begin, copied.data):
            if not transfer(memoryview(self.memory).cast("B")[begin:end], copied.data):
                raise self.changed()
            self.check()
        return copied

    def _read(self, begin: int, target: memoryview) -> bool:
        """Read bytes by the name of the file, which is the fastest; False when the name stands for it no more."""
        try:
            file = open_file(self.path)
        except UnreadableError:
            return False
        with file:
            if not self.is_named(os.fstat(file.fileno())):
                return False
            file.seek(begin)
            whole = file.readinto(target) == len(target)  # type: ignore[attr-defined]
            return self.is_named(os.fstat(file.fileno())) and whole

    def forget(self, begin: int, end: int) -> None:
        """Tell the system that these bytes, which have been used, need not stay in memory."""
        start = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE
        length = end // mmap.PAGESIZE * mmap.PAGESIZE - start
        if length > 0:
            _let_go(self.memory, start, length)


def file_of(array: Any) -> MappedFile | None:
    """The mapped file that an array or a view of bytes looks into; None for any other memory."""
    base = array
    while isinstance(base, np.ndarray):
        base = base.base
    found: MappedFile | None = getattr(base.obj, "file", None) if isinstance(base, memoryview) else None
    return found


def private(array: Any, *, any_size: bool = False) -> Any:
    """An array whose memory no file can take away: itself, or a copy of what lies in a mapped file.

    Of more than 64 MiB it is the array itself (but with `any_size`), once the file is seen to be as it was. Raises
    UnreadableError when it is not.
    """
    file = file_of(array)
    if file is None or not array.nbytes:
        return array
    if array.nbytes > LARGEST_COPIED and not any_size:
        file.check()
        return array
    low, high = _bounds(array)
    start = file.start
    memory = file.copy(low - start, high - start)
    file.forget(low - start, high - start)
    offset = array.__array_interface__["data"][0] - low
    return np.ndarray(array.shape, array.dtype, memory.data, offset, array.strides)


def check_unchanged(arrays: Iterable[Any]) -> None:
    """Raise UnreadableError when the file of one of these arrays was written to since it was mapped."""
    for file in {id(file): file for array in arrays if (file := file_of(array)) is not None}.values():
        file.check()


def forget(array: Any) -> None:
    """Tell the system that a view of a mapped file, which has been used, need not stay in memory. Others stay."""
    file = file_of(array)
    if file is not None and array.nbytes:
        low, high = _bounds(array)
        file.forget(low - file.start, high - file.start)


def _bounds(array: Array) -> tuple[int, int]:
    """The addresses of the first byte of an array and of the one after its last."""
    low = high = array.__array_interface__["data"][0]
    for size, stride in zip(array.shape, array.strides, strict=True):
        low, high = low + min(0, (size - 1) * stride), high + max(0, (size - 1) * stride)
    return low, high + array.itemsize


def transfer(source: memoryview, target: memoryview) -> bool:
    """Copy bytes that may not be there any more; False when they are not.

    They go through a pipe: the system reads them then, and where a process would be ended by a signal its call fails.
    """
    if os.name != "posix":
        target[:] = source
        return True
    outlet, inlet = os.pipe()
    try:
        os.set_blocking(inlet, False)
        at = 0
        while at < len(source):
            count = os.write(inlet, source[at : at + CHUNK])
            end = at + count
            while at < end:
                at += os.readv(outlet, [target[at:end]])
    except OSError as error:
        if error.errno == errno.EFAULT:
            return False
        raise
    finally:
        os.close(outlet)
        os.close(inlet)
    return True


# ---------------------------------------------------------------- memory
class _WindowsMap(mmap.mmap):
    """Mapped memory that can say which file it is of."""

    file: MappedFile | None = None


def _map(descriptor: int, size: int) -> Any:
    """Memory of a file, for reading. Python's own `mmap` keeps a descriptor open until version 3.13; this keeps none."""
    if os.name != "posix":
        return _WindowsMap(descriptor, size, access=mmap.ACCESS_READ)
    library = _library()
    address = library.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    memory = (ctypes.c_char * size).from_address(address)
    weakref.finalize(memory, library.munmap, address, size).atexit = False  # other threads may read to the very end
    return memory


def _let_go(memory: Any, start: int, length: int) -> None:
    if os.name == "posix":
        _library().madvise(ctypes.addressof(memory) + start, length, mmap.MADV_DONTNEED)


@cache
def _library() -> Any:
    """The C library's mapping of files."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_ssize_t,
    ]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return library
