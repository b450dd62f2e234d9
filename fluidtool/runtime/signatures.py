"""The key of what a region was compiled to: what compiling reads of its inputs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fluidtool.tensor import LoDTensor

if TYPE_CHECKING:
    from fluidtool.runtime.graph.importers.registry import Lod


def signature(inputs: Iterable[str], pooled: Collection[str], arrays: Iterable[Any], lods: Iterable[Lod]) -> Any:
    """Shapes, data types and LoDs of inputs; of `pooled` ones, whose number of rows is free, the number of sequences."""
    return tuple(
        (array.shape[1:], array.dtype.char, len(lod[0]))
        if name in pooled and len(lod) == 1 and array.size == len(array) == lod[0][-1] > 0
        else (array.shape, array.dtype.char, lod)
        for name, array, lod in zip(inputs, arrays, lods, strict=True)
    )


def levels(lods: Sequence[Lod]) -> list[Lod]:
    """LoDs by which the number of an input, and of its levels, can be told: in their place, where nobody reads offsets."""
    return [((number,),) * len(lod) for number, lod in enumerate(lods)]


def meant(lod: Sequence[Sequence[int]], lods: Sequence[Lod]) -> list[list[int]]:
    """The LoD of the input that one of `levels` tells."""
    return [list(level) for level in lods[lod[0][0]]] if lod else []


def lod_of_value(value: Any) -> Lod:
    """The LoD of a tensor; empty for any other value."""
    return tuple(map(tuple, value.offsets)) if type(value) is LoDTensor else ()
