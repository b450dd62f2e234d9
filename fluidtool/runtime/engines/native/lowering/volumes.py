"""Convolutions and pooling of volumes, whose frames are consecutive images."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.layouts import NO_HALO, Blocked, Buffer, Plain
from fluidtool.runtime.engines.native.lowering.convolution import convolve, join_groups, pack_filter
from fluidtool.runtime.engines.native.lowering.values import Lowering, conv_output, lowers
from fluidtool.runtime.graph.ir import Node, Value


@lowers("conv3d")
def _conv3d(low: Lowering, node: Node) -> None:
    """One call for each volume: an image convolution whose windows cover several images."""
    attrs, x, volumes = dict(node.attrs), node.inputs[0], node.attrs["volumes"]
    count, inner, depth, rows, columns = attrs["weights"].shape
    stride, dilation = attrs["along"]
    attrs |= {
        "weights": attrs["weights"].reshape(count, inner, depth * rows, columns),
        "frames": (depth, dilation, stride),
    }
    joined = join_groups(low, attrs)
    source, out = low.blocked(x, narrow=joined["groups"] == 1), conv_output(low, node)
    packed = pack_filter(low, joined, source.lanes)
    made = node.output.shape[0] // volumes
    for volume in range(volumes):
        first = volume * made
        value, residual = Value(node.output.name, (made, *node.output.shape[1:])), None
        if node.residual is not None:
            residual = Value(node.residual.name, value.shape)
            low.blockeds[residual] = frames_from(low.blockeds[node.residual], first, made)
        piece = Node("conv", [x], value, joined, node.activation, residual)
        given = frames_from(source, volume * (x.shape[0] // volumes), x.shape[0] // volumes)
        convolve(low, piece, given, frames_from(out, first, made), packed=packed)


def frames_from(place: Blocked, first: int, count: int) -> Blocked:
    """The place of some of the images."""
    return replace(place, shape=(count, *place.shape[1:]), start=place.start + first * place.image)


@lowers("pool_frames")
def _pool_frames(low: Lowering, node: Node) -> None:
    """Of each volume the frames are the rows of one image, and all that lies in a frame its columns."""
    x, attrs, volumes = node.inputs[0], node.attrs, node.attrs["volumes"]
    source = low.blocked(x)
    if source.apart:
        source = whole_frames(low, node, source)
    out = Blocked(Buffer(0), node.output.shape, low.width, source.halo)
    out.buffer.size = out.size
    low.blockeds[node.output] = out
    depth, made, columns = x.shape[0] // volumes, node.output.shape[0] // volumes, source.image // low.width
    arguments = abi.Pool(
        source=(source.buffer, source.start), out=(out.buffer, 0), images=volumes, rows=made, columns=columns, blocks=1,
        window_h=attrs["window"], window_w=1, stride_h=attrs["stride"], stride_w=1, pad_top=attrs["before"], pad_left=0,
        source_height=depth, source_width=columns, source_image=depth * source.image, source_row=source.image,
        source_block=0, out_image=made * out.image, out_row=out.image, out_block=0, mode=attrs["mode"], adaptive=0,
    )  # fmt: skip
    low.calls.add(arguments, low.calls.task_count(prod(x.shape), volumes * made))


def whole_frames(low: Lowering, node: Node, source: Blocked) -> Blocked:
    """A copy of frames that are channels of larger ones, consecutive, with the halo that the result needs."""
    place = Blocked(Buffer(0), source.shape, source.lanes, low.halos.get(node.output, NO_HALO))
    place.buffer.size = place.size
    low.zero_halo(place)
    strides = [(at.image, at.block, at.row, at.lanes, 1) for at in (source, place)]
    n, _, h, w = source.shape
    ends = Plain(source.buffer, source.origin, strides[0]), Plain(place.buffer, place.origin, strides[1])
    low.calls.copy(*ends, (n, place.blocks, h, w, place.lanes))
    return place
