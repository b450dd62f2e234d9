"""The input of compiling a region."""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableMapping, Sequence
from dataclasses import field
from typing import Any

from numpy.typing import NDArray

from fluidtool.ir import Operator
from fluidtool.records import dataclass
from fluidtool.runtime.graph.importers.refusals import Attributes
from fluidtool.runtime.graph.importers.registry import Lod
from fluidtool.runtime.graph.quantization import RoundedWeights


@dataclass(frozen=True, slots=True)
class RegionSpec:
    """Operators with their attributes, arrays by variable name, and the names of the results.

    Of `inputs`, only shapes, data types and `lods` matter; `constants` may be packed, folded and kept. Inputs that are
    `pooled` (rewrites/pooling.py) may have any number of rows and sequences, if the engine supports that. rounded: the weights
    that operators have rounded of these constants for other inputs, and that they round now. for_gpus: whether kernels for GPUs
    compute it, which there are for more.
    """

    operators: Sequence[tuple[Operator, Attributes]]
    inputs: Mapping[str, NDArray[Any]]
    constants: Mapping[str, NDArray[Any]]
    outputs: Sequence[str]
    lods: Mapping[str, Lod] = field(default_factory=dict)
    pooled: Collection[str] = ()
    rounded: MutableMapping[Operator, RoundedWeights] = field(default_factory=dict)
    for_gpus: bool = False
