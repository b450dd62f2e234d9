"""Places: where a tensor lives and a program runs. `_type` and `_equals` are what scripts ask Paddle's places."""

from __future__ import annotations

from fluidtool.records import dataclass


@dataclass(frozen=True, slots=True)
class CPUPlace:
    """The host's memory."""

    def __str__(self) -> str:
        return "CPUPlace"

    def _type(self) -> int:
        return 1

    def _equals(self, other: Place) -> bool:
        return self == other


@dataclass(frozen=True, slots=True)
class CUDAPlace:
    """Memory of the GPU with this number."""

    device_id: int = 0

    def __str__(self) -> str:
        return f"CUDAPlace({self.device_id})"

    def get_device_id(self) -> int:
        """The number of the GPU."""
        return self.device_id

    def _type(self) -> int:
        return 0

    def _equals(self, other: Place) -> bool:
        return self == other


@dataclass(frozen=True, slots=True)
class CUDAPinnedPlace:
    """Page-locked host memory; values are handled as on CPUPlace."""

    def __str__(self) -> str:
        return "CUDAPinnedPlace"

    def _type(self) -> int:
        return 2

    def _equals(self, other: Place) -> bool:
        return self == other


Place = CPUPlace | CUDAPlace | CUDAPinnedPlace
