"""assert: stops a run if a condition is false; get_places: the devices to run on."""

from __future__ import annotations

import os
from typing import Any

from fluidtool.ops.context import OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import long
from fluidtool.shapes import shape_text
from fluidtool.tensor import CPUPlace, CUDAPlace, Place


@op("assert", inputs="Cond Data*", outputs="", attrs={"summarize": long(-1)}, side_effects=True)
def assert_holds(ctx: OpContext, Cond: Any, Data: list[Any], *, summarize: int) -> None:
    """Fail unless Cond, one boolean, is true; the message shows Data, at most `summarize` values each.

    (Paddle 2.6.2 assert_op.cc; negative `summarize` shows all)
    """
    if Cond.size != 1:
        raise ctx.error(f"Cond must hold one boolean, found shape {Cond.shape}")
    if bool(Cond.item()):
        return
    shown = []
    for name, data in zip(ctx.op.input("Data"), Data, strict=True):
        values = ctx.host(data).reshape(-1)
        some = values if summarize < 0 else values[:summarize]
        more = ", …" if len(some) < len(values) else ""
        shown.append(f"{name} {shape_text(data.shape)} = [{', '.join(str(value) for value in some.tolist())}{more}]")
    raise ctx.error(f"the condition {ctx.op.input('Cond')[0]} is false{': ' if shown else ''}{'; '.join(shown)}")


@op("get_places", inputs="", outputs="Out", attrs={"device_count": 0, "device_type": "AUTO"})
def get_places(ctx: OpContext, *, device_count: int, device_type: str) -> dict[str, list[list[Place]]]:
    """A list of `device_count` places (0: all available) of the kind that the run is on, CPU or CUDA.

    (Paddle 1.8.5 get_places_op.cc)
    """
    kind = "CUDA" if isinstance(ctx.place, CUDAPlace) else "CPU"
    wanted = kind if device_type == "AUTO" else device_type
    if wanted != kind:
        raise ctx.error(f"device_type is {device_type}, but this run is on {ctx.place}; run it on {device_type}")
    if device_count < 0:
        raise ctx.error(f"device_count must not be negative, found {device_count}")
    if kind == "CPU":
        return {"Out": [[CPUPlace() for _ in range(device_count or os.cpu_count() or 1)]]}
    available = int(ctx.xp.cuda.runtime.getDeviceCount())
    if device_count > available:
        raise ctx.error(f"device_count is {device_count}, but this machine has {available} GPUs")
    return {"Out": [[CUDAPlace(number) for number in range(device_count or available)]]}
