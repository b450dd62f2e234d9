"""The cupy engine: the same operator kernels on a GPU."""

from __future__ import annotations

from typing import Any

from fluidtool.errors import DeviceError


class CupyDevice:
    """cupy on one GPU; raises DeviceError if cupy or the GPU is missing."""

    name = "cupy"

    def __init__(self, device_id: int = 0) -> None:
        try:
            import cupy
        except ImportError as error:
            raise DeviceError(
                "CUDAPlace needs cupy, which is not installed; pip install 'fluidtool[gpu-cuda12]' (or gpu-cuda13), "
                "or run on the CPU"
            ) from error
        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise DeviceError(
                f"CUDAPlace({device_id}): no usable GPU on this machine ({error}); run on the CPU"
            ) from error
        if not 0 <= device_id < count:
            raise DeviceError(f"CUDAPlace({device_id}): this machine has {count} GPUs, numbered from 0")
        self.xp: Any = cupy
        self.device_id = device_id

    def host(self, array: Any) -> Any:
        """A copy on the host."""
        return self.xp.asnumpy(array)

    def array(self, values: Any) -> Any:
        """An array on this GPU; one that is here is returned unchanged."""
        with self.active():
            return self.xp.asarray(values)

    def holds(self, array: Any) -> bool:
        """Whether an array is on this GPU."""
        return isinstance(array, self.xp.ndarray) and int(array.device.id) == self.device_id

    def active(self) -> Any:
        """Within the block, this GPU is the one that the calling thread uses."""
        return self.xp.cuda.Device(self.device_id)

    def special(self) -> Any:
        """The special functions of this engine."""
        from cupyx.scipy import special

        return special
