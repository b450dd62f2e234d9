"""Starts: what the first run of a model leaves in the user's cache, so that the next process runs the model at once.

A start has what the model's program declares of its inputs, and regions that the native engine compiled, by the shapes of these.
It is named by how the model was opened, and believed as long as every file that it depends on - of the program, of parameters,
of fluidtool itself - is the one that it was made from (docs/adr/0022-starts-from-the-cache.md).
"""

from __future__ import annotations

import marshal
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fluidtool import locks
from fluidtool._version import __version__
from fluidtool.errors import Location, UnreadableError
from fluidtool.records import dataclass
from fluidtool.runtime.engines.native import cache
from fluidtool.runtime.engines.native.cache import FileCache, digest_of, own_folder, weight_cache
from fluidtool.runtime.engines.native.kept import END, unpacked
from fluidtool.runtime.engines.native.library import INSTRUCTIONS, INT8, Library, library, library_path, switched_off
from fluidtool.runtime.engines.native.region import NativeRegion
from fluidtool.runtime.signatures import lod_of_value, signature
from fluidtool.runtime.straight import computed
from fluidtool.tensor import CPUPlace, LoDTensor, Place

if TYPE_CHECKING:
    from fluidtool.io.layout import ModelFiles
    from fluidtool.report.common import EngineUse
    from fluidtool.runtime.partition import Region

FORMAT = 2  # of what is written here; another for another
MOST = 1 << 28  # bytes of all starts
VERIFY = "FLUIDTOOL_VERIFY"  # asks for checks while a region is compiled
ENGINES = frozenset({"auto", "native"})
LAYOUTS = frozenset({"one combined file", "one file per parameter", "program without parameters"})
Status = tuple[str, int, int, int, int, int]  # of a file: path, device, number, bytes, when written, when changed


class Declared(NamedTuple):
    """What a program declares of a variable; `shape` is None if it declares none."""

    name: str
    type: int
    dtype: int | None
    shape: tuple[int, ...] | None
    lod_level: int


@dataclass(frozen=True, slots=True)
class Origin:
    """How a model is opened: what names its start, the paths that were given, the cache, and when the opening began (ns)."""

    key: str
    paths: Sequence[str]
    files: FileCache
    begun: int


def origin_of(
    source: Any, model_filename: str | None, params: Any, place: Place, engine: str, precision: str
) -> Origin | None:
    """The origin of a model that may start from the cache; None for one that is no file, or runs elsewhere."""
    begun, path = time.time_ns(), library_path()
    if path is None or type(place) is not CPUPlace or engine not in ENGINES or switched_off():
        return None
    if isinstance(source, bytes) or isinstance(params, bytes) or os.environ.get(VERIFY, "") not in ("", "0"):
        return None
    try:
        paths = [os.path.abspath(os.fsdecode(given)) for given in (source, params) if given is not None]
    except TypeError:  # a file object
        return None
    folder = own_folder("starts")
    if folder is None:
        return None
    environment = [os.environ.get(name, "") for name in (INSTRUCTIONS, INT8)]
    key = repr((
        FORMAT, __version__, sys.implementation.cache_tag, sys.byteorder, np.__version__, str(path), environment,
        precision, paths, params is None, model_filename,
    ))  # fmt: skip
    return Origin(digest_of(key), paths, FileCache(folder, MOST), begun)


@dataclass(eq=False, slots=True)
class Start:
    """What a process needs to run a model: the inputs, as they are declared and in the order of the region's, the outputs,
    the number of operators, and regions by the signature of their inputs.
    """

    origin: Origin
    precision: str
    status: Sequence[Status]  # of all that it depends on
    declared: Sequence[Declared]
    inputs: Sequence[str]
    pooled: frozenset[str]
    fetches: Sequence[str]
    operators: int
    regions: dict[Any, NativeRegion] = field(default_factory=dict)
    lock: Lock = field(default_factory=locks.lock)

    def run(self, feed: Mapping[str, Any], fetch: Sequence[str]) -> list[Any] | None:
        """The outputs; None if the model has to be opened for them: for other outputs, shapes that no start has, values
        that the operators refuse.
        """
        if list(fetch) != list(self.fetches) or len(feed) != len(self.inputs):
            return None
        values = [feed.get(name) for name in self.inputs]
        arrays = [value.array if type(value) is LoDTensor else value for value in values]
        if not all([type(array) is np.ndarray and array.size and array.dtype.isnative for array in arrays]):
            return None
        lods = [lod_of_value(value) for value in values]
        region = self._region(signature(self.inputs, self.pooled, arrays, lods))
        return None if region is None else computed(region, self.inputs, arrays, lods, self.fetches)

    def _region(self, key: Any) -> NativeRegion | None:
        """The region for a signature, from the cache when it is first needed."""
        with self.lock:
            found = self.regions.get(key)
            engine = None if found is not None else library()
            if engine is not None:
                data = self.origin.files.read(name_of(self.origin, engine, key))
                contents = None if data is None else self._believed(data)
                with suppress(UnreadableError):  # a parameter file that is gone
                    found = None if contents is None else unpacked(contents, engine, weight_cache())
            if found is not None:
                self.regions[key] = found
            return found

    def _believed(self, data: memoryview) -> memoryview | None:
        """The contents of a region's file; None if something that it was made from has changed, which stands behind them.

        Another process may have left it, before the files changed from which the last one made this start.
        """
        (at,) = END.unpack(data[-END.size :])
        believed = set(self.status)
        for before in marshal.loads(data[at : -END.size]):
            if before not in believed and status_of(before[0]) != before:
                return None
        return data[:at]

    def engine_used(self) -> EngineUse:
        """What computes its runs, as `fluidtool.workflows.engine_use` says it of a plan of one region."""
        engine = library()
        assert engine is not None  # it has run
        used: EngineUse = {"name": "native", "operators": self.operators, "threads": engine.threads}
        used["instructions"] = engine.instructions
        used["operators_in_regions"], used["regions"] = self.operators, 1
        if self.precision != "float32":
            used["precision"] = self.precision
        return used

    def require_unchanged(self) -> None:
        """Raise UnreadableError if a file is not the one any more that the start was made from."""
        for before in self.status:
            if status_of(before[0]) != before:
                raise UnreadableError(
                    f"{before[0]} was changed after the model was loaded",
                    hint="load the model again",
                    location=Location(before[0]),
                )


