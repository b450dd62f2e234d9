"""Resampling of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.runtime.graph.importers.registry import GraphBuilder, imports, need

if TYPE_CHECKING:
    from fluidtool.ops.nn.interpolation import AxisTaps

RESAMPLING = (
    "nearest_interp",
    "bilinear_interp",
    "bicubic_interp",
    "nearest_interp_v2",
    "bilinear_interp_v2",
    "bicubic_interp_v2",
)


@imports(*RESAMPLING)
def _interpolate(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    sizes, taps = resampled(op, attrs, x.shape)
    if sizes == x.shape[2:]:
        r.alias(x, op, "Out")
        return
    cells = [axis.cells.T for axis in taps]
    weights = None if taps[0].weights is None else [axis.weights.T for axis in taps]
    r.add("interpolate", [x], op, "Out", (*x.shape[:2], *sizes), cells=cells, shares=weights)


def resampled(op: Operator, attrs: Mapping[str, Any], shape: Sequence[int]) -> tuple[tuple[int, ...], list[AxisTaps]]:
    """(the sizes of resampled images of this shape, which cells their rows and columns are made of).

    Raises UnsupportedError for what is no NCHW image, and for sizes that are computed.
    """
    from fluidtool.ops.nn.interpolation import METHODS, axis_ratio, axis_taps

    method, corners, mode = attrs["interp_method"], attrs["align_corners"], attrs["align_mode"]
    need(not any(op.inputs.get(slot) for slot in ("OutSize", "SizeTensor", "Scale")), "a computed size")
    need(len(shape) == 4 and attrs["data_layout"] == "NCHW" and method in METHODS[4], "not an NCHW image")
    sizes, scales = asked_sizes(attrs, shape[2:])
    need(min(sizes) > 0, "sizes that are not positive")
    taps = [
        axis_taps(np, method, size, count, axis_ratio(np, size, count, scale, corners), corners, mode)
        for size, count, scale in zip(shape[2:], sizes, scales, strict=True)
    ]
    return tuple(sizes), taps


def asked_sizes(attrs: Mapping[str, Any], sizes: Sequence[int]) -> tuple[list[int], list[float]]:
    """(output sizes, factors that fix the ratio or 0): the attribute scale takes precedence over out_h and out_w."""
    declared, outputs = attrs["scale"], [int(attrs["out_h"]), int(attrs["out_w"])]
    scales = list(declared) if isinstance(declared, list) else [declared] * 2
    if len(scales) > 1 and min(scales[:2]) > 0:
        outputs = [int(np.float32(size) * np.float32(s)) for size, s in zip(sizes, scales[:2], strict=True)]
    by_factor = isinstance(declared, list) and len(scales) > 1
    return outputs, [float(s) for s in scales[:2]] if by_factor else [0.0, 0.0]
