"""Engines: the array libraries that operator kernels run on, one folder each."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from fluidtool.errors import DeviceError, UsageError
from fluidtool.ops.context import Device
from fluidtool.runtime.engines.native.bfloat16 import PRECISIONS
from fluidtool.runtime.engines.native.library import BUILD, SWITCH, Library, absence, library, switched_off
from fluidtool.tensor import CUDAPlace, Place

if TYPE_CHECKING:
    from fluidtool.runtime.engines.delegate import DelegateEngine

ENGINES = ("auto", "native", "numpy", "onnxruntime", "openvino")


def device_for(place: Place) -> Device:
    """The array engine of a place; raises DeviceError when this machine does not have it."""
    if isinstance(place, CUDAPlace):
        from fluidtool.runtime.engines.cupy import CupyDevice

        return CupyDevice(place.device_id)
    from fluidtool.runtime.engines.numpy import NUMPY

    return NUMPY


def native_library(engine: str = "auto", place: Place | None = None, precision: str = "float32") -> Library | None:
    """The native engine when it is asked for or there by itself; None where numpy, or a GPU's engine, computes all.

    precision: 'bf16' rounds the weights of products and convolutions, and on some processors their inputs (docs/native.md),
    which only the native engine does. Raises UsageError for an unknown engine or precision, or one that does not belong to
    `place` or to the engine, DeviceError when the native engine is needed and not there.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"there is no precision {precision!r}; the precisions are {', '.join(PRECISIONS)}")
    if precision == "float32":
        return _chosen(engine, place)
    if engine in ENGINES and engine not in ("auto", "native"):
        raise UsageError(
            f"the precision {precision} needs the native engine, found the engine {engine}; take engine native"
        )
    if isinstance(place, CUDAPlace):
        raise UsageError(
            f"the precision {precision} needs the native engine, but the device is a GPU; leave one of them out"
        )
    found = _chosen(engine, place)
    if found is None:
        why = absence() or f"switched off by {SWITCH}={os.environ.get(SWITCH)}"
        raise DeviceError(f"the precision {precision} needs the native engine, which is not in use: {why}")
    return replace(found, precision=precision)


def _chosen(engine: str, place: Place | None) -> Library | None:
    if engine not in ENGINES:
        raise UsageError(f"there is no engine {engine!r}; the engines are {', '.join(ENGINES)}")
    if isinstance(place, CUDAPlace):
        if engine != "auto":
            raise UsageError(f"the engine {engine} computes on the CPU, but the device is a GPU; leave one of them out")
        return None
    if engine == "numpy" or (engine != "native" and switched_off()):
        return None
    found = library()
    if found is None and engine == "native":
        raise DeviceError(f"the native engine is not here; {absence() or f'build it by {BUILD}'}")
    return found


def delegate_for(engine: str) -> DelegateEngine | None:
    """The engine outside that regions are delegated to, or None; raises DeviceError where its package is not installed."""
    if engine in ("auto", "native", "numpy"):
        return None
    from fluidtool.runtime.engines.delegate import delegate_engine

    return delegate_engine(engine)
