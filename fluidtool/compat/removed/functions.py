"""Functions with arguments that they no longer take, and methods that classes no longer have: of Python, numpy, PyYAML, Pillow."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import wraps
from types import ModuleType
from typing import Any

from fluidtool.compat.removed.notes import Notes

Function = Callable[..., Any]


def _fromstring(function: Function, notes: Notes) -> Function:
    @wraps(function)
    def fromstring(string: Any, dtype: Any = float, count: int = -1, *, sep: str = "", **named: Any) -> Any:
        if sep:
            return function(string, dtype, count, sep=sep, **named)
        import numpy as np

        notes.say("numpy.fromstring no longer reads bytes; fluidtool uses numpy.frombuffer and copies")
        return np.frombuffer(string.encode() if isinstance(string, str) else string, dtype, count).copy()

    return fromstring


def _of_arrays(function: Function, notes: Notes) -> Function:
    @wraps(function)
    def stacked(arrays: Any, *args: Any, **named: Any) -> Any:
        if isinstance(arrays, Iterator):
            notes.say(f"numpy.{function.__name__} no longer takes an iterator; fluidtool makes a list of it")
            arrays = list(arrays)
        return function(arrays, *args, **named)

    return stacked


def _of_uneven_rows(position: int) -> Callable[[Function, Notes], Function]:
    """A wrapper for a function that made an array of objects of an argument whose rows have different lengths."""

    def wrapper(function: Function, notes: Notes) -> Function:
        @wraps(function)
        def called(*args: Any, **named: Any) -> Any:
            try:
                return function(*args, **named)
            except ValueError as error:
                if "inhomogeneous" not in str(error) or len(args) <= position:
                    raise
            import numpy as np

            notes.say("numpy no longer accepts rows of different lengths; fluidtool makes an array of objects")
            rows = np.array(args[position], dtype=object)
            return function(*args[:position], rows, *args[position + 1 :], **named)

        return called

    return wrapper


def _sum(function: Function, notes: Notes) -> Function:
    @wraps(function)
    def summed(array: Any, *args: Any, **named: Any) -> Any:
        if isinstance(array, Iterator):
            notes.say("numpy.sum no longer takes an iterator; fluidtool uses sum")
            return sum(array)
        return function(array, *args, **named)

    return summed


def _renamed(old: str, new: str) -> Callable[[Function, Notes], Function]:
    """A wrapper for a function one of whose arguments has another name now."""

    def wrapper(function: Function, notes: Notes) -> Function:
        @wraps(function)
        def called(*args: Any, **named: Any) -> Any:
            if old in named:
                notes.say(f"{function.__name__} no longer takes {old}; fluidtool passes it as {new}")
                named[new] = named.pop(old)
            return function(*args, **named)

        return called

    return wrapper


def _load(function: Function, notes: Notes) -> Function:
    @wraps(function)
    def load(stream: Any, Loader: Any = None) -> Any:
        if Loader is None:
            from importlib import import_module

            notes.say(
                f"yaml.{function.__name__} has needed a Loader since PyYAML 6; fluidtool uses FullLoader, as PyYAML 5 did"
            )
            Loader = import_module("yaml").FullLoader
        return function(stream, Loader)

    return load


def _without_encoding(function: Function, notes: Notes) -> Function:
    @wraps(function)
    def read(text: Any, *args: Any, **named: Any) -> Any:
        if "encoding" in named:  # of no effect in Python 3
            notes.say(f"json.{function.__name__} has taken no encoding since Python 3.9; fluidtool omits it")
            del named["encoding"]
        return function(text, *args, **named)

    return read


def _of_sets(function: Function, notes: Notes) -> Function:
    @wraps(function)
    def sample(population: Any, *args: Any, **named: Any) -> Any:
        if isinstance(population, Set):
            notes.say("random.sample has taken no sets since Python 3.11; fluidtool makes a tuple of it")
            population = tuple(population)
        return function(population, *args, **named)

    return sample


def _open(function: Function, notes: Notes) -> Function:
    @wraps(function)
    def opened(file: Any, mode: str = "r", *args: Any, **named: Any) -> Any:
        if isinstance(mode, str) and "U" in mode:  # universal newlines, as always in Python 3
            mode = mode.replace("U", "") if "r" in mode else mode.replace("U", "r")
        return function(file, mode, *args, **named)

    return opened


_METHOD = _renamed("interpolation", "method")
_DENSITY = _renamed("normed", "density")
FUNCTIONS: Mapping[str, Mapping[str, Callable[[Function, Notes], Function]]] = {
    "builtins": {"open": _open},
    "numpy": {
        "fromstring": _fromstring,
        "reshape": _renamed("newshape", "shape"),
        "sum": _sum,
        **dict.fromkeys(("asanyarray", "copy", "ndim", "repeat", "shape", "size", "take"), _of_uneven_rows(0)),
        "save": _of_uneven_rows(1),
        **dict.fromkeys(("stack", "vstack", "hstack", "dstack", "column_stack"), _of_arrays),
        **dict.fromkeys(("percentile", "quantile", "nanpercentile", "nanquantile"), _METHOD),
        **dict.fromkeys(("histogram", "histogram2d", "histogramdd"), _DENSITY),
    },
    "json": dict.fromkeys(("load", "loads"), _without_encoding),
    "random": {"sample": _of_sets},
    "yaml": dict.fromkeys(("load", "load_all"), _load),
}


def tostring(array: Any, order: str | None = "C") -> bytes:
    """The bytes of an array."""
    data: bytes = array.tobytes(order)
    return data


def itemset(array: Any, *args: Any) -> None:
    """Set one element: at an index, or the only one."""
    *index, value = args
    place = index[0] if len(index) == 1 else tuple(index)
    if isinstance(place, tuple):
        array[place] = value
    else:
        array.flat[place if index else 0] = value


def ptp(array: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    """The largest number less the smallest."""
    import numpy as np

    return np.ptp(array, axis, out, keepdims)


def newbyteorder(array: Any, new_order: str = "S") -> Any:
    """The same bytes, read in another order."""
    return array.view(array.dtype.newbyteorder(new_order))


def isAlive(thread: Any) -> bool:
    """Whether the thread is still running."""
    alive: bool = thread.is_alive()
    return alive


def readfp(parser: Any, fp: Any, filename: str | None = None) -> None:
    """Read a configuration from an open file."""
    parser.read_file(fp, filename)


def getchildren(element: Any) -> list[Any]:
    """The elements right below."""
    return list(element)


def getiterator(element: Any, tag: str | None = None) -> list[Any]:
    """The element and all below, of a tag if asked."""
    return list(element.iter(tag))


def textsize(draw: Any, text: str, font: Any = None, *args: Any, **named: Any) -> tuple[int, int]:
    """The width and the height of a text."""
    _, _, right, bottom = draw.textbbox((0, 0), text, font, None, *args, **named)
    return int(right), int(bottom)


def getsize(font: Any, text: str, *args: Any, **named: Any) -> tuple[int, int]:
    """The width and the height of a text."""
    _, _, right, bottom = font.getbbox(text, *args, **named)
    return int(right), int(bottom)


ARRAYS = (tostring, itemset, ptp, newbyteorder)
METHODS: Mapping[str, Mapping[str, Sequence[Function]]] = {
    "numpy": {"ndarray": ARRAYS, "generic": ARRAYS},
    "threading": {"Thread": (isAlive,)},
    "configparser": {"RawConfigParser": (readfp,)},
    "xml.etree.ElementTree": {"Element": (getchildren, getiterator), "ElementTree": (getiterator,)},
    "PIL.ImageDraw": {"ImageDraw": (textsize,)},
    "PIL.ImageFont": {"FreeTypeFont": (getsize,), "ImageFont": (getsize,)},
}


def _with_whole_colors(getink: Function) -> Function:
    """`ImageDraw` with colors of floats: since Python 3.10 none passes for an integer."""

    @wraps(getink)
    def call(draw: Any, ink: Any, fill: Any = None) -> Any:
        return getink(draw, _whole(ink), _whole(fill))

    return call


def _whole(color: Any) -> Any:
    return tuple(int(part) for part in color) if isinstance(color, (tuple, list)) else color


def _change_colors(module: ModuleType) -> Callable[[], None]:
    before = getattr(getattr(module, "ImageDraw", None), "_getink", None)
    if module.__name__ != "PIL.ImageDraw" or before is None:
        return lambda: None
    module.ImageDraw._getink = _with_whole_colors(before)
    return lambda: setattr(module.ImageDraw, "_getink", before)


def give_methods(module: ModuleType) -> Callable[[], None]:
    """Give a module's classes the methods that they have lost; returns what takes them away again.

    Python code cannot add to a class written in C, but to the dictionary behind its `__dict__`. Nothing is done where Python is
    not CPython.
    """
    undo = [
        _give(getattr(module, name), method)
        for name, methods in METHODS.get(module.__name__, {}).items()
        for method in methods
        if _lacks(getattr(module, name), method)
    ]
    undo.append(_change_colors(module))

    def take_away() -> None:
        for each in undo:
            each()

    return take_away


def print_scalars_as_numbers(numpy: ModuleType) -> Callable[[], None]:
    """Print `1.5` for a number of numpy in a list, not `np.float64(1.5)`, as before numpy 2; returns what undoes it."""
    before = numpy.get_printoptions()["legacy"]
    numpy.set_printoptions(legacy="1.25")
    return lambda: numpy.set_printoptions(legacy=before)


def _lacks(kind: type, method: Function) -> bool:
    return sys.implementation.name == "cpython" and not hasattr(kind, method.__name__)


def _give(kind: type, method: Function) -> Callable[[], None]:
    names = gc.get_referents(vars(kind))[0]
    names[method.__name__] = method
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))

    def undo() -> None:
        names.pop(method.__name__, None)
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))

    return undo
