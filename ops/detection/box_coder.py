"""box_coder: boxes as offsets from prior boxes, and back."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.detection.boxes import center_form, check_boxes, corner_form, corners, exp, fits, log
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta, floats
from fluidtool.shapes import shape_text

ENCODE, DECODE = "encode_center_size", "decode_center_size"


@op(
    "box_coder",
    inputs="PriorBox PriorBoxVar? TargetBox",
    outputs="OutputBox",
    attrs={"code_type": ENCODE, "box_normalized": True, "axis": 0, "variance": floats()},
)
def box_coder(
    ctx: OpContext,
    PriorBox: Any,
    PriorBoxVar: Any,
    TargetBox: Any,
    *,
    code_type: str,
    box_normalized: bool,
    axis: int,
    variance: list[float],
) -> Any:
    """Encode TargetBox [N, 4] against every prior [M, 4], or decode TargetBox [N, M, 4] (Paddle 1.8.5 box_coder_op.h).

    The result is [N, M, 4]. Priors lie along dimension 1 of TargetBox, with axis=1 along dimension 0. Variances come
    from PriorBoxVar (as many as priors) or from the attribute. The LoD is TargetBox's; of PriorBox with axis=1.
    """
    _check(ctx, PriorBox, PriorBoxVar, TargetBox, code_type, axis, variance)
    pixel = 0 if box_normalized else 1
    lod = ctx.lod("PriorBox") if code_type == DECODE and axis == 1 else ctx.lod("TargetBox")
    ctx.set_lod("OutputBox", lod)
    scale = PriorBoxVar
    if scale is None and variance:
        scale = ctx.array(ctx.np.asarray([variance], TargetBox.dtype))
    if code_type == ENCODE:
        return encode(ctx.xp, PriorBox, scale, TargetBox, pixel)
    beside = (None, slice(None)) if axis == 0 else (slice(None), None)
    return decode(ctx.xp, PriorBox[beside], None if scale is None else scale[beside], TargetBox, pixel)


def encode(xp: Any, priors: Any, scale: Any, targets: Any, pixel: int) -> Any:
    """Offsets [N, M, 4] of targets [N, 4] from priors [M, 4]."""
    center_x, center_y, width, height = center_form(priors, pixel)
    xmin, ymin, xmax, ymax = (side[:, None] for side in corners(targets))
    codes = (
        ((xmax + xmin) / 2 - center_x) / width,
        ((ymax + ymin) / 2 - center_y) / height,
        log(xp, abs((xmax - xmin + pixel) / width)),
        log(xp, abs((ymax - ymin + pixel) / height)),
    )
    encoded = xp.stack(codes, axis=-1)
    return encoded if scale is None else encoded / scale


def decode(xp: Any, priors: Any, scale: Any, codes: Any, pixel: int) -> Any:
    """Boxes [N, M, 4] from their offsets; priors and scale broadcast to them."""
    center_x, center_y, width, height = center_form(priors, pixel)
    x, y, w, h = corners(codes if scale is None else scale * codes)
    return corner_form(xp, x * width + center_x, y * height + center_y, exp(xp, w) * width, exp(xp, h) * height, pixel)


def _check(
    ctx: OpContext | InferContext, prior: Any, scale: Any, target: Any, code_type: str, axis: int, variance: list[float]
) -> None:
    check_boxes(ctx, "PriorBox", prior)
    if code_type not in (ENCODE, DECODE):
        raise ctx.error(f"attribute code_type must be {ENCODE} or {DECODE}, found {code_type!r}")
    if axis not in (0, 1):
        raise ctx.error(f"attribute axis must be 0 or 1, found {axis}")
    if len(variance) not in (0, 4):
        raise ctx.error(f"attribute variance must have 4 numbers, found {list(variance)}")
    if scale is not None and variance:
        raise ctx.error("input PriorBoxVar and attribute variance exclude each other; drop one")
    if scale is not None and not fits(scale.shape, prior.shape):
        raise ctx.error(
            f"input PriorBoxVar must have the shape of PriorBox {shape_text(prior.shape)}, found {shape_text(scale.shape)}"
        )
    if code_type == ENCODE:
        check_boxes(ctx, "TargetBox", target)
    else:
        if not fits(target.shape, (-1, prior.shape[0], 4) if axis == 0 else (prior.shape[0], -1, 4)):
            raise ctx.error(
                f"input TargetBox must be (N, M, 4) with {prior.shape[0]} priors along dimension {1 - axis} "
                f"(attribute axis is {axis}), found shape {shape_text(target.shape)}"
            )


@box_coder.infer
def _(
    ctx: InferContext,
    PriorBox: TensorMeta,
    PriorBoxVar: TensorMeta | None,
    TargetBox: TensorMeta,
    *,
    code_type: str,
    axis: int,
    variance: list[float],
) -> TensorMeta:
    _check(ctx, PriorBox, PriorBoxVar, TargetBox, code_type, axis, variance)
    if code_type == ENCODE:
        return TargetBox.with_shape((TargetBox.shape[0], *PriorBox.shape))
    like = PriorBox if axis == 1 else TargetBox
    return TensorMeta(TargetBox.shape, TargetBox.dtype, like.lod_level)
