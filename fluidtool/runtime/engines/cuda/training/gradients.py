"""Gradients of operators in training steps: formulas, sums and products of the values that forward operators left."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.ir.operator import EMPTY
from fluidtool.ops.math.versions import saved_by
from fluidtool.runtime.engines.cuda.training.building import Rows, StepBuilder, imports_step
from fluidtool.runtime.engines.cuda.training.forward import (
    TRANSPOSED,
    along,
    check_batch_norm,
    check_rows,
    convolution_of,
    cosine_rows,
    dropout_factor,
    literal,
    matrix,
    options_of_product,
    reduced_axes,
    rows_mean,
    scaled,
    slopes_of,
    transposed_of,
    whole_gradient,
)
from fluidtool.runtime.engines.cuda.training.softmax import SOFTMAX_GRADIENT
from fluidtool.runtime.graph.importers.batches import as_one_matrix, batch_of, repeated, turned, wide_shape
from fluidtool.runtime.graph.importers.elementwise import aligned
from fluidtool.runtime.graph.importers.losses import check_sigmoid_cross_entropy, counted, labels_of, unless_ignored
from fluidtool.runtime.graph.importers.moves import axis_of, cut_of, repeated_shape, with_bounds
from fluidtool.runtime.graph.importers.reductions import HOW
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.importers.rows import named_rows
from fluidtool.runtime.graph.ir import Shape, Value

Attrs = Mapping[str, Any]
SLOPES: dict[str, tuple[str, Callable[[Attrs], str]]] = {
    "relu": ("Out", lambda a: "(b > 0.0f ? a : 0.0f)"),
    "relu6": ("Out", lambda a: f"(b > 0.0f && b < {literal(a['threshold'])} ? a : 0.0f)"),
    "leaky_relu": ("Out", lambda a: f"(b > 0.0f ? a : a * {literal(a['alpha'])})"),
    "sigmoid": ("Out", lambda a: "a * b * (1.0f - b)"),
    "tanh": ("Out", lambda a: "a * (1.0f - b * b)"),
    "exp": ("Out", lambda a: "a * b"),
    "sqrt": ("Out", lambda a: "a * 0.5f / b"),
    "hard_sigmoid": ("Out", lambda a: f"(b > 0.0f && b < 1.0f ? a * {literal(a['slope'])} : 0.0f)"),
    "square": ("X", lambda a: "a * 2.0f * b"),
    "abs": ("X", lambda a: "(b > 0.0f ? a : b < 0.0f ? -a : 0.0f)"),
    "log": ("X", lambda a: "a / b"),
    "gelu": (
        "X",
        lambda a: (
            "a * (0.5f * (1.0f + tanhf(0.79788456f * (b + 0.044715f * b * b * b))) + 0.5f * b * (1.0f - "
            "tanhf(0.79788456f * (b + 0.044715f * b * b * b)) * tanhf(0.79788456f * (b + 0.044715f * b * b * b))) * "
            "0.79788456f * (1.0f + 0.134145f * b * b))"
            if a.get("approximate")
            else "a * (0.5f * (1.0f + erff(b * 0.70710678f)) + b * 0.39894228f * expf(-0.5f * b * b))"
        ),
    ),
    "swish": (
        "X",
        lambda a: (
            f"a * ft_sigmoid({literal(a['beta'])} * b) * "
            f"(1.0f + {literal(a['beta'])} * b * (1.0f - ft_sigmoid({literal(a['beta'])} * b)))"
        ),
    ),
    "hard_swish": (
        "X",
        lambda a: (
            f"(b + {literal(a['offset'])} >= {literal(a['threshold'])} ? a : b + {literal(a['offset'])} > 0.0f ? "
            f"a * (2.0f * b + {literal(a['offset'])}) / {literal(a['scale'])} : 0.0f)"
        ),
    ),
    "softsign": ("X", lambda a: "a / ((1.0f + fabsf(b)) * (1.0f + fabsf(b)))"),
    "sin": ("X", lambda a: "a * cosf(b)"),
    "cos": ("X", lambda a: "-a * sinf(b)"),
    "reciprocal": ("Out", lambda a: "-a * b * b"),
    "rsqrt": ("Out", lambda a: "-0.5f * a * b * b * b"),
    "brelu": ("X", lambda a: f"(b > {literal(a['t_min'])} && b < {literal(a['t_max'])} ? a : 0.0f)"),
    "clip": ("X", lambda a: f"(b > {literal(a['min'])} && b < {literal(a['max'])} ? a : 0.0f)"),
}
"""By operator: what its gradient reads besides the gradient of its result, and the formula (a: gradient, b: the other)."""


def _slope(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    slot, text = SLOPES[op.type.removesuffix("_grad")]
    need(not b.has(op, "Min") and not b.has(op, "Max"), "computed bounds")
    b.put(op, "X@GRAD", b.formula(text(attrs), b.get(op, "Out@GRAD"), b.get(op, slot)))


imports_step(*(f"{type}_grad" for type in SLOPES))(_slope)


@imports_step("prelu_grad")
def _prelu_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, grad = b.get(op, "X"), b.get(op, "Out@GRAD")
    need(grad.shape == x.shape, "a gradient that does not fit")
    slopes = slopes_of(b, op, attrs, x.shape)
    if b.wants(op, "X@GRAD"):
        b.put(op, "X@GRAD", b.formula("(b > 0.0f ? a : a * c)", grad, x, slopes))
    if b.wants(op, "Alpha@GRAD"):
        found = b.formula("(b > 0.0f ? 0.0f : a * b)", grad, x)
        b.put(op, "Alpha@GRAD", b.summed_to(found, slopes.shape, b.get(op, "Alpha").shape))


# ---------------------------------------------------------------- elementwise operators
def _wide(b: StepBuilder, op: Operator, attrs: Attrs) -> tuple[Value, Shape, Shape, Shape, Shape]:
    """The gradient of the result; the shapes of X and Y, and both as they were broadcast."""
    grad, x, y = b.get(op, "Out@GRAD"), b.shape_of(op, "X"), b.shape_of(op, "Y")
    need(len(x) == len(grad.shape) >= len(y), "broadcasting of X")
    wide = aligned(x, y, int(attrs.get("axis", -1)))
    fits = all(size in (1, whole) for size, whole in zip(wide, grad.shape, strict=True))
    need(fits and all(size in (1, whole) for size, whole in zip(x, grad.shape, strict=True)), "shapes that do not fit")
    return grad, x, y, x, wide


@imports_step("elementwise_add_grad", "elementwise_sub_grad")
def _sum_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    grad, x, y, wide_x, wide_y = _wide(b, op, attrs)
    if b.wants(op, "X@GRAD"):
        b.put(op, "X@GRAD", b.summed_to(grad, wide_x, x))
    if b.wants(op, "Y@GRAD"):
        found = b.summed_to(grad, wide_y, y)
        b.put(op, "Y@GRAD", found if op.type == "elementwise_add_grad" else b.formula("-a", found))


FACTORS = {  # of the gradients by X and by Y: a is that of the result, b is X, c is Y
    "elementwise_mul_grad": ("a * c", "a * b"),
    "elementwise_div_grad": ("a / c", "-a * b / (c * c)"),
    "elementwise_max_grad": ("(b > c ? a : 0.0f)", "(b <= c ? a : 0.0f)"),
    "elementwise_min_grad": ("(b < c ? a : 0.0f)", "(b >= c ? a : 0.0f)"),
}


@imports_step(*FACTORS)
def _factor_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    grad, x, y, wide_x, wide_y = _wide(b, op, attrs)
    operands = (grad, b.get(op, "X"), b.get(op, "Y"))
    shapes = (grad.shape, wide_x, wide_y)
    for slot, text, wide, shape in zip(("X", "Y"), FACTORS[op.type], (wide_x, wide_y), (x, y), strict=True):
        if b.wants(op, f"{slot}@GRAD"):
            found = b.formula(text, *operands, shapes=shapes)
            b.put(op, f"{slot}@GRAD", b.summed_to(found, wide, shape))


# ---------------------------------------------------------------- reductions and moves
@imports_step("mean_grad")
def _mean_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    shape = b.shape_of(op, "X")
    grad = b.get(op, "Out@GRAD")
    need(prod(grad.shape) == 1, "more than one number")
    b.put(op, "X@GRAD", b.formula(f"a / {literal(prod(shape))}", grad, shape=shape))


@imports_step("reduce_sum_grad", "reduce_mean_grad")
def _reduced_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    shape, grad = b.shape_of(op, "X"), b.get(op, "Out@GRAD")
    axes = reduced_axes(attrs, len(shape))
    wide = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    need(prod(wide) == prod(grad.shape), "a gradient that does not fit")
    count = prod(shape) // prod(wide) if op.type == "reduce_mean_grad" else 1
    b.put(op, "X@GRAD", b.formula(f"a / {literal(count)}", b.view(grad, wide), shape=shape))


@imports_step("reduce_max_grad", "reduce_min_grad")
def _extreme_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    """All elements that are the extreme get the whole gradient, as in Paddle (MaxOrMinGradFunctor of reduce_min_max_op.h)."""
    x, out, grad = b.get(op, "X"), b.get(op, "Out"), b.get(op, "Out@GRAD")
    axes = reduced_axes(attrs, len(x.shape))
    wide = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    need(prod(wide) == prod(grad.shape) == prod(out.shape), "a gradient that does not fit")
    b.put(op, "X@GRAD", b.formula("(b == c ? a : 0.0f)", b.view(grad, wide), x, b.view(out, wide), shape=x.shape))


@imports_step("reduce_prod_grad")
def _product_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    """The gradient times the product of the other elements, which is not 0 for the only one that is 0."""
    x, grad = b.get(op, "X"), b.get(op, "Out@GRAD")
    axes = reduced_axes(attrs, len(x.shape))
    kept = [axis for axis in range(len(x.shape)) if axis not in axes]
    wide = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    need(prod(wide) == prod(grad.shape), "a gradient that does not fit")
    product = b.joins(b.formula("(a == 0.0f ? 1.0f : a)", x), kept, HOW["reduce_prod"])
    zeros = b.sums(b.formula("(a == 0.0f ? 1.0f : 0.0f)", x), kept)
    others = "(b == 0.0f ? c * (d == 1.0f ? 1.0f : 0.0f) : c / b * (d == 0.0f ? 1.0f : 0.0f))"
    parts = (b.view(each, wide) for each in (product, zeros))
    b.put(op, "X@GRAD", b.formula(f"a * {others}", b.view(grad, wide), x, *parts, shape=x.shape))


@imports_step("reshape2_grad", "squeeze2_grad", "unsqueeze2_grad", "flatten2_grad")
def _reshaped_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    shape, grad = b.shape_of(op, "XShape"), b.get(op, "Out@GRAD")
    need(prod(shape) == prod(grad.shape), "a gradient that does not fit")
    b.put(op, "X@GRAD", b.view(grad, shape))


@imports_step("transpose2_grad")
def _transposed_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    axes = [int(axis) for axis in attrs["axis"]]
    b.put(op, "X@GRAD", b.transposed(b.get(op, "Out@GRAD"), [axes.index(axis) for axis in range(len(axes))]))


@imports_step("slice_grad")
def _sliced_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    shape, grad = b.shape_of(op, "Input"), b.get(op, "Out@GRAD")
    starts, sizes, _ = cut_of(with_bounds(b, op, attrs), shape)
    need(prod(sizes) == prod(grad.shape), "a gradient that does not fit")
    sources = [
        None
        if part == size
        else np.where((np.arange(size) >= start) & (np.arange(size) < start + part), np.arange(size) - start, -1)
        for start, part, size in zip(starts, sizes, shape, strict=True)
    ]
    b.put(op, "Input@GRAD", b.node("pad", [b.view(grad, sizes)], shape, sources=sources, value=0.0))


@imports_step("concat_grad")
def _parted_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    grad = b.get(op, "Out@GRAD")
    axis, start = axis_of(b, op, attrs) % len(grad.shape), 0
    for number, (source, name) in enumerate(zip(op.inputs["X"], op.outputs["X@GRAD"], strict=True)):
        need(source in b.values, f"{source} has no value")
        shape = b.values[source].shape
        if name and not name.startswith(EMPTY):
            starts = [start if place == axis else 0 for place in range(len(shape))]
            b.put(op, "X@GRAD", b.node("slice", [grad], shape, starts=starts, sizes=shape), number)
        start += shape[axis]


@imports_step("stack_grad")
def _unstacked_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    grad, names = b.get(op, "Y@GRAD"), op.outputs["X@GRAD"]
    axis = int(attrs["axis"]) % len(grad.shape)
    shape = (*grad.shape[:axis], *grad.shape[axis + 1 :])
    sizes = (*grad.shape[:axis], 1, *grad.shape[axis + 1 :])
    for number, name in enumerate(names):
        if name and not name.startswith(EMPTY):
            starts = [number if place == axis else 0 for place in range(len(sizes))]
            b.put(op, "X@GRAD", b.view(b.node("slice", [grad], sizes, starts=starts, sizes=sizes), shape), number)


@imports_step("softmax_grad")
def _softmax_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    y, grad = b.get(op, "Out"), b.get(op, "Out@GRAD")
    need(int(attrs.get("axis", -1)) in (-1, len(y.shape) - 1), "another axis than the last")
    need(grad.shape == y.shape, "a gradient that does not fit")
    b.put(op, "X@GRAD", b.node(SOFTMAX_GRADIENT, [y, grad], y.shape))


# ---------------------------------------------------------------- products
@imports_step("mul_grad")
def _mul_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, y = b.get(op, "X"), b.get(op, "Y")
    left, right = int(attrs["x_num_col_dims"]), int(attrs["y_num_col_dims"])
    one, other = matrix(b, x, left), matrix(b, y, right)
    grad = b.view(b.get(op, "Out@GRAD"), (one.shape[0], other.shape[1]))
    if b.wants(op, "X@GRAD"):
        b.put(op, "X@GRAD", b.view(b.product(grad, other, swap_y=True), x.shape))
    if b.wants(op, "Y@GRAD"):
        b.put(op, "Y@GRAD", b.view(b.product(b.transposed(one, (1, 0)), grad), y.shape))


@imports_step("matmul_grad", "matmul_v2_grad")
def _matmul_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, y, grad = b.get(op, "X"), b.get(op, "Y"), b.get(op, "Out@GRAD")
    swap_x, swap_y, alpha = options_of_product(attrs)
    matrices = as_one_matrix(b, x, y, swap_x)
    batch = batch_of(op.type, matrices.shape, y.shape)
    one, other = (repeated(b, each, batch) for each in (matrices, y))
    one, other = (turned(b, each) if swap else each for each, swap in ((one, swap_x), (other, swap_y)))
    grad = scaled(b, b.view(grad, (*one.shape[:-1], other.shape[-1])), alpha)
    if b.wants(op, "X@GRAD"):
        found = b.product(other, turned(b, grad)) if swap_x else b.product(grad, other, swap_y=True)
        b.put(op, "X@GRAD", _summed_over_batch(b, found, batch, matrices.shape, x.shape))
    if b.wants(op, "Y@GRAD"):
        found = b.product(turned(b, grad), one) if swap_y else b.product(turned(b, one), grad)
        b.put(op, "Y@GRAD", _summed_over_batch(b, found, batch, y.shape, y.shape))


def _summed_over_batch(b: StepBuilder, grad: Value, batch: Shape, matrices: Shape, shape: Shape) -> Value:
    """A gradient by matrices that were repeated for a batch, in another shape."""
    wide = b.view(grad, (*batch, *grad.shape[-2:]))
    return b.view(b.summed_to(wide, wide_shape(matrices, batch), matrices), shape)


@imports_step("cos_sim_grad")
def _cosine_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, y = cosine_rows(b, op)
    column = (x.shape[0], 1)
    grad, out = (b.view(b.get(op, slot), column) for slot in ("Out@GRAD", "Out"))
    x_norm, y_norm = (b.view(b.get(op, f"{slot}Norm"), (rows.shape[0], 1)) for slot, rows in (("X", x), ("Y", y)))
    text = "a * (c / (e * f) - d * b / (e * e))"  # a: that of the result d; b, e: the rows and their length; c, f: the others
    if b.wants(op, "X@GRAD"):
        found = b.formula(text, grad, x, y, out, x_norm, y_norm, shape=x.shape)
        b.put(op, "X@GRAD", b.view(found, b.get(op, "X").shape))
    if b.wants(op, "Y@GRAD"):
        found = b.formula(text, grad, y, x, out, y_norm, x_norm, shape=x.shape)
        b.put(op, "Y@GRAD", b.summed_to(found, y.shape, b.get(op, "Y").shape))


# ---------------------------------------------------------------- losses
@imports_step("cross_entropy_grad2", "cross_entropy_grad")
def _cross_entropy_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    shape = b.shape_of(op, "XShape" if op.type == "cross_entropy_grad2" else "X")
    if attrs.get("soft_label"):
        b.put(op, "X@GRAD", b.formula("-a * b / c", b.get(op, "Label"), b.get(op, "Y@GRAD"), b.get(op, "X")))
        return
    labels, ignored = labels_of(op, attrs, shape[:-1], shape[-1], b.ids)
    column = (*shape[:-1], 1)
    source = b.get(op, "MatchX" if op.type == "cross_entropy_grad2" else "X")
    grad = b.view(b.get(op, "Y@GRAD"), column)
    here = f"({counted(shape[-1], ignored, 'c')} && (int)c == (int)d)"
    text = f"({here} ? -a / b : 0.0f)"
    wide = shape if source.shape == shape else column
    b.put(op, "X@GRAD", b.by_column(text, grad, source, labels, shape=shape, shapes=(column, wide, column)))


@imports_step("sigmoid_cross_entropy_with_logits_grad")
def _sigmoid_cross_entropy_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, labels, grad = b.get(op, "X"), b.get(op, "Label"), b.get(op, "Out@GRAD")
    check_sigmoid_cross_entropy(op, attrs, x, labels)
    need(grad.shape == x.shape, "a gradient that does not fit")
    b.put(op, "X@GRAD", b.formula(unless_ignored(attrs, "c * (ft_sigmoid(a) - b)"), x, labels, grad))


@imports_step("softmax_with_cross_entropy_grad")
def _softmax_with_cross_entropy_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    y, grad = b.get(op, "Softmax"), b.get(op, "Loss@GRAD")
    shape = y.shape
    need(int(attrs["axis"]) in (-1, len(shape) - 1) and attrs.get("use_softmax", True), "another axis than the last")
    if attrs["soft_label"]:
        b.put(op, "Logits@GRAD", b.formula("b * (a - c)", y, grad, b.get(op, "Label")))
        return
    labels, ignored = labels_of(op, attrs, shape[:-1], shape[-1], b.ids)
    ignored = ignored if op.has_attr("use_softmax") else -1  # Paddle 1.8.5 counts ignored labels here
    text = f"({counted(shape[-1], ignored, 'c')} ? a * (b - ((int)c == (int)d ? 1.0f : 0.0f)) : 0.0f)"
    column = (*shape[:-1], 1)
    b.put(op, "Logits@GRAD", b.by_column(text, grad, y, labels, shape=shape, shapes=(column, shape, column)))


# ---------------------------------------------------------------- images
@imports_step("conv2d_grad", "depthwise_conv2d_grad", "conv3d_grad")
def _convolution_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, weights, grad = b.get(op, "Input"), b.get(op, "Filter"), b.get(op, "Output@GRAD")
    windows = convolution_of(op, attrs, x.shape, weights.shape)
    need(grad.shape == windows.results, "a gradient that does not fit")
    if b.wants(op, "Input@GRAD"):
        found = b.node("convolution", [grad, weights], x.shape, windows=windows, computes="x")
        b.put(op, "Input@GRAD", found)
    if b.wants(op, "Filter@GRAD"):
        found = b.node("convolution", [x, grad], weights.shape, windows=windows, computes="weights")
        b.put(op, "Filter@GRAD", found)


@imports_step(*(f"{type}_grad" for type in TRANSPOSED))
def _transposed_convolution_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, weights, grad = b.get(op, "Input"), b.get(op, "Filter"), b.get(op, "Output@GRAD")
    windows, shape = transposed_of(op, attrs, x.shape, weights.shape)
    need(grad.shape == shape, "a gradient that does not fit")
    if b.wants(op, "Input@GRAD"):
        found = b.node("convolution", [grad, weights], x.shape, windows=windows, computes="out")
        b.put(op, "Input@GRAD", found)
    if b.wants(op, "Filter@GRAD"):
        found = b.node("convolution", [grad, x], weights.shape, windows=windows, computes="weights")
        b.put(op, "Filter@GRAD", found)


@imports_step("pool2d_grad", "pool3d_grad")
def _pool_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, y, grad = b.get(op, "X"), b.get(op, "Out"), b.get(op, "Out@GRAD")
    pooled = next((node for node in b.nodes if node.kind == "pool" and node.output is y), None)
    need(pooled is not None and pooled.inputs[0] is x, "the gradient of a pooling that is not in this step")
    assert pooled is not None
    b.put(op, "X@GRAD", b.node("pool_gradient", [x, y, grad], x.shape, **pooled.attrs))


@imports_step("batch_norm_grad")
def _batch_norm_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, grad = b.get(op, "X"), b.get(op, "Y@GRAD")
    check_batch_norm(b, op, attrs, x.shape)
    rank, count = len(x.shape), prod(x.shape) // x.shape[1]
    scale, mean, inverse = (b.get(op, slot) for slot in ("Scale", "SavedMean", "SavedVariance"))
    by_bias = b.sums(grad, (1,))
    parts = [along(b, each, rank) for each in (mean, inverse)]
    by_scale = b.sums(b.formula("a * ((b - c) * d)", grad, x, *parts), (1,))
    if b.wants(op, "Scale@GRAD"):
        b.put(op, "Scale@GRAD", by_scale)
    if b.wants(op, "Bias@GRAD"):
        b.put(op, "Bias@GRAD", by_bias)
    if b.wants(op, "X@GRAD"):
        share = literal(1 / count)
        text = f"e * d * (a - f * {share} - (b - c) * d * g * {share})"
        more = [along(b, each, rank) for each in (scale, by_bias, by_scale)]
        b.put(op, "X@GRAD", b.formula(text, grad, x, *parts, *more))


@imports_step("layer_norm_grad")
def _layer_norm_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, start = b.get(op, "X"), int(attrs["begin_norm_axis"])
    rows = (prod(x.shape[:start]), prod(x.shape[start:]))
    flat, grad = b.view(x, rows), b.view(b.get(op, "Y@GRAD"), rows)
    mean, variance = (b.view(b.get(op, slot), (rows[0], 1)) for slot in ("Mean", "Variance"))
    deviation = f"(1.0f / sqrtf(d + {literal(float(attrs['epsilon']))}))"
    if b.wants(op, "Scale@GRAD"):
        steep = b.formula(f"a * ((b - c) * {deviation})", grad, flat, mean, variance, shape=rows)
        b.put(op, "Scale@GRAD", b.view(b.sums(steep, (1,)), b.get(op, "Scale").shape))
    if b.wants(op, "Bias@GRAD"):
        b.put(op, "Bias@GRAD", b.view(b.sums(grad, (1,)), b.get(op, "Bias").shape))
    if not b.wants(op, "X@GRAD"):
        return
    if b.has(op, "Scale"):
        grad = b.formula("a * b", grad, b.view(b.get(op, "Scale"), (1, rows[1])))
    level = rows_mean(b, grad)
    slope = rows_mean(b, b.formula(f"a * ((b - c) * {deviation})", grad, flat, mean, variance, shape=rows))
    text = f"{deviation} * (a - e - (b - c) * {deviation} * f)"
    found = b.formula(text, grad, flat, mean, variance, level, slope, shape=rows)
    b.put(op, "X@GRAD", b.view(found, x.shape))


# ---------------------------------------------------------------- tables and dropout
@imports_step("lookup_table_grad", "lookup_table_v2_grad")
def _lookup_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    need(not attrs.get("is_distributed"), "a table of a parameter server")
    shape, padding = b.shape_of(op, "W"), int(attrs.get("padding_idx", -1))
    ids = b.ids(op, "Ids", shape[0])
    grad = b.view(b.get(op, "Out@GRAD"), (prod(ids.shape), shape[1]))
    found = Rows((ids,), (grad,))
    if attrs.get("is_sparse"):  # rows of padding are rows like others
        b.rows[op.outputs["W@GRAD"][0]] = found
    else:
        b.put(op, "W@GRAD", whole_gradient(b, found, shape, padding))


@imports_step("gather_grad")
def _gather_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    """Where a row is named twice, the last one wins, as in Paddle 1.8.5, or both are added."""
    x, grad = b.shape_of(op, "X"), b.get(op, "Out@GRAD")
    need(not b.has(op, "Axis") and not int(attrs.get("axis") or 0) and x, "another axis than the first")
    ids = b.ids(op, "Index", x[0])
    need(grad.shape == (prod(ids.shape), *x[1:]), "a gradient that does not fit")
    flat, shape = b.view(grad, (grad.shape[0], prod(x[1:]))), (x[0], prod(x[1:]))
    check_rows(Rows((ids,), (flat,)), shape)
    wins = bool(attrs["overwrite"]) and not saved_by(op.block.program, 2, 0)
    b.put(op, "X@GRAD", b.view(b.node("rows_gradient", [ids, flat], shape, zero=-1, wins=wins), x))


@imports_step("gather_nd_grad")
def _gather_nd_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    """Where a place is named twice, both are added, as on the CPU."""
    x, grad = b.shape_of(op, "X"), b.get(op, "Out@GRAD")
    rows, depth = named_rows(b, op, x, b.ids, nowhere=0), b.get(op, "Index", integer=True).shape[-1]
    shape = (prod(x[:depth]), prod(x[depth:]))
    need(prod(grad.shape) == rows.shape[0] * shape[1], "a gradient that does not fit")
    found = whole_gradient(b, Rows((rows,), (b.view(grad, (rows.shape[0], shape[1])),)), shape)
    b.put(op, "X@GRAD", b.view(found, x))


@imports_step("expand_grad", "expand_as_grad")
def _repeated_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    shape, grad = b.shape_of(op, "X"), b.get(op, "Out@GRAD")
    need(grad.shape == repeated_shape(op, attrs, shape, b), "a gradient that does not fit")
    split = [part for size, whole in zip(shape, grad.shape, strict=True) for part in (whole // size, size)]
    b.put(op, "X@GRAD", b.view(b.sums(b.view(grad, split), range(1, len(split), 2)), shape))


@imports_step("dropout_grad")
def _dropout_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    mask = b.masks.get(op.inputs["Mask"][0])
    need(mask is not None and not attrs.get("is_test"), "the gradient of a dropout that is not in this step")
    assert mask is not None
    b.put(op, "X@GRAD", b.formula(f"a * b * {dropout_factor(attrs)}", b.get(op, "Out@GRAD"), mask))
