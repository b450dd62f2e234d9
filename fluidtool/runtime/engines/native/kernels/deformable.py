"""deformable_conv: native sampling, on all threads; numpy multiplies the samples."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.ops.nn.deformable_conv import convolve
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.kernels.direct import are_floats, in_rows, run_call, task_count
from fluidtool.runtime.engines.native.library import Library


def deformable_conv(library: Library, ctx: OpContext, Input: Any, Offset: Any, Mask: Any, Filter: Any) -> Any:
    """fluidtool.ops.nn.deformable_conv, to the rounding of float32; not for NaN offsets."""
    if not are_floats(Input, Offset, Mask, Filter) or not np.isfinite(Offset).all():
        return NotImplemented
    return convolve(ctx, Input, Offset, Filter, Mask, partial(gather, library))


def deformable_conv_v1(library: Library, ctx: OpContext, Input: Any, Offset: Any, Filter: Any) -> Any:
    """The same without a mask."""
    return deformable_conv(library, ctx, Input, Offset, None, Filter)


def gather(library: Library, xp: Any, planes: Any, positions: list[Any], mask: Any) -> Any:
    """The result of fluidtool.ops.nn.deformable_conv.gather."""
    count, channels, height, width = planes.shape
    places = positions[0].shape[1]
    out = np.empty((count, channels, places), np.float32)
    down, across = (in_rows(position.astype(np.float32, copy=False)) for position in positions)
    arguments = abi.SamplePlanes(
        source=in_rows(planes), down=down, across=across, out=out, weights=in_rows(mask), planes=count, channels=channels,
        source_height=height, source_width=width, places=places,
    )  # fmt: skip
    run_call(library, arguments, task_count(library, out.size))
    return out
