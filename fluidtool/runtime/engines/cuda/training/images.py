"""Images and volumes in training steps, beyond convolution and pooling of images: forward and backward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fluidtool.ir import Operator
from fluidtool.runtime.engines.cuda.training.building import StepBuilder, imports_step
from fluidtool.runtime.graph.importers.volumes import pooled_windows

Attrs = Mapping[str, Any]


# ---------------------------------------------------------------- volumes
@imports_step("pool3d")
def _pool3d(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    """All axes at once; in inference frames, which convolutions of volumes share."""
    x = b.get(op, "X")
    found = pooled_windows(attrs, x.shape)
    pads = [before for before, _ in found.pads] + [after for _, after in found.pads]
    windows = {"window": found.sizes, "strides": found.strides, "pads": pads}
    y = b.node("pool", [x], (*x.shape[:2], *found.counts), mode=found.mode, adaptive=False, **windows)
    b.put(op, "Out", y)
