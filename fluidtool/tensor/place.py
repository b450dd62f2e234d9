"""Places: where a tensor lives and a program runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CPUPlace:
    """The host's memory."""

    def __str__(self) -> str:
        return "CPUPlace"


@dataclass(frozen=True, slots=True)
class CUDAPlace:
    """Memory of the GPU with this number."""

    device_id: int = 0

    def __str__(self) -> str:
        return f"CUDAPlace({self.device_id})"

    def get_device_id(self) -> int:
        """The number of the GPU."""
        return self.device_id


@dataclass(frozen=True, slots=True)
class CUDAPinnedPlace:
    """Page-locked host memory; values are handled as on CPUPlace."""

    def __str__(self) -> str:
        return "CUDAPinnedPlace"


Place = CPUPlace | CUDAPlace | CUDAPinnedPlace
