"""Images sampled at other places: interpolation, grids, regions, windows as columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fluidtool.onnx_export import ragged
from fluidtool.onnx_export.graph import Array, Graph, Value
from fluidtool.onnx_export.operation import Operation
from fluidtool.onnx_export.operators.convolution import back, first
from fluidtool.onnx_export.operators.grids import grid_samples
from fluidtool.onnx_export.operators.narrowed import narrow
from fluidtool.onnx_export.registry import need, renders

METHODS = {"nearest": "nearest", "bilinear": "linear", "linear": "linear", "trilinear": "linear", "bicubic": "cubic"}
NAMES = [
    f"{method}_interp{version}"
    for method in ("bilinear", "nearest", "bicubic", "trilinear", "linear")
    for version in ("", "_v2")
]


@renders(*NAMES)
def interpolate(g: Graph, op: Operation) -> Value:
    layout = op.attr("data_layout")
    x = first(op["X"], layout)
    rank = x.rank - 2
    method, corners = METHODS[op.attr("interp_method")], bool(op.attr("align_corners"))
    sizes, scales = _targets(g, op, x, rank)
    attributes: dict[str, object] = {"mode": method}
    if method == "nearest":
        attributes["coordinate_transformation_mode"] = "align_corners" if corners else "asymmetric"
        attributes["nearest_mode"] = "round_prefer_ceil" if corners else "floor"
    else:
        halves = op.attr("align_mode") == 0 or method == "cubic"
        attributes["coordinate_transformation_mode"] = (
            "align_corners" if corners else "half_pixel" if halves else "asymmetric"
        )
    if method == "cubic":
        attributes["cubic_coeff_a"] = -0.75
    image = x.unsqueeze(2) if rank == 1 else x
    extra: list[int | Value] = [1] if rank == 1 else []
    if scales is not None:
        factors = g.constant(np.asarray([1.0, 1.0, *([1.0] if rank == 1 else []), *scales], np.float32))
        out = narrow(g, "Resize", [image, None, factors], **attributes)
    else:
        target = g.vector([image.dim(0), image.dim(1), *extra, *sizes])
        out = narrow(g, "Resize", [image, None, None, target], **attributes)
    if rank == 1:
        out = out.squeeze(2)
    shape = (x.shape or ())[:2]
    known = [size if isinstance(size, int) else -1 for size in sizes]
    return back(out.shaped((*shape, *known)), layout)


def _targets(g: Graph, op: Operation, x: Value, rank: int) -> tuple[list[int | Value], list[float] | None]:
    """Sizes of the output, and the factors where these say what ratio to use."""
    several, vector, factor = op.all("SizeTensor"), op.get("OutSize"), op.get("Scale")
    if several or vector is not None:
        found = op.int_list("", tensor="" if several else "OutSize", tensors="SizeTensor")
        return found, None
    declared = op.attr("scale")
    scales = [float(n) for n in declared] if isinstance(declared, Sequence) else [float(declared)] * rank
    scales = (scales * rank if len(scales) == 1 else scales)[:rank]
    if factor is not None:
        need(factor.array is not None, "a scale that is computed")
        values = np.asarray(factor.array).reshape(-1).tolist()
        scales = (values * rank if len(values) == 1 else values)[:rank]
    if scales and min(scales) > 0:
        known = (x.shape or ())[2:]
        sizes: list[int | Value] = [
            int(np.float32(size) * np.float32(scale)) if size >= 0 else g.vector([0])
            for size, scale in zip(known, scales, strict=True)
        ]
        if isinstance(declared, Sequence) or min(known) < 0:
            return sizes, scales
        return sizes, None
    given = [op.attr(name) for name in ("out_d", "out_h", "out_w")[3 - rank :]]
    need(min(given) > 0, "it has no size for its output")
    return [int(n) for n in given], None


@renders("grid_sampler")
def grid_sampler(g: Graph, op: Operation) -> Value:
    x, grid = op["X"], op["Grid"]
    mode, padding = op.attr("mode", "bilinear"), op.attr("padding_mode", "zeros")
    out = grid_samples(g, x, grid, mode, padding, bool(op.attr("align_corners", True)))
    return out.shaped(((x.shape or ())[0], (x.shape or ())[1], *(grid.shape or ())[1:-1]))


@renders("affine_grid")
def affine_grid(g: Graph, op: Operation) -> Value:
    theta = op["Theta"]
    sizes = op.int_list("output_shape", "OutputShape")
    corners = bool(op.attr("align_corners", True))
    height, width = sizes[2], sizes[3]
    need(isinstance(height, int) and isinstance(width, int), "the size of the grid is computed")
    assert isinstance(height, int) and isinstance(width, int)

    def steps(count: int) -> Array:
        if corners:
            return np.linspace(-1, 1, count)
        return (np.arange(count) * 2 + 1) / count - 1

    ys, xs = np.meshgrid(steps(height), steps(width), indexing="ij")
    base = np.stack([xs, ys, np.ones_like(xs)], -1).reshape(-1, 3)
    points = g.constant(base[None].astype(theta.dtype)) @ theta.swap()
    return points.reshape([theta.dim(0), height, width, 2])


@renders("roi_align")
def roi_align(g: Graph, op: Operation) -> Value:
    x, rois = op["X"], op["ROIs"]
    aligned = bool(op.attr("aligned", False))
    need(g.opset >= 16 or not aligned, "half-pixel centers need opset 16 or later")
    ratio = op.attr("sampling_ratio")
    images = image_of_region(g, op, x, rois)
    mode = ("half_pixel" if aligned else "output_half_pixel") if g.opset >= 16 else None
    out = narrow(
        g, "RoiAlign", [x, rois, images], mode="avg", output_height=op.attr("pooled_height"),
        output_width=op.attr("pooled_width"), sampling_ratio=max(ratio, 0), spatial_scale=op.attr("spatial_scale"),
        coordinate_transformation_mode=mode,
    )  # fmt: skip
    return out


def image_of_region(g: Graph, op: Operation, x: Value, rois: Value) -> Value:
    """For each region the number of its image."""
    counts = op.all("RoisNum")
    offsets = op.all("RoisLod")
    if x.shape is not None and x.shape[0] == 1:
        return g.full(g.vector([rois.dim(0)]), 0, np.int64)
    if counts or offsets:
        if counts:
            ends = g.op("CumSum", counts[0].cast(np.int64), g.constant(0, np.int64))
        else:
            ends = offsets[0].cast(np.int64).part(0, 1)
        last = rois.dim_value(0).scalar() if not isinstance(rois.dim(0), int) else rois.size(0)
        rows = g.range(0, last).unsqueeze(1)
        return (rows >= ends.unsqueeze(0)).cast(np.int64).sum(1)
    if rois.levels:
        return ragged.owners(g, rois.levels[-1])
    op.single()
    return g.full(g.vector([rois.dim(0)]), 0, np.int64)


@renders("roi_pool")
def roi_pool(g: Graph, op: Operation) -> Value:
    x, rois = op["X"], op["ROIs"]
    images = image_of_region(g, op, x, rois).cast(x.dtype).unsqueeze(1)
    size = [op.attr("pooled_height"), op.attr("pooled_width")]
    regions = g.concat([images, rois.cast(x.dtype)], 1)
    return narrow(g, "MaxRoiPool", [x, regions], pooled_shape=size, spatial_scale=op.attr("spatial_scale"))


# ---------------------------------------------------------------- windows
def window_cells(size: int, kernel: int, stride: int, before: int, after: int, dilation: int) -> Array:
    """[windows, kernel]: the cells of a padded axis that each window sees."""
    count = (size + before + after - dilation * (kernel - 1) - 1) // stride + 1
    return np.arange(count)[:, None] * stride + np.arange(kernel)[None] * dilation


def windows_of(
    g: Graph, x: Value, kernel: list[int], strides: list[int], pads: list[int], dilations: list[int]
) -> Value:
    """[N, C, rows, kh, columns, kw]; pads: up, left, down, right."""
    rows, columns = (
        _cells_of(g, x.dim(2 + axis), kernel[axis], strides[axis], pads[axis] + pads[2 + axis], dilations[axis])
        for axis in (0, 1)
    )
    padded = x.pad([0, 0, pads[0], pads[1]], [0, 0, pads[2], pads[3]])
    return padded.gather(rows, 2).gather(columns, 4)


def _cells_of(g: Graph, size: int | Value, kernel: int, stride: int, pad: int, dilation: int) -> Value:
    """The same as `window_cells` for an axis whose size may be known only at run time."""
    if isinstance(size, int):
        return g.constant(window_cells(size, kernel, stride, pad, 0, dilation), np.int64)
    count = (size + (pad - dilation * (kernel - 1) - 1)) / stride + 1
    return (g.range(0, count) * stride).unsqueeze(1) + g.constant(np.arange(kernel)[None] * dilation, np.int64)


@renders("unfold")
def unfold(g: Graph, op: Operation) -> Value:
    x = op["X"]
    kernel, strides, pads, dilations = (
        list(op.attr(f"{name}")) for name in ("kernel_sizes", "strides", "paddings", "dilations")
    )
    cells = windows_of(g, x, kernel, strides, pads, dilations).transpose(0, 1, 3, 5, 2, 4)
    return cells.reshape([x.dim(0), x.size(1) * kernel[0] * kernel[1], cells.merged(4, 6)])


@renders("fold")
def fold(g: Graph, op: Operation) -> Value:
    x = op["X"]
    height, width = op.attr("output_sizes")
    kernel, strides, pads, dilations = (
        list(op.attr(name)) for name in ("kernel_sizes", "strides", "paddings", "dilations")
    )
    need(g.opset >= 16, "adding at indices needs opset 16 or later")
    rows = window_cells(height, kernel[0], strides[0], pads[0], pads[2], dilations[0])
    columns = window_cells(width, kernel[1], strides[1], pads[1], pads[3], dilations[1])
    channels = x.size(1) // (kernel[0] * kernel[1])
    wide = width + pads[1] + pads[3]
    high = height + pads[0] + pads[2]
    places = (rows.T[:, None, :, None] * wide + columns.T[None, :, None, :]).reshape(-1)
    values = x.reshape([x.dim(0), channels, kernel[0] * kernel[1] * len(rows) * len(columns)])
    start = g.full(g.vector([x.dim(0), channels, high * wide]), 0, x.dtype)
    index = g.constant(places.reshape(1, 1, -1), np.int64).expand(values.dims())
    total = g.op("ScatterElements", start, index, values, axis=2, reduction="add")
    image = total.reshape([x.dim(0), channels, high, wide])
    return image.slice([pads[0], pads[1]], [pads[0] + height, pads[1] + width], [2, 3])


@renders("im2sequence")
def im2sequence(g: Graph, op: Operation) -> Value:
    x = op["X"]
    need(op.get("Y") is None, "the real sizes of images (batch with padding)")
    kernel, strides, pads = (list(op.attr(name)) for name in ("kernels", "strides", "paddings"))
    cells = windows_of(g, x, kernel, strides, pads, [1, 1]).transpose(0, 2, 4, 1, 3, 5)
    if op.exporter.several:
        each = cells.merged(1, 3)
        lengths = g.vector([each]) if isinstance(each, int) else each
        op.tell("Out", [lengths.expand(g.vector([x.dim(0)]))])
    else:
        op.single()
    return cells.reshape([cells.merged(0, 3), x.size(1) * kernel[0] * kernel[1]])


@renders("add_position_encoding")
def add_position_encoding(g: Graph, op: Operation) -> Value:
    x = op["X"]
    alone = x.rank == 2
    lengths = op.lengths("X") if alone else None
    width, half = x.size(-1), x.size(-1) // 2
    axis = 0 if alone else 1
    last = x.dim(axis)
    at = ragged.places(g, lengths) if lengths is not None else g.range(0, g.vector([last]).scalar())
    steps = at.cast(x.dtype).unsqueeze(1)
    power = np.arange(half) / (half - 1) if half > 1 else np.ones(1)
    places = steps / g.constant(np.power(10000.0, power)[None].astype(x.dtype))
    encoding = g.concat([places.apply("Sin"), places.apply("Cos")], 1)
    need(width == 2 * half, "an odd width")
    return x * op.attr("alpha") + (encoding if alone else encoding.unsqueeze(0)) * op.attr("beta")
