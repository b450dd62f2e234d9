"""Poolings of images and volumes, and of regions (Paddle 1.8.5 layers/nn.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.fluid.checks import check_type, check_variable_and_dtype
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.building import FLOATS, append_simple
from fluidtool.fluid.layers.windows import check_cudnn, check_format, check_whole, per_dimension, read_padding
from fluidtool.ir import Variable


def pool2d(
    input: Variable,
    pool_size: int | Sequence[int] = -1,
    pool_type: str = "max",
    pool_stride: int | Sequence[int] = 1,
    pool_padding: Any = 0,
    global_pooling: bool = False,
    use_cudnn: bool = True,
    ceil_mode: bool = False,
    name: str | None = None,
    exclusive: bool = True,
    data_format: str = "NCHW",
) -> Variable:
    """The largest or mean element of windows; exclusive: padding does not count for the mean."""
    sizes = pool_size, pool_stride, pool_padding
    return _pool(2, input, sizes, pool_type, global_pooling, use_cudnn, ceil_mode, name, exclusive, data_format)


def pool3d(
    input: Variable,
    pool_size: int | Sequence[int] = -1,
    pool_type: str = "max",
    pool_stride: int | Sequence[int] = 1,
    pool_padding: Any = 0,
    global_pooling: bool = False,
    use_cudnn: bool = True,
    ceil_mode: bool = False,
    name: str | None = None,
    exclusive: bool = True,
    data_format: str = "NCDHW",
) -> Variable:
    """pool2d with a depth dimension."""
    sizes = pool_size, pool_stride, pool_padding
    return _pool(3, input, sizes, pool_type, global_pooling, use_cudnn, ceil_mode, name, exclusive, data_format)


def _pool(
    count: int,
    input: Variable,
    sizes: tuple[Any, Any, Any],
    pool_type: str,
    global_pooling: bool,
    use_cudnn: bool,
    ceil_mode: bool,
    name: str | None,
    exclusive: bool,
    data_format: str,
) -> Variable:
    """A pooling of `count` dimensions; sizes: of the windows, their strides and their paddings."""
    pool_size, pool_stride, pool_padding = sizes
    if pool_type not in ("max", "avg"):
        raise UsageError(f"Unknown Attr(pool_type): '{pool_type}'. It can only be 'max' or 'avg'.")
    if global_pooling is False and pool_size == -1:
        raise UsageError(
            "When Attr(global_pooling) is False, Attr(pool_size) must be passed and be a valid value. "
            f"Received pool_size: {pool_size}."
        )
    check_cudnn(use_cudnn)
    check_format(data_format, count)
    padding = read_padding(pool_padding, count, data_format, "Attr(pool_padding)")
    if padding.algorithm == "VALID" and ceil_mode:
        raise UsageError('When Attr(pool_padding) is "VALID", Attr(ceil_mode) must be False. Received ceil_mode: True.')
    attrs = {
        "pooling_type": pool_type,
        "ksize": per_dimension(pool_size, count, "pool_size"),
        "global_pooling": global_pooling,
        "strides": per_dimension(pool_stride, count, "pool_stride"),
        "paddings": padding.shortest(count),
        "padding_algorithm": padding.algorithm,
        "use_cudnn": use_cudnn,
        "ceil_mode": ceil_mode,
        "use_mkldnn": False,
        "data_format": data_format,
        "exclusive": exclusive,
    }
    op_type = f"pool{count}d"
    return append_simple(LayerHelper(op_type, name=name), op_type, {"X": input}, attrs, dtype=input.dtype)


def adaptive_pool2d(
    input: Variable,
    pool_size: int | Sequence[int],
    pool_type: str = "max",
    require_index: bool = False,
    name: str | None = None,
) -> Variable | tuple[Variable, Variable]:
    """Pooling to a given output size; require_index: also the indices of the largest elements."""
    return _adaptive(input, pool_size, pool_type, require_index, name, 2)


def adaptive_pool3d(
    input: Variable,
    pool_size: int | Sequence[int],
    pool_type: str = "max",
    require_index: bool = False,
    name: str | None = None,
) -> Variable | tuple[Variable, Variable]:
    """adaptive_pool2d with a depth dimension."""
    return _adaptive(input, pool_size, pool_type, require_index, name, 3)


def _adaptive(
    input: Variable, pool_size: Any, pool_type: str, require_index: bool, name: str | None, count: int
) -> Variable | tuple[Variable, Variable]:
    layer = f"adaptive_pool{count}d"
    check_variable_and_dtype(input, "input", (*FLOATS, "int32", "int64"), layer)
    check_type(pool_type, "pool_type", str, layer)
    check_type(pool_size, "pool_size", (int, list, tuple), layer)
    check_type(require_index, "require_index", bool, layer)
    if pool_type not in ("max", "avg"):
        raise UsageError(f"Unknown pool_type: '{pool_type}'. It can only be 'max' or 'avg'.")
    if pool_type == "avg" and require_index:
        raise UsageError("invalid setting 'require_index' true when 'pool_type' is 'avg'.")
    op_type = f"max_pool{count}d_with_index" if pool_type == "max" else f"pool{count}d"
    helper = LayerHelper(op_type, name=name)
    out = helper.create_variable_for_type_inference(input.dtype)
    outputs = {"Out": out}
    if pool_type == "max":
        outputs["Mask"] = helper.create_variable_for_type_inference(input.dtype)
    attrs = {"ksize": per_dimension(pool_size, count, "pool_size"), "adaptive": True}
    if pool_type == "avg":
        attrs["pooling_type"] = pool_type
    helper.append_op(type=op_type, inputs={"X": input}, outputs=outputs, attrs=attrs)
    return (out, outputs["Mask"]) if require_index else out


# ---------------------------------------------------------------- regions
def roi_pool(
    input: Variable,
    rois: Variable,
    pooled_height: int = 1,
    pooled_width: int = 1,
    spatial_scale: float = 1.0,
    rois_lod: Variable | None = None,
) -> Variable:
    """The largest element in each cell of each region (Girshick 2015)."""
    helper = LayerHelper("roi_pool")
    out = helper.create_variable_for_type_inference(input.dtype)
    argmax = helper.create_variable_for_type_inference("int32")
    inputs = {"X": input, "ROIs": rois} | ({} if rois_lod is None else {"RoisLod": rois_lod})
    attrs = {"pooled_height": pooled_height, "pooled_width": pooled_width, "spatial_scale": spatial_scale}
    helper.append_op(type="roi_pool", inputs=inputs, outputs={"Out": out, "Argmax": argmax}, attrs=attrs)
    return out


def roi_align(
    input: Variable,
    rois: Variable,
    pooled_height: int = 1,
    pooled_width: int = 1,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    name: str | None = None,
    rois_lod: Variable | None = None,
) -> Variable:
    """Means of interpolated samples in each cell of each region (He et al. 2017)."""
    check_variable_and_dtype(input, "input", ("float32", "float64"), "roi_align")
    check_variable_and_dtype(rois, "rois", ("float32", "float64"), "roi_align")
    attrs = {
        "pooled_height": pooled_height,
        "pooled_width": pooled_width,
        "spatial_scale": spatial_scale,
        "sampling_ratio": sampling_ratio,
    }
    inputs = {"X": input, "ROIs": rois, "RoisLod": rois_lod}
    return append_simple(LayerHelper("roi_align", name=name), "roi_align", inputs, attrs, dtype=input.dtype)


def psroi_pool(
    input: Variable,
    rois: Variable,
    output_channels: int,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    name: str | None = None,
) -> Variable:
    """Position-sensitive region pooling (Dai et al. 2016)."""
    helper = LayerHelper("psroi_pool", name=name)
    _check_cells(spatial_scale, pooled_height, pooled_width)
    check_whole(output_channels, "output_channels")
    attrs = {
        "output_channels": output_channels,
        "spatial_scale": spatial_scale,
        "pooled_height": pooled_height,
        "pooled_width": pooled_width,
    }
    return append_simple(helper, "psroi_pool", {"X": input, "ROIs": rois}, attrs, dtype=input.dtype)


def prroi_pool(
    input: Variable,
    rois: Variable,
    spatial_scale: float = 1.0,
    pooled_height: int = 1,
    pooled_width: int = 1,
    batch_roi_nums: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Precise region pooling: the integral over each cell (Jiang et al. 2018)."""
    helper = LayerHelper("prroi_pool", name=name)
    _check_cells(spatial_scale, pooled_height, pooled_width)
    attrs = {"spatial_scale": spatial_scale, "pooled_height": pooled_height, "pooled_width": pooled_width}
    inputs = {"X": input, "ROIs": rois, "BatchRoINums": batch_roi_nums}
    return append_simple(helper, "prroi_pool", inputs, attrs, dtype=input.dtype)


