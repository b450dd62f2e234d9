"""The cupy engine: the same operator kernels on a GPU."""

from __future__ import annotations

from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from math import prod
from typing import Any

from fluidtool.errors import NEEDS_LESS, DeviceError, OutOfMemoryError
from fluidtool.runtime.engines.cupy.kernels import Kernels, read_flags
from fluidtool.runtime.engines.cupy.uncompiled import Uncompiled, opened

PACKAGES = ("cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x")
TOO_OLD_DRIVER = 35  # cudaErrorInsufficientDriver


class CupyDevice:
    """cupy on one GPU; raises DeviceError if cupy or the GPU is missing."""

    name = "cupy"

    def __init__(self, device_id: int = 0) -> None:
        self.xp: Any = _load()
        self.device_id = device_id
        count = self._count()
        if not 0 <= device_id < count:
            raise DeviceError(f"CUDAPlace({device_id}): this machine has {count} GPUs, numbered from 0")

    def _count(self) -> int:
        """The GPUs of this machine; raises DeviceError if there is none that can be used."""
        runtime = self.xp.cuda.runtime
        try:
            return int(runtime.getDeviceCount())
        except runtime.CUDARuntimeError as error:
            if getattr(error, "status", 0) == TOO_OLD_DRIVER:
                raise DeviceError(
                    f"CUDAPlace({self.device_id}): the NVIDIA driver is too old for this cupy ({error}); update it, or install "
                    "cupy for an older CUDA (pip install 'fluidtool[gpu-cuda12]'), or run on the CPU"
                ) from error
            raise DeviceError(
                f"CUDAPlace({self.device_id}): no usable GPU on this machine ({error}); run on the CPU"
            ) from error

    def host(self, array: Any) -> Any:
        """A copy on the host."""
        return self.xp.asnumpy(array)

    def array(self, values: Any) -> Any:
        """An array on this GPU; one that is here is returned unchanged. Raises OutOfMemoryError."""
        with self.active():
            try:
                return self.xp.asarray(values)
            except MemoryError as error:
                raise OutOfMemoryError(f"{error} {self.memory()}", hint=NEEDS_LESS) from error

    def holds(self, array: Any) -> bool:
        """Whether an array is on this GPU."""
        return isinstance(array, self.xp.ndarray) and array.data.device_id == self.device_id

    def active(self) -> Any:
        """Within the block, this GPU is the one that the calling thread uses."""
        return self.xp.cuda.Device(self.device_id)

    @cached_property
    def kernels(self) -> Kernels | Uncompiled:
        """The kernels for what cupy lacks."""
        return opened(self.xp)

    def flags(self, count: int) -> Any:
        """Flags of checks that do not wait; they are arrays of one number."""
        return self.kernels.clear_flags(count)

    def mark_outside(self, ids: Any, low: int, high: int, ignored: int | None, flag: Any) -> None:
        """Set a flag if one of the ids, other than the ignored one, is not in [low, high); the host does not wait."""
        self.kernels.mark_outside(ids, low, high, ignored, flag)

    def read_flags(self, flags: Any) -> tuple[int, int] | None:
        """Wait; the number of the first flag that is set, and the first index that set it."""
        return read_flags(self.host(flags))

    def random(self, generator: Any, shape: tuple[int, ...], dtype: Any) -> Any:
        """The numbers of `generator.random(shape, dtype)`, drawn on this GPU."""
        if type(generator.bit_generator).__name__ != "PCG64":
            return self.array(generator.random(shape, dtype))
        with self.active():
            return self.kernels.draw(generator, shape, dtype)

    def add_at(self, total: Any, key: Any, values: Any) -> None:
        """total[key] += values as numpy.add.at: repeated elements are added in order, so that the sums are the same every
        time. Halves are added as floats, and rounded once.
        """
        xp = self.xp
        if total.dtype.kind not in "f" or not total.size:  # whole numbers are the same in any order
            xp.add.at(total, key, values)
            return
        if isinstance(key, tuple):  # by elements
            key = xp.arange(total.size).reshape(total.shape)[key]
            shape: tuple[int, ...] = key.shape
            target = total.reshape(-1)
        else:
            shape, target = (*key.shape, *total.shape[1:]), total
        wide = xp.ascontiguousarray(target, "float32" if total.dtype.itemsize == 2 else None)
        if prod(shape):
            added = xp.broadcast_to(xp.asarray(values, wide.dtype), shape)
            self.kernels.add_rows(wide, key.reshape(-1), added)
        if wide is not target or not total.flags.c_contiguous:
            total[...] = wide.reshape(total.shape)

    def sums_at(self, places: Any, values: Any, size: int) -> Any:
        """The sums of the values at each of the places, added in order."""
        total = self.xp.zeros(size, "float64")
        self.add_at(total, places, values)
        return total

    def replace_rows(self, total: Any, rows: Any, values: Any) -> None:
        """total[rows] = values; of repeated rows, which threads write in any order, each gets the value of the last."""
        last = self.xp.zeros(len(total), "int64")
        self.xp.maximum.at(last, rows, self.xp.arange(len(rows)))
        total[rows] = values[last[rows]]

    def wait(self) -> None:
        """Return once everything that was asked of this GPU is complete."""
        self.xp.cuda.Device(self.device_id).synchronize()

    def memory(self) -> str:
        """How much of its memory is free, for messages."""
        with self.active():
            free, total = self.xp.cuda.runtime.memGetInfo()
        return f"GPU {self.device_id} has {free:,} of {total:,} bytes free."

    def failure(self, error: RuntimeError) -> DeviceError | None:
        """What an error of the driver means; None for any other error."""
        if not isinstance(error, self.xp.cuda.runtime.CUDARuntimeError):
            return None
        return DeviceError(
            f"GPU {self.device_id} has failed ({error}), and this process cannot use it any more; restart it, training from "
            "its last checkpoint (--resume), or run on the CPU"
        )

    def special(self) -> Any:
        """The special functions of this engine."""
        from cupyx.scipy import special

        return special


def _load() -> Any:
    """cupy; raises DeviceError where it is missing, cannot be loaded, or is installed for two versions of CUDA."""
    several = [name for name in PACKAGES if _is_installed(name)]
    if len(several) > 1:
        raise DeviceError(
            f"cupy is installed for two versions of CUDA ({', '.join(several)}); keep the one for the CUDA of the driver, which "
            f"nvidia-smi shows: pip uninstall {several[0]}, or the other one"
        )
    try:
        import cupy
    except ModuleNotFoundError as error:
        if error.name != "cupy":
            raise _broken(error) from error
        raise DeviceError(
            "CUDAPlace needs cupy, which is not installed; pip install 'fluidtool[gpu-cuda12]' (or gpu-cuda13), "
            "or run on the CPU"
        ) from error
    except ImportError as error:
        raise _broken(error) from error
    return cupy


def _is_installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def _broken(error: ImportError) -> DeviceError:
    why = " ".join(str(error).split())
    return DeviceError(
        f"cupy is installed, but cannot be loaded: {why:.300}; keep one of its packages only, that for the CUDA of the driver "
        "(nvidia-smi shows it), or run on the CPU"
    )
