"""Runs a script for Paddle as `python script.py` would, and explains its failures."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType

import fluidtool
from fluidtool.compat import python2
from fluidtool.compat.children import children_know_paddle
from fluidtool.compat.cpu import on_cpu
from fluidtool.compat.removed.feeds import narrow_feeds
from fluidtool.compat.removed.giving import old_names
from fluidtool.compat.removed.notes import Notes
from fluidtool.compat.standin import install
from fluidtool.records import dataclass

_PACKAGE = Path(fluidtool.__file__).parent
_OURS = tuple(f"{folder}/" for folder in (_PACKAGE, *((_PACKAGE / name).resolve() for name in ("ops", "proto"))))
_LIBRARY = f"{Path(traceback.__file__).parent}/"


def run_script(path: Path, arguments: Sequence[str] = ()) -> None:
    """`run_source` of the script at `path`; raises OSError when it cannot be read."""
    run_source(path.read_bytes(), path, arguments)


@dataclass(frozen=True)
class Dialect:
    """How to run a script: GPUs as the CPU, the text as Python 2, in a process that ends with it."""

    on_cpu: bool = False
    python2: bool = False
    last: bool = False


def run_source(source: bytes, path: Path, arguments: Sequence[str] = (), dialect: Dialect = Dialect()) -> None:
    """Run a script as `__main__`, with its arguments in `sys.argv` and the folder of `path` first in `sys.path`.

    Names that Python, numpy and Pillow have dropped exist (`old_names`). Anything the script raises is raised, SystemExit
    included. In a process that ends with it, it remains `__main__`: Python then clears its globals one by one, so that files
    are written out that the script has left open; the collector of garbage would close what is below them first.
    """
    main = ModuleType("__main__")
    main.__file__ = str(path)
    before = sys.argv, sys.path[:], sys.modules["__main__"]
    sys.argv, sys.modules["__main__"] = [str(path), *arguments], main
    sys.path.insert(0, str(path.resolve().parent))
    try:
        with _environment(dialect, path):
            text = python2.translated(source, str(path)) if dialect.python2 else source
            exec(compile(text, str(path), "exec", dont_inherit=True), vars(main))
    finally:
        sys.argv, sys.path[:] = before[:2]
        if not dialect.last:
            sys.modules["__main__"] = before[2]


@contextmanager
def _environment(dialect: Dialect, path: Path) -> Iterator[None]:
    """The environment of a script while it runs."""
    notes = Notes()
    with install(on_cpu(notes.say) if dialect.on_cpu else None), old_names(notes), ExitStack() as stack:
        stack.enter_context(children_know_paddle(dialect.on_cpu))
        stack.enter_context(narrow_feeds(notes))
        if dialect.python2:
            stack.enter_context(python2.imports_translated(path.parent))
        yield


def where(error: BaseException) -> str:
    """The innermost line outside fluidtool and Python's own library that the error passed: file, number, source; '' if none."""
    passed = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in passed if _is_users(frame) and not _is_pythons(frame)]
    if not frames:
        return ""
    frame = frames[-1]
    return f"{frame.filename}, line {frame.lineno}: {frame.line}"


def users_traceback(error: BaseException) -> str:
    """The traceback as Python prints it, without the frames of fluidtool and of Python's import system."""
    report = traceback.TracebackException.from_exception(error)
    _strip(report)
    return "".join(report.format())


def _strip(report: traceback.TracebackException) -> None:
    report.stack = traceback.StackSummary.from_list([frame for frame in report.stack if _is_users(frame)])
    for earlier in (report.__cause__, report.__context__):
        if earlier is not None:
            _strip(earlier)


def _is_users(frame: traceback.FrameSummary) -> bool:
    return not frame.filename.startswith((*_OURS, "<frozen "))


def _is_pythons(frame: traceback.FrameSummary) -> bool:
    below = frame.filename.removeprefix(_LIBRARY)
    return below != frame.filename and not below.startswith(("site-packages/", "dist-packages/"))