def _check_cells(spatial_scale: Any, pooled_height: Any, pooled_width: Any) -> None:
    if not isinstance(spatial_scale, float):
        raise ArgumentTypeError(f"spatial_scale must be float type, found {type(spatial_scale).__name__}")
    check_whole(pooled_height, "pooled_height")
    check_whole(pooled_width, "pooled_width")


def deformable_roi_pooling(
    input: Variable,
    rois: Variable,
    trans: Variable,
    no_trans: bool = False,
    spatial_scale: float = 1.0,
    group_size: Sequence[int] = (1, 1),
    pooled_height: int = 1,
    pooled_width: int = 1,
    part_size: Sequence[int] | None = None,
    sample_per_part: int = 1,
    trans_std: float = 0.1,
    position_sensitive: bool = False,
    name: str | None = None,
) -> Variable:
    """Region pooling with cells moved by `trans` (Dai et al. 2017)."""
    for label, var in (("input", input), ("rois", rois), ("trans", trans)):
        check_variable_and_dtype(var, label, ("float32", "float64"), "deformable_roi_pooling")
    check_type(group_size, "group_size", (list, tuple), "deformable_roi_pooling")
    channels = input.shape[1]
    helper = LayerHelper("deformable_psroi_pooling", name=name)
    out = helper.create_variable_for_type_inference(input.dtype)
    count = helper.create_variable_for_type_inference("int32")
    parts = [pooled_height, pooled_width] if part_size is None else part_size
    attrs = {
        "no_trans": no_trans,
        "spatial_scale": spatial_scale,
        "output_dim": channels // pooled_height // pooled_width if position_sensitive else channels,
        "group_size": per_dimension(group_size, 2, "group_size"),
        "pooled_height": pooled_height,
        "pooled_width": pooled_width,
        "part_size": per_dimension(parts, 2, "part_size"),
        "sample_per_part": sample_per_part,
        "trans_std": trans_std,
    }
    helper.append_op(
        type="deformable_psroi_pooling",
        inputs={"Input": input, "ROIs": rois, "Trans": trans},
        outputs={"Output": out, "TopCount": count},
        attrs=attrs,
    )
    return out
