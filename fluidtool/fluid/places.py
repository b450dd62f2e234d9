"""Lists of places: `cpu_places`, `cuda_places`, `cuda_pinned_places` (Paddle 1.8.5 framework.py)."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from fluidtool.errors import ArgumentTypeError, AssertedDeviceError, UsageError
from fluidtool.tensor import CPUPlace, CUDAPinnedPlace, CUDAPlace, Place


def as_place(place: Place | str) -> Place:
    """A place, or the one for 'cpu', 'gpu' or 'gpu:1' (Paddle 2 notation).

    Raises UsageError for another text, ArgumentTypeError for anything else.
    """
    if isinstance(place, Place):
        return place
    if not isinstance(place, str):
        raise ArgumentTypeError(
            f"a place is a CPUPlace, a CUDAPlace or a text such as 'cpu', found {type(place).__name__}"
        )
    kind, _, number = place.lower().partition(":")
    if kind == "cpu" and not number:
        return CPUPlace()
    if kind == "gpu" and (number or "0").isdigit():
        return CUDAPlace(int(number or "0"))
    raise UsageError(f"a place is written 'cpu', 'gpu' or 'gpu:0', 'gpu:1' …, found {place!r}")


def cpu_count() -> int:
    """The number of devices of a run on the CPU: the environment variable CPU_NUM, else 1 with a note on stderr."""
    text = os.environ.get("CPU_NUM")
    if text is None:
        sys.stderr.write(
            "The environment variable CPU_NUM is not set: data parallel runs on the CPU use one device. "
            f"Set it to the number of devices that you want, for example CPU_NUM={os.cpu_count() or 1}.\n"
        )
        os.environ["CPU_NUM"] = text = "1"
    if not text.strip().isdigit() or int(text) < 1:
        raise UsageError(f"the environment variable CPU_NUM must be a positive number, found {text!r}")
    return int(text)


_cpu_num = cpu_count  # its name inside Paddle


def cpu_places(device_count: int | None = None) -> list[CPUPlace]:
    """This many CPUPlaces; None: the environment variable CPU_NUM."""
    return [CPUPlace()] * (cpu_count() if device_count is None else device_count)


def cuda_pinned_places(device_count: int | None = None) -> list[CUDAPinnedPlace]:
    """This many CUDAPinnedPlaces; None: the environment variable CPU_NUM. Raises AssertedDeviceError without a GPU."""
    _require_cuda()
    return [CUDAPinnedPlace()] * (cpu_count() if device_count is None else device_count)


def cuda_places(device_ids: int | Sequence[int] | None = None) -> list[CUDAPlace]:
    """A CUDAPlace per number; None: FLAGS_selected_gpus, else all. Raises AssertedDeviceError without a GPU."""
    count = _require_cuda()
    if device_ids is None:
        selected = os.environ.get("FLAGS_selected_gpus")  # noqa: SIM112 (the name that Paddle reads)
        device_ids = [int(number) for number in selected.split(",")] if selected else range(count)
    return [CUDAPlace(number) for number in ([device_ids] if isinstance(device_ids, int) else device_ids)]


def cuda_device_count() -> int:
    """The number of usable GPUs; 0 without cupy or without a driver."""
    try:
        import cupy
    except ImportError:
        return 0
    try:
        return int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError:
        return 0


def is_compiled_with_cuda() -> bool:
    """Whether programs can run on a GPU."""
    return cuda_device_count() > 0


def _require_cuda() -> int:
    count = cuda_device_count()
    if not count:
        raise AssertedDeviceError(
            "Not compiled with CUDA: there is no GPU here, or cupy is not installed; use cpu_places()"
        )
    return count
