"""Gradients that take fewer bytes on their way: as halves, or only their largest elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from fluidtool.distribute.collective.communicator import Communicator
from fluidtool.errors import UsageError

COMPRESSION = "FLUIDTOOL_COLLECTIVE_COMPRESSION"


class Compression(Protocol):
    """One way of summing float32 with fewer bytes. All ranks get the same bits."""

    def sum(self, ring: Communicator, flat: Any, place: int) -> Any:
        """The sum over all ranks of a flat float32 array. place: which of a step's arrays it is."""


def compression_of(environment: Mapping[str, str]) -> Compression | None:
    """FLUIDTOOL_COLLECTIVE_COMPRESSION: none, fp16, bf16, or topk:0.01 for the largest hundredth.

    Each has remainders of its own, so every ring needs its own. Raises UsageError for anything else.
    """
    text = environment.get(COMPRESSION, "none")
    if text in HALVES:
        return Halves(*HALVES[text])
    kind, _, share = text.partition(":")
    try:
        part = float(share) if kind == "topk" else 0.0
    except ValueError:
        part = 0.0
    if text != "none" and not 0 < part <= 1:
        raise UsageError(
            f"{COMPRESSION} must be none, fp16, bf16, or topk: with a share above 0, such as topk:0.01, found {text!r}"
        )
    return None if text == "none" else Largest(part)


class Halves:
    """Elements travel with 16 bits and are added as float32: each is rounded once on its way out and once back."""

    def __init__(self, encode: Callable[[Any], Any], decode: Callable[[Any], Any]) -> None:
        self._encode, self._decode = encode, decode

    def sum(self, ring: Communicator, flat: Any, place: int) -> Any:
        """Every rank sums its own part of the array, in the order of the ranks."""
        width = -(-flat.size // ring.size)
        padded = np.zeros((ring.size, width), np.float32)
        padded.reshape(-1)[: flat.size] = flat
        received = self._decode(ring.all_to_all(self._encode(padded)))
        mine = received[0].copy()
        for other in received[1:]:
            mine += other
        return self._decode(ring.all_gather(self._encode(mine[None]))).reshape(-1)[: flat.size]


class Largest:
    """Only a share of the elements travels, those with the largest absolute values; the rest is added to the next step's.

    Source: Stich, Cordonnier, Jaggi, "Sparsified SGD with Memory", 2018.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._remainders: dict[int, Any] = {}

    def sum(self, ring: Communicator, flat: Any, place: int) -> Any:
        """The sum of what the ranks send; what this rank does not send is kept for `place`."""
        left = self._remainders.get(place)
        wanted = flat + left if left is not None and left.size == flat.size else flat.copy()
        count = max(1, int(self._share * flat.size))
        chosen = np.sort(np.argpartition(np.abs(wanted), flat.size - count)[flat.size - count :])
        sent = np.concatenate([chosen.astype(np.int64).view(np.uint8), wanted[chosen].view(np.uint8)])
        wanted[chosen] = 0
        self._remainders[place] = wanted
        total = np.zeros_like(flat)
        for found in ring.all_gather(sent[None]):
            total[found[: 8 * count].view(np.int64)] += found[8 * count :].view(np.float32)
        return total


def _to_bfloat16(array: Any) -> Any:
    """The upper 16 bits, rounded to nearest, ties to even; NaN stays NaN."""
    bits = array.view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(array), np.uint16(0x7FC0), rounded)


def _from_bfloat16(bits: Any) -> Any:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _to_float16(array: Any) -> Any:
    limits = np.finfo(np.float16)
    return np.where(np.isfinite(array), np.clip(array, limits.min, limits.max), array).astype(np.float16)


def _from_float16(array: Any) -> Any:
    return array.astype(np.float32)


HALVES = {"fp16": (_to_float16, _from_float16), "bf16": (_to_bfloat16, _from_bfloat16)}
