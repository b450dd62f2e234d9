"""The engines: one row each. To add one, add a folder with `open_engine`, and a row."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from fluidtool.errors import DeviceError, UsageError
from fluidtool.ops.context import Device
from fluidtool.records import dataclass
from fluidtool.tensor import CUDAPlace, Place

if TYPE_CHECKING:
    from fluidtool.runtime.engines.base import Engine

AUTO = "auto"  # the native engine if it is available, else numpy
PRECISIONS = ("float32", "bf16")


@dataclass(frozen=True, slots=True)
class EngineRow:
    """An engine: its name, which is that of its folder, and its device.

    packages: the distributions that it needs, the first of which has its version; `extra` installs them. precisions: the
    precisions of products and convolutions that it supports.
    """

    name: str
    device: str
    packages: tuple[str, ...] = ()
    extra: str = ""
    precisions: tuple[str, ...] = ("float32",)


TABLE = (
    EngineRow("native", "CPU", precisions=PRECISIONS),
    EngineRow("numpy", "CPU"),
    EngineRow("onnxruntime", "CPU", ("onnxruntime", "onnx"), "onnxruntime"),
    EngineRow("openvino", "CPU", ("openvino",), "openvino"),
    EngineRow("cupy", "GPU", extra="gpu-cuda12"),
    EngineRow("cuda", "GPU", extra="gpu-cuda12"),
)
DELEGATES = tuple(row for row in TABLE if row.packages)
ONE_BY_ONE = "cupy"  # on a GPU: every operator by its own kernel
ENGINES = (AUTO, *(row.name for row in TABLE if row.device == "CPU"))


def device_for(place: Place) -> Device:
    """The arrays of a place; raises DeviceError if this machine does not have it."""
    if isinstance(place, CUDAPlace):
        from fluidtool.runtime.engines.cupy import CupyDevice

        return CupyDevice(place.device_id)
    from fluidtool.runtime.engines.numpy import NUMPY

    return NUMPY


def engine_for(name: str = AUTO, place: Place | None = None, precision: str = "float32") -> Engine | None:
    """The engine of that name; None if every operator runs its own kernel, on numpy or on a GPU.

    precision: 'bf16' rounds the weights of products and convolutions, and on some processors their inputs (docs/native.md),
    which only the native engine supports. Raises UsageError for an unknown engine or precision, or one that does not match
    `place` or the engine, DeviceError if it is not available. On a GPU, 'cupy' computes one operator at a time.
    """
    _require_precision(name, place, precision)
    if name == ONE_BY_ONE and isinstance(place, CUDAPlace):
        return None
    if name not in ENGINES:
        raise UsageError(f"there is no engine {name!r}; expected one of {', '.join(ENGINES)}")
    if isinstance(place, CUDAPlace):
        if name != AUTO:
            raise UsageError(f"the engine {name} computes on the CPU, but the device is a GPU; omit one of them")
        return _open_on_gpu(place)
    found = _open(name, precision)
    if precision != "float32" and found is None:
        from fluidtool.runtime.engines.native.engine import why_not

        raise DeviceError(f"the precision {precision} needs the native engine, which is not in use: {why_not()}")
    return found


def _open_on_gpu(place: CUDAPlace) -> Engine | None:
    """The engine for regions on a GPU, unless it is switched off."""
    from fluidtool.runtime.engines.cuda.engine import open_engine

    return open_engine(device_for(place))


def _require_precision(name: str, place: Place | None, precision: str) -> None:
    if precision not in PRECISIONS:
        raise UsageError(f"there is no precision {precision!r}; expected one of {', '.join(PRECISIONS)}")
    fitting = (AUTO, *(row.name for row in TABLE if precision in row.precisions))
    if name in ENGINES and name not in fitting:
        raise UsageError(
            f"the precision {precision} needs the native engine, found the engine {name}; use the engine native"
        )
    if precision != "float32" and isinstance(place, CUDAPlace):
        raise UsageError(
            f"the precision {precision} needs the native engine, but the device is a GPU; omit one of them"
        )


def _open(name: str, precision: str) -> Engine | None:
    """auto: the native engine unless it is switched off or not available."""
    module = import_module(f"fluidtool.runtime.engines.{'native' if name == AUTO else name}.engine")
    found: Engine | None = module.open_engine(precision, required=name != AUTO)
    return found
