"""Engines: the array libraries that operator bodies run on, one folder each."""

from __future__ import annotations

from fluidtool.ops.context import Device
from fluidtool.tensor import CUDAPlace, Place


def device_for(place: Place) -> Device:
    """The array engine of a place; raises DeviceError when this machine does not have it."""
    if isinstance(place, CUDAPlace):
        from fluidtool.runtime.engines.cupy import CupyDevice

        return CupyDevice(place.device_id)
    from fluidtool.runtime.engines.numpy import NUMPY

    return NUMPY
