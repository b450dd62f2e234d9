"""Names that modules have dropped, and their replacements: a module and a name in it, or a function that creates it."""

from __future__ import annotations

import importlib
import inspect
from collections import abc, namedtuple
from collections.abc import Callable, Mapping
from typing import Any

ArgSpec = namedtuple("ArgSpec", "args varargs keywords defaults")


def getargspec(function: Callable[..., Any]) -> ArgSpec:
    """`inspect.getargspec` of Python 3.10; raises ValueError for what it cannot express."""
    spec = inspect.getfullargspec(function)
    if spec.kwonlyargs or spec.annotations:
        raise ValueError(
            "Function has keyword-only parameters or annotations, use inspect.signature() API which can support them"
        )
    return ArgSpec(spec.args, spec.varargs, spec.varkw, spec.defaults)


def asscalar(array: Any) -> Any:
    """The only element of an array, as a number of Python."""
    return array.item()


_BUILTINS = "bool int float complex object str"
_NUMPY = {
    **{name: f"builtins.{name}" for name in _BUILTINS.split()},
    "long": "builtins.int",
    "unicode": "builtins.str",
    "bool8": "numpy.bool_",
    "float_": "numpy.float64",
    "complex_": "numpy.complex128",
    "longfloat": "numpy.longdouble",
    "string_": "numpy.bytes_",
    "unicode_": "numpy.str_",
    "Inf": "numpy.inf",
    "Infinity": "numpy.inf",
    "infty": "numpy.inf",
    "PINF": "numpy.inf",
    "NaN": "numpy.nan",
    "NAN": "numpy.nan",
    "product": "numpy.prod",
    "cumproduct": "numpy.cumprod",
    "sometrue": "numpy.any",
    "alltrue": "numpy.all",
    "round_": "numpy.round",
    "row_stack": "numpy.vstack",
    "in1d": "numpy.isin",
    "trapz": "numpy.trapezoid",
    "mat": "numpy.asmatrix",
    "rank": "numpy.ndim",
    "asscalar": "fluidtool.compat.removed.names.asscalar",
    "msort": "numpy.sort",
}

REMOVED: Mapping[str, Mapping[str, str]] = {
    "numpy": _NUMPY,
    "collections": {name: f"collections.abc.{name}" for name in abc.__all__},
    "time": {"clock": "time.process_time"},
    "inspect": {"getargspec": "fluidtool.compat.removed.names.getargspec"},
    "fractions": {"gcd": "math.gcd"},
    "base64": {"encodestring": "base64.encodebytes", "decodestring": "base64.decodebytes"},
    "locale": {"format": "locale.format_string"},
    "logging": {"warn": "logging.warning"},
    "configparser": {"SafeConfigParser": "configparser.ConfigParser"},
    "cgi": {"escape": "html.escape"},
    "PIL.Image": {
        "ANTIALIAS": "PIL.Image.LANCZOS",
        "LINEAR": "PIL.Image.BILINEAR",
        "CUBIC": "PIL.Image.BICUBIC",
    },
}


def stands_for(path: str) -> Any:
    """The object that a path names; raises AttributeError."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)
