"""The stand-in in the place of the real package, for the time of a test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

from tests.gpu.standin import libraries, special
from tests.gpu.standin.devices import MACHINE, cuda
from tests.gpu.standin.functions import OWN, filled
from tests.gpu.standin.kernels import RawModule
from tests.gpu.standin.names import names

PACKAGES = ("cupy", "cupyx", "nvmath", "cudnn")
MODULES = ("cupy", "cupyx", "cupyx.scipy", "cupyx.scipy.special")


@contextmanager
def installed(devices: int = 1) -> Iterator[Any]:
    """`import cupy` gives the stand-in within the block, on a machine with this many GPUs."""
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in PACKAGES}
    MACHINE.__init__()  # type: ignore[misc]
    MACHINE.count = devices
    made = dict(zip(MODULES, (cupy(), ModuleType("cupyx"), ModuleType("cupyx.scipy"), special.module()), strict=True))
    made["cupyx"].scipy = made["cupyx.scipy"]  # type: ignore[attr-defined]
    made["cupyx.scipy"].special = made["cupyx.scipy.special"]  # type: ignore[attr-defined]
    made |= libraries.modules()
    sys.modules.update(made)
    try:
        yield made["cupy"]
    finally:
        for name in made:
            del sys.modules[name]
        sys.modules.update(hidden)


def cupy() -> ModuleType:
    """The module cupy."""
    found = ModuleType("cupy")
    found.__dict__.update(
        filled("cupy", np),
        **OWN,
        __version__="14.2.0+standin",
        RawModule=RawModule,
        linalg=part("linalg", np.linalg),
        fft=part("fft", np.fft),
        lib=ModuleType("cupy.lib"),
        cuda=cuda(),
    )
    found.lib.stride_tricks = part("stride_tricks", np.lib.stride_tricks)
    found.__getattr__ = missing  # type: ignore[method-assign]
    return found


def part(name: str, library: Any) -> ModuleType:
    """A module within cupy."""
    found = ModuleType(f"cupy.{name}")
    found.__dict__.update(filled(name, library))
    return found


def missing(name: str) -> Any:
    """Raise AttributeError, which says whose fault it is."""
    why = "the stand-in lacks it; the real package has it" if name in names("cupy") else "nor has the real package"
    raise AttributeError(f"module 'cupy' has no attribute {name!r} ({why})")
