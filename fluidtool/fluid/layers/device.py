"""`fluid.layers.device` (Paddle 1.8.5 layers/device.py)."""

from __future__ import annotations

from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.ir import Variable, unique_name
from fluidtool.proto.enums import VarType


def get_places(device_count: int | None = None, device_type: str | None = None) -> Variable:
    """A variable with this many places; None: all available ones."""
    helper = LayerHelper("get_places")
    places = helper.create_variable(name=unique_name.generate(f"{helper.name}.out"), type=VarType.PLACE_LIST)
    given = {"device_count": device_count, "device_type": device_type}
    attrs = {name: value for name, value in given.items() if value is not None}
    helper.append_op(type="get_places", outputs={"Out": [places]}, attrs=attrs)
    return places
