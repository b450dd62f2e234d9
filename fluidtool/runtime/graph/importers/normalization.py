"""Normalization of images over groups of channels."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.runtime.graph.importers.registry import GraphBuilder, imports, need
from fluidtool.runtime.graph.ir import Value


@imports("instance_norm")
def _instance_norm(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    need(2 <= len(x.shape) <= 5, "not an image")
    add_norm(r, op, x, x.shape[1], float(attrs["epsilon"]))


@imports("group_norm")
def _group_norm(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, groups = r.get(op, "X"), int(attrs["groups"])
    need(attrs["data_layout"] in ("NCHW", "AnyLayout") and len(x.shape) >= 2, "group_norm in NHWC")
    need(groups > 0 and x.shape[1] % groups == 0, "groups of different sizes")
    add_norm(r, op, x, groups, float(attrs["epsilon"]))


@imports("lrn")
def _local_response(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, around, fourths = r.get(op, "X"), int(attrs["n"]), 4 * float(np.float32(attrs["beta"]))
    need(len(x.shape) == 4 and attrs["data_format"] in ("NCHW", "AnyLayout"), "not an NCHW image")
    need(around > 0 and around % 2 == 1 and around < 16, "an unexpected number of channels")
    need(fourths in (1, 2, 3, 4), "a power that is not a multiple of 1/4")
    numbers = (float(attrs["k"]), float(attrs["alpha"]))
    r.add("local_response", [x], op, "Out", x.shape, around=around // 2, fourths=int(fourths), numbers=numbers)


def add_norm(r: GraphBuilder, op: Operator, x: Value, groups: int, epsilon: float) -> None:
    """The node; scale and bias by channel, or None."""
    scale, bias = (r.constant(op, slot) if op.inputs.get(slot) else None for slot in ("Scale", "Bias"))
    fits = all(value is None or (value.shape == x.shape[1:2] and value.dtype == np.float32) for value in (scale, bias))
    need(fits, "factors of an unexpected shape")
    r.add("group_norm", [x], op, "Y", x.shape, groups=groups, scale=scale, shift=bias, epsilon=epsilon)
