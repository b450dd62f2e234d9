"""Names that modules have dropped, and their replacements: a module and a name in it, or a function that creates it."""

from __future__ import annotations

import ast
import importlib
import inspect
import math
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


def asfarray(array: Any, dtype: Any = float) -> Any:
    """An array of floating point: integers become float64."""
    import numpy as np

    return np.asarray(array, dtype=dtype if np.issubdtype(dtype, np.inexact) else np.float64)


def alen(array: Any) -> int:
    """The length of the first dimension; 1 for a number."""
    import numpy as np

    return len(np.atleast_1d(array))


def find_common_type(array_types: Any, scalar_types: Any) -> Any:
    """The type of arrays; scalars count only when they are of a higher kind (numpy 1.25 numerictypes.py)."""
    import numpy as np

    arrays, scalars = [[np.dtype(each) for each in types] for types in (array_types, scalar_types)]
    if not arrays or not scalars:
        return np.result_type(*(arrays or scalars)) if arrays or scalars else None
    of_arrays, of_scalars = np.result_type(*arrays), np.result_type(*scalars)
    kinds = "buifcSUVO"
    return of_scalars if kinds.index(of_scalars.kind) > kinds.index(of_arrays.kind) else of_arrays


def disp(message: Any, device: Any = None, linefeed: bool = True) -> None:
    """Write a message to a stream, stdout by default."""
    print(message, end="\n" if linefeed else "", file=device, flush=True)


class Casts(dict[Any, Callable[[Any], Any]]):
    """By type, a function that converts: `numpy.cast["float32"](array)`."""

    def __missing__(self, kind: Any) -> Callable[[Any], Any]:
        import numpy as np

        return lambda array: np.asarray(array).astype(kind)


def recfromcsv(name: Any, **named: Any) -> Any:
    """Records of a file of values between commas, with lower-case names from its first line."""
    import numpy as np

    options = {"case_sensitive": "lower", "names": True, "delimiter": ",", "dtype": None, "encoding": "bytes"}
    return np.genfromtxt(name, **{**options, **named}).view(np.recarray)


cast = Casts()
safe_eval = ast.literal_eval
NINF, PZERO, NZERO = -math.inf, 0.0, -0.0

_PROVIDED = (
    "NINF",
    "NZERO",
    "PZERO",
    "alen",
    "asfarray",
    "asscalar",
    "cast",
    "disp",
    "find_common_type",
    "recfromcsv",
    "safe_eval",
)
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
    "msort": "numpy.sort",
    "int0": "numpy.intp",
    "uint0": "numpy.uintp",
    "object0": "numpy.object_",
    "str0": "numpy.str_",
    "bytes0": "numpy.bytes_",
    "void0": "numpy.void",
    "cfloat": "numpy.complex128",
    "singlecomplex": "numpy.complex64",
    "longcomplex": "numpy.clongdouble",
    "clongfloat": "numpy.clongdouble",
    "issubsctype": "numpy.issubdtype",
    "issubclass_": "builtins.issubclass",
    "typeDict": "numpy.sctypeDict",
    "loads": "pickle.loads",
    "byte_bounds": "numpy.lib.array_utils.byte_bounds",
    **{name: f"{__name__}.{name}" for name in _PROVIDED},
}

REMOVED: Mapping[str, Mapping[str, str]] = {
    "numpy": _NUMPY,
    "numpy.lib": {"pad": "numpy.pad", "arraysetops": "numpy", "function_base": "numpy", "shape_base": "numpy"},
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
    "scipy.misc": {
        name: f"fluidtool.compat.removed.pictures.{name}"
        for name in ("bytescale", "fromimage", "imread", "imresize", "imsave", "toimage")
    },
}


def stands_for(path: str) -> Any:
    """The object or module that a path names; raises AttributeError."""
    if "." not in path:
        return importlib.import_module(path)
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)