def found_start(origin: Origin, precision: str) -> Start | None:
    """The start of a model; None if there is none, or if something that it depends on has changed."""
    data = origin.files.read(origin.key)
    if data is None:
        return None
    status, declared, inputs, pooled, fetches, operators = marshal.loads(data)
    if any(status_of(before[0]) != before for before in status):
        return None
    declarations = [Declared(*each) for each in declared]
    return Start(origin, precision, status, declarations, inputs, frozenset(pooled), fetches, operators)


def keep_start(
    origin: Origin, files: ModelFiles, declared: Sequence[Declared], fetches: Sequence[str], region: Region,
    feed: Mapping[str, Any],
) -> None:  # fmt: skip
    """Keep what a run of a model, which was all of one region, has compiled for this feed.

    Nothing is kept of what another engine computed, or of files that were written to a moment ago.
    """
    from fluidtool.runtime.engines.native.kept import packed_up

    values = [feed.get(name) for name in region.inputs]
    arrays = [value.array if type(value) is LoDTensor else value for value in values]
    if len(feed) != len(values) or len(set(fetches)) != len(fetches) != 0:
        return
    if not all(type(array) is np.ndarray for array in arrays):
        return
    key = region.signature(arrays, [lod_of_value(value) for value in values])
    specializations = region.specializations
    with specializations.lock:
        compiled = specializations.kept.get(key)
    status = _settled(origin, files)
    if not isinstance(compiled, NativeRegion) or status is None:
        return
    contents = packed_up(compiled, specializations.packed.file_name)
    if contents is None:
        return
    described = (
        status, [tuple(each) for each in declared], region.inputs, sorted(region.pooled), list(fetches), len(region.steps),
    )  # fmt: skip
    with suppress(OSError):  # a full disk, or a folder that somebody removes: the next process compiles again
        told = [contents, marshal.dumps(status), END.pack(len(contents))]
        origin.files.write(name_of(origin, compiled.library, key), b"".join(told))
        origin.files.write(origin.key, marshal.dumps(described))


def name_of(origin: Origin, engine: Library, key: Any) -> str:
    """The name of the file that has the region of a model for a signature, cut into tasks for so many threads."""
    return digest_of(repr((origin.key, engine.instructions, engine.width, engine.threads, key)))


def _settled(origin: Origin, files: ModelFiles) -> list[Status] | None:
    """The status of all files that a start of this model depends on; None if one cannot be told, or may be changing."""
    if files.given == "bytes" or files.layout not in LAYOUTS:
        return None
    paths = {os.path.abspath(files.program_source), *_places(files)}
    folders = {*map(os.path.dirname, paths), *origin.paths}
    found = [status_of(path) for path in sorted({*paths, *filter(os.path.isdir, folders), *_code()})]
    if any(status is None or max(status[4:]) > origin.begun - cache.SETTLED for status in found):
        return None
    return [status for status in found if status is not None]


def _places(files: ModelFiles) -> Iterable[str]:
    """The files of the parameters."""
    return {os.path.abspath(files.parameters.entry(name)[2]) for name in files.parameters}


def _code() -> Iterable[str]:
    """The files of all of fluidtool that took part, and the library."""
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if path is not None and name.partition(".")[0] == "fluidtool":
            yield path
    yield str(library_path())


def status_of(path: str) -> Status | None:
    """What tells a file or folder from another, and from what it was before it was written to; None if it is gone."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
