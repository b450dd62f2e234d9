"""Engines: the array libraries that operator bodies run on, one folder each."""

from __future__ import annotations

from fluidtool.errors import DeviceError, UsageError
from fluidtool.ops.context import Device
from fluidtool.runtime.engines.native.library import BUILD, Library, absence, library, switched_off
from fluidtool.tensor import CUDAPlace, Place

ENGINES = ("auto", "native", "numpy")


def device_for(place: Place) -> Device:
    """The array engine of a place; raises DeviceError when this machine does not have it."""
    if isinstance(place, CUDAPlace):
        from fluidtool.runtime.engines.cupy import CupyDevice

        return CupyDevice(place.device_id)
    from fluidtool.runtime.engines.numpy import NUMPY

    return NUMPY


def native_library(engine: str = "auto", place: Place | None = None) -> Library | None:
    """The native engine when it is asked for or there by itself; None where numpy, or a GPU's engine, computes all.

    Raises UsageError for an unknown engine or one that does not belong to `place`, DeviceError when 'native' is asked
    for and not there.
    """
    if engine not in ENGINES:
        raise UsageError(f"there is no engine {engine!r}; the engines are {', '.join(ENGINES)}")
    if isinstance(place, CUDAPlace):
        if engine != "auto":
            raise UsageError(f"the engine {engine} computes on the CPU, but the device is a GPU; leave one of them out")
        return None
    if engine == "numpy" or (engine == "auto" and switched_off()):
        return None
    found = library()
    if found is None and engine == "native":
        raise DeviceError(f"the native engine is not here; {absence() or f'build it by {BUILD}'}")
    return found
