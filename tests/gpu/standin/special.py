"""cupyx.scipy.special, as far as operators use it."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from fluidtool.runtime.engines.numpy import special
from tests.gpu.standin.arrays import kernel, ndarray, new
from tests.gpu.standin.names import names
from tests.gpu.standin.ufuncs import ufunc

UFUNCS = ("erf", "erfinv", "gammaln", "digamma", "i0", "i0e", "i1", "i1e")


def polygamma(n: Any, x: Any) -> Any:
    """A derivative of digamma; both arguments are arrays (cupyx compares n with 0 on the device)."""
    if not isinstance(n, ndarray):
        raise AttributeError(f"'{type(n == 0).__name__}' object has no attribute 'astype'")
    kernel(n, x)
    return new(special.polygamma(n.host, x.host))


def module() -> ModuleType:
    """The module."""
    found = ModuleType("cupyx.scipy.special")
    for name in UFUNCS:
        setattr(found, name, ufunc(name, names("special")[name].loops, _checked(getattr(special, name)), 1, 1))
    found.polygamma = polygamma  # type: ignore[attr-defined]
    return found


def _checked(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def compute(x: Any) -> Any:
        return function(np.asarray(x))

    return compute
