"""The user's cache folder, and packed constants there, which the next process maps (docs/adr/0011-cache-of-packed-weights.md).

A file of the cache is named by a digest of all that its numbers depend on. It is never changed, so that it may be mapped; it may
be removed at any moment, since what is mapped stays. Whatever is wrong with a file or with the folder, all is as without a
cache.
"""

from __future__ import annotations

import os
import stat
import struct
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from fluidtool._version import __version__
from fluidtool.runtime.engines.native.library import Library, is_off
from fluidtool.tensor.files import file_of, map_unwatched

try:
    from _blake2 import blake2b  # hashlib would load OpenSSL, too
except ImportError:  # another Python
    from hashlib import blake2b

SWITCH = "FLUIDTOOL_CACHE"
MOST = 4 << 30  # bytes of the whole cache
LARGEST = MOST // 4  # bytes of a constant
KEPT_AFTER_TRIMMING = 0.75  # of what a cache may hold, so that not every new file makes room
SETTLED = 2_000_000_000  # nanoseconds: a file written since then could be written to again without a new time
MAGIC, PAGE = b"fluidtool packed", 4096
TRAILER = struct.Struct(
    "=16sQ32s"
)  # magic, bytes of numbers, digest; numbers come first, where the system can use large pages

Array = NDArray[np.float32]


class FileCache:
    """Bytes by name, in files of a folder that has at most `most` bytes."""

    def __init__(self, folder: Path, most: int) -> None:
        self.folder, self.most = folder, most
        self._bytes: int | None = None  # in the folder, as far as this process knows; None before it has written there

    def read(self, name: str) -> memoryview | None:
        """The contents of a file that is whole, mapped; else None."""
        path = self.folder / name
        try:
            data = map_unwatched(path)
        except OSError:
            return None
        size = len(data) - TRAILER.size
        if size < 0 or data[size:] != trailer(name, data[:size]):
            return None
        with suppress(OSError):  # removed meanwhile
            os.utime(path)  # used now
        return data[:size]

    def write(self, name: str, contents: Any) -> None:
        """Write a file, which takes its name when it is whole. It is not brought to the disk: the digest tells.

        Raises OSError for a full disk, or a folder that somebody removes.
        """
        from fluidtool.disk import settle  # most starts only read
        from fluidtool.disk.temporary import Temporary

        if self._bytes is None:
            settle(self.folder)
            self._bytes = sum(size for _, size, _ in self._files())
        if self._bytes + len(contents) > self.most:
            self._bytes = self._trim(int(self.most * KEPT_AFTER_TRIMMING) - len(contents))
        temporary = Temporary.file(self.folder / name)
        try:
            temporary.write([contents, trailer(name, contents)])
            os.replace(temporary.path, self.folder / name)
        finally:
            temporary.close()
        self._bytes += len(contents) + TRAILER.size

    def _files(self) -> list[tuple[float, int, str]]:
        """When each file was last used, its bytes, its path."""
        found = []
        for entry in os.scandir(self.folder):
            with suppress(OSError):  # another process removes files, too
                status = entry.stat(follow_symlinks=False)
                found.append((status.st_mtime, status.st_size, entry.path))
        return found

    def _trim(self, most: int) -> int:
        """Remove the least recently used files until `most` bytes are left; returns how many are."""
        files = sorted(self._files(), reverse=True)
        kept = 0
        for _, size, path in files:
            if kept + size <= most:
                kept += size
            else:
                with suppress(OSError):
                    os.unlink(path)
        return kept


