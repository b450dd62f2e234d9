"""Engines: the array libraries that operator bodies run on, one folder each."""

from __future__ import annotations

from fluidtool.errors import DeviceError, UsageError
from fluidtool.ops.context import Device
from fluidtool.runtime.engines.native.library import Library, library, switched_off
from fluidtool.tensor import CUDAPlace, Place

ENGINES = ("auto", "native", "numpy")


def device_for(place: Place) -> Device:
    """The array engine of a place; raises DeviceError when this machine does not have it."""
    if isinstance(place, CUDAPlace):
        from fluidtool.runtime.engines.cupy import CupyDevice

        return CupyDevice(place.device_id)
    from fluidtool.runtime.engines.numpy import NUMPY

    return NUMPY


def native_library(engine: str = "auto") -> Library | None:
    """The native engine when it is asked for or there by itself; None for numpy.

    Raises UsageError for an unknown engine, DeviceError when 'native' is asked for and not built.
    """
    if engine not in ENGINES:
        raise UsageError(f"there is no engine {engine!r}; the engines are {', '.join(ENGINES)}")
    if engine == "numpy" or (engine == "auto" and switched_off()):
        return None
    found = library()
    if found is None and engine == "native":
        raise DeviceError(
            "the native engine is not here: it is built at installation when a C compiler is there, or by "
            "'python -m fluidtool.runtime.engines.native.build'"
        )
    return found