class WeightCache(FileCache):
    """Packed constants by names. most: bytes of all of them."""

    def __init__(self, folder: Path, most: int | None = None) -> None:
        super().__init__(folder, MOST if most is None else most)
        self._named: WeakValueDictionary[str, Array] = WeakValueDictionary()  # those that are in files

    def get(self, what: str, floats: int, make: Callable[[], Array]) -> Array:
        """The constant that `what` describes, mapped; packed by `make` if the cache does not have it, and then written there."""
        name = digest_of(what)
        found = self.constant(name, floats)
        if found is None:
            found = make()
            if found.nbytes > LARGEST:
                return found
            with suppress(OSError):  # the next process packs again
                self.write(name, found.view(np.uint8).data)
                self._named[name] = found
        return found

    def constant(self, name: str, floats: int) -> Array | None:
        """The constant in the file of a name; None if there is no such file that is whole."""
        data = self.read(name)
        if data is None or len(data) != 4 * floats:
            return None
        found = self._named[name] = np.frombuffer(data, np.float32, floats)
        return found

    def name_of(self, constant: Array) -> str:
        """The name of the file that has a constant; '' if none has it."""
        return next((name for name, array in self._named.items() if array is constant), "")


def digest_of(text: str) -> str:
    """The name of a file of a cache for what a text says."""
    return blake2b(text.encode(), digest_size=32).hexdigest()


def trailer(name: str, numbers: Any) -> bytes:
    """What a file of the cache ends with: its name and every page of its numbers enter the digest.

    A page is summed, modulo 2**64, as fast as memory is read; the sums are digested in their order.
    """
    whole = len(numbers) // PAGE * PAGE
    pages = np.frombuffer(numbers, np.uint64, whole // 8).reshape(-1, PAGE // 8)
    digest = blake2b(name.encode(), digest_size=32)
    digest.update(np.add.reduce(pages, axis=1).data)
    digest.update(numbers[whole:])
    return TRAILER.pack(MAGIC, len(numbers), digest.digest())


def weight_cache() -> WeightCache | None:
    """The cache of this user for packed constants; None as for `own_folder`."""
    return cache_of_user("weights")


def cache_of_user(kind: str, most: int | None = None) -> WeightCache | None:
    """A cache of one kind of numbers, in a folder of its own; None as for `own_folder`."""
    folder = own_folder(kind)
    return None if folder is None else WeightCache(folder, most)


def own_folder(name: str) -> Path | None:
    """A folder in this user's cache; None if the cache is off, or if the folder is somebody else's or cannot be made."""
    if is_off(SWITCH):
        return None
    try:
        folder = cache_folder() / "fluidtool" / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder if is_private(folder) else None
    except (OSError, RuntimeError):  # RuntimeError: nobody knows where the user's home is
        return None


def cache_folder() -> Path:
    """Where the programs of this user keep what they could make again."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    named = os.environ.get("XDG_CACHE_HOME", "")
    return Path(named) if os.path.isabs(named) else Path.home() / ".cache"


def is_private(folder: Path) -> bool:
    """Whether a folder is one, belongs to this user, and nobody else can write to it."""
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode):
        return False
    return os.name != "posix" or (status.st_uid == os.geteuid() and not status.st_mode & 0o022)


def origin(parameters: Sequence[NDArray[Any]], library: Library) -> str:
    """What constants packed by a library from some parameters depend on, except how; '' if it cannot be told at low cost.

    A parameter is known by the place, the times and the number of the file that it is mapped from, a short one by its values.
    """
    known = [identity(array) for array in parameters]
    if not all(known):
        return ""
    engine = os.stat(library.path)
    return repr((
        __version__, sys.byteorder, engine.st_size, engine.st_mtime_ns, library.instructions, library.width,
        library.precision, known,
    ))  # fmt: skip


def identity(array: NDArray[Any]) -> tuple[Any, ...]:
    """What tells a parameter from any other; () if only reading all of it would."""
    file = file_of(array)
    if file is None:
        return (array.tobytes(), array.shape, array.dtype.char) if array.nbytes <= PAGE * 4 else ()
    status = file.status
    if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) < SETTLED:
        return ()
    place = array.__array_interface__["data"][0] - file.start
    times = status.st_mtime_ns, status.st_ctime_ns
    return (file.path, status.st_dev, status.st_ino, status.st_size, *times, place, array.shape, array.strides)
