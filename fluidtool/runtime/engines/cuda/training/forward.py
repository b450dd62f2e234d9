"""Forward operators in training steps: those whose parameters change, and the rest by the importers of inference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.runtime.engines.cuda.training.building import (
    STEP_IMPORTERS,
    Rows,
    StepBuilder,
    as_in_inference,
    imports_step,
)
from fluidtool.runtime.graph.importers.batches import as_one_matrix, batch_of, repeated, turned
from fluidtool.runtime.graph.importers.convolution import Windows, windows_of
from fluidtool.runtime.graph.importers.elementwise import shape_of_slopes
from fluidtool.runtime.graph.importers.grids import add_constant
from fluidtool.runtime.graph.importers.losses import add_one_hot, labels_of, loss_of, probabilities, soft_loss
from fluidtool.runtime.graph.importers.moves import axis_of
from fluidtool.runtime.graph.importers.reductions import HOW
from fluidtool.runtime.graph.importers.registry import IMPORTERS, need
from fluidtool.runtime.graph.importers.rows import add_gather, add_gather_nd
from fluidtool.runtime.graph.importers.transposed import transposed_windows
from fluidtool.runtime.graph.importers.volumes import windows_of_volumes
from fluidtool.runtime.graph.ir import Shape, Value

Attrs = Mapping[str, Any]
SHARED = (
    "elementwise_add", "elementwise_sub", "elementwise_mul", "elementwise_div", "elementwise_max", "elementwise_min",
    "relu", "relu6", "sigmoid", "tanh", "gelu", "leaky_relu", "hard_swish", "swish", "exp", "sqrt", "square", "hard_sigmoid",
    "softsign", "brelu", "abs", "clip", "scale", "softmax", "assign", "stack", "pool2d", "expand", "expand_as",
    "elementwise_floordiv", "elementwise_mod",
)  # fmt: skip
"""Operators that are imported as in inference: they have no parameters."""
SHAPED = ("reshape2", "transpose2", "squeeze2", "unsqueeze2", "flatten2", "reshape", "transpose")
"""The same for those whose gradients need the shape of their input."""
RANKING = ("arg_max", "arg_min", "top_k", "top_k_v2", "argsort", "accuracy")
"""The same for those whose results, or what they read, are whole numbers."""
CONSTANTS = ("assign_value", "eye", "linspace", "range", "shape", "size")
BOXES = ("prior_box", "density_prior_box", "anchor_generator", "yolo_box", "box_coder")
"""The same for what depends on shapes, attributes and constants alone, and for boxes, which have no gradients."""
LOSSES = ("sigmoid_cross_entropy_with_logits", "label_smooth")


def _shaped(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    shape = b.get(op, "X", integer=None).shape
    IMPORTERS[op.type](b, op, dict(attrs))
    if b.wants(op, "XShape"):
        b.shapes[op.outputs["XShape"][0]] = shape


as_in_inference(*SHARED, *RANKING, *LOSSES, *CONSTANTS, *BOXES)
STEP_IMPORTERS.update(dict.fromkeys(SHAPED, _shaped))


@imports_step("cast")
def _cast(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    """Ids that are cut to 32 bits are looked at as they were given: steps with others run operator by operator."""
    IMPORTERS["cast"](b, op, dict(attrs))
    found, given = (b.values.get(slots[0]) for slots in (op.outputs["Out"], op.inputs["X"]))
    if found is not None and given is not None and found.short and given.integer:
        b.viewed[found] = b.viewed.get(given, given)


def add_tensors(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    """A sum of tensors, or of rows of tables."""
    rows = [b.rows[name] for name in op.inputs["X"] if name in b.rows]
    if not rows:
        return IMPORTERS["sum"](b, op, dict(attrs))
    need(len(rows) == len(op.inputs["X"]), "a sum of rows and whole tables")
    b.rows[op.outputs["Out"][0]] = b.sum_rows(rows)
    return None


NUMBERS = {
    "floor": "floorf(a)", "ceil": "ceilf(a)", "cos": "cosf(a)", "sin": "sinf(a)", "log": "logf(a)",
    "reciprocal": "1.0f / a", "rsqrt": "1.0f / sqrtf(a + 0.0f)", "sign": "(float)((a > 0.0f) - (a < 0.0f))",
}  # fmt: skip


@imports_step(*NUMBERS)
def _function(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    b.put(op, "Out", b.formula(NUMBERS[op.type], b.get(op, "X")))


@imports_step("elementwise_pow")
def _power(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, y = b.get(op, "X"), b.get(op, "Y")
    need(x.shape == y.shape or prod(y.shape) == 1, "powers that are broadcast")
    b.put(op, "Out", b.formula("powf(a, b)", x, y))


@imports_step("prelu")
def _prelu(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x = b.get(op, "X")
    b.put(op, "Out", b.formula("(a > 0.0f ? a : a * b)", x, slopes_of(b, op, attrs, x.shape)))


def slopes_of(b: StepBuilder, op: Operator, attrs: Attrs, shape: Shape) -> Value:
    """The slopes of a prelu, in a shape that broadcasts."""
    slopes = b.get(op, "Alpha")
    return b.view(slopes, shape_of_slopes(attrs, shape, prod(slopes.shape)))


FLOAT32 = 5  # VarType.FP32
WHOLE, SHORT = 3, 2  # VarType.INT64, VarType.INT32
WHOLES = (WHOLE, SHORT)


@imports_step("fill_constant")
def _fill(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    if attrs["dtype"] == FLOAT32 and not b.has(op, "ValueTensor"):
        _put_constant(b, op, attrs, b.settled(op, attrs["shape"], "ShapeTensor", "ShapeTensorList"))
    else:
        add_constant(b, op, attrs)


@imports_step("fill_constant_batch_size_like")
def _fill_like_batch(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    """Of sequences, as many rows as there are sequences."""
    (name,), source, target = op.inputs["Input"], int(attrs["input_dim_idx"]), int(attrs["output_dim_idx"])
    given, lod, shape = b.shape_of(op, "Input"), b.lod(name), list(attrs["shape"])
    need(0 <= source < len(given) and 0 <= target < len(shape), "dimensions out of range")
    shape[target] = len(lod[-1]) - 1 if lod and source == 0 else given[source]
    if attrs["dtype"] == FLOAT32:
        _put_constant(b, op, attrs, shape)
    else:
        add_constant(b, op, attrs)


def _put_constant(b: StepBuilder, op: Operator, attrs: Attrs, sizes: Sequence[int]) -> None:
    shape = tuple(int(size) for size in sizes)
    need(all(size > 0 for size in shape), "an empty constant")
    text = attrs.get("str_value") or repr(float(attrs["value"]))
    try:
        number = float(text)
    except ValueError:
        need(False, f"the constant {text}")
        raise
    found = b.node("formula", [], shape, text=literal(number), shapes=(), counts_columns=False)
    if shape == (1,):
        b.filled[found] = number
    b.put(op, "Out", found)


@imports_step("fill_zeros_like", "fill_zeros_like2")
def _zeros(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    (name,), var = op.inputs["X"], op.block.find_var_recursive(op.outputs["Out"][0])
    given = b.values.get(name)
    if name not in b.conditions and (var is None or var.dtype == FLOAT32 if given is None else not given.integer):
        b.put(op, "Out", b.zeros(b.shape_of(op, "X")))
    else:
        add_constant(b, op, attrs)


@imports_step("fill_any_like")
def _fill_like(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    value = float(attrs["value"])
    if attrs["dtype"] in (-1, FLOAT32) and not b.get(op, "X", integer=None).integer and np.isfinite(value):
        found = b.node("formula", [], b.shape_of(op, "X"), text=literal(value), shapes=(), counts_columns=False)
        b.put(op, "Out", found)
    else:
        add_constant(b, op, attrs)


def literal(number: float) -> str:
    """A number as C has it."""
    from fluidtool.runtime.engines.cuda.sources import number as written

    return written(number)


@imports_step("mean")
def _mean(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x = b.get(op, "X")
    total = b.sums(x, ())
    b.put(op, "Out", b.formula(f"a * {literal(1 / prod(x.shape))}", total, shape=(1,)))


JOINED = ("reduce_max", "reduce_min", "reduce_prod")


@imports_step("reduce_sum", "reduce_mean", *JOINED)
def _reduce(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x = b.get(op, "X")
    axes = reduced_axes(attrs, len(x.shape))
    need(attrs.get("out_dtype", -1) < 0, "a result of another type")
    kept = [axis for axis in range(len(x.shape)) if axis not in axes]
    total = b.joins(x, kept, HOW[op.type]) if op.type in JOINED else b.sums(x, kept)
    if op.type == "reduce_mean":
        total = b.formula(f"a / {literal(prod(x.shape) // prod(total.shape))}", total)
    wide = [1 if axis in axes else size for axis, size in enumerate(x.shape)]
    b.put(op, "Out", b.view(total, wide if attrs["keep_dim"] else (total.shape or (1,))))


def reduced_axes(attrs: Attrs, rank: int) -> set[int]:
    """The axes of a reduction."""
    dims = attrs["dim"] if isinstance(attrs["dim"], list) else [attrs["dim"]]
    need(all(-rank <= int(axis) < rank for axis in dims), "dimensions out of range")
    return set(range(rank)) if attrs.get("reduce_all") or not dims else {int(axis) % rank for axis in dims}


@imports_step("slice")
def _slice(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    need(all(int(axis) % len(b.get(op, "Input").shape) for axis in attrs["axes"]), "slices along the axis of sequences")
    IMPORTERS["slice"](b, op, dict(attrs))


@imports_step("concat")
def _concat(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    name = op.inputs["X"][0]
    need(name in b.values, f"{name} has no value")
    need(axis_of(b, op, attrs) % len(b.values[name].shape), "concat along the axis of sequences")
    IMPORTERS["concat"](b, op, dict(attrs))


# ---------------------------------------------------------------- products
def matrix(b: StepBuilder, value: Value, columns_from: int) -> Value:
    """A value as a matrix."""
    return b.view(value, (prod(value.shape[:columns_from]), prod(value.shape[columns_from:])))


@imports_step("mul")
def _mul(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, y = b.get(op, "X"), b.get(op, "Y")
    left, right = int(attrs["x_num_col_dims"]), int(attrs["y_num_col_dims"])
    one, other = matrix(b, x, left), matrix(b, y, right)
    need(one.shape[1] == other.shape[0], "a product of sizes that do not fit")
    b.put(op, "Out", b.view(b.product(one, other), (*x.shape[:left], *y.shape[right:])))


@imports_step("matmul", "matmul_v2")
def _matmul(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, y = b.get(op, "X"), b.get(op, "Y")
    swap_x, swap_y, alpha = options_of_product(attrs)
    whole = batch_of(op.type, x.shape, y.shape)
    need(x.shape[-2 if swap_x else -1] == y.shape[-1 if swap_y else -2], "matmul of sizes that do not fit")
    shape = (*whole, x.shape[-1 if swap_x else -2], y.shape[-2 if swap_y else -1])
    x = as_one_matrix(b, x, y, swap_x)
    batch = batch_of(op.type, x.shape, y.shape)
    one, other = (repeated(b, each, batch) for each in (x, y))
    one = turned(b, one) if swap_x else one
    b.put(op, "Out", scaled(b, b.view(b.product(one, other, swap_y), shape), alpha))


def options_of_product(attrs: Attrs) -> tuple[bool, bool, float]:
    """Whether X and Y are transposed, and the factor of their product."""
    need(attrs.get("head_number", 1) <= 1, "matmul by heads")
    swap_x, swap_y = (
        bool(attrs.get(a, attrs.get(b))) for a, b in (("transpose_X", "trans_x"), ("transpose_Y", "trans_y"))
    )
    return swap_x, swap_y, float(attrs.get("alpha", 1.0))


def scaled(b: StepBuilder, value: Value, factor: float) -> Value:
    """A value times a factor."""
    if factor == 1.0:
        return value
    attrs = {"text": f"a * {literal(factor)}", "shapes": (value.shape,), "counts_columns": False}
    return b.node("formula", [value], value.shape, factor=factor, **attrs)


@imports_step("cos_sim")
def _cosine(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, y = cosine_rows(b, op)
    lengths = [b.formula("sqrtf(a)", rows_sum(b, b.formula("a * a", rows))) for rows in (x, y)]
    product = rows_sum(b, b.formula("a * b", x, y))
    b.put(op, "Out", b.formula("a / b / c", product, *lengths))
    for slot, value in zip(("XNorm", "YNorm"), lengths, strict=True):
        if b.wants(op, slot):
            b.put(op, slot, value)


def cosine_rows(b: StepBuilder, op: Operator) -> tuple[Value, Value]:
    """X and Y of a cosine as matrices; Y may have one row for all of X's."""
    x, y = b.get(op, "X"), b.get(op, "Y")
    need(len(x.shape) > 1 and x.shape[1:] == y.shape[1:] and y.shape[0] in (1, x.shape[0]), "rows that do not match")
    return matrix(b, x, 1), matrix(b, y, 1)


def rows_sum(b: StepBuilder, value: Value) -> Value:
    """The sum of each row of a matrix, [rows, 1]."""
    rows, length = value.shape
    return b.node("reduce", [value], (rows, 1), sizes=(rows, length, 1), how=0)


# ---------------------------------------------------------------- losses
@imports_step("cross_entropy", "cross_entropy2")
def _cross_entropy(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x = b.get(op, "X")
    if attrs.get("soft_label"):
        soft_loss(b, op, "Y", x)
        return
    labels, ignored = labels_of(op, attrs, x.shape[:-1], x.shape[-1], b.ids)
    loss, match = loss_of(b, x, labels, ignored)
    b.put(op, "Y", b.view(loss, labels.shape))
    if op.type == "cross_entropy2":
        b.put(op, "MatchX", match)
        b.shapes[op.outputs["XShape"][0]] = x.shape


@imports_step("softmax_with_cross_entropy")
def _softmax_with_cross_entropy(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    y = probabilities(b, op, attrs)
    if attrs["soft_label"]:
        soft_loss(b, op, "Loss", y)
        return
    labels, ignored = labels_of(op, attrs, y.shape[:-1], y.shape[-1], b.ids)
    need(labels.shape == (*y.shape[:-1], 1), "labels of another shape")
    b.put(op, "Loss", loss_of(b, y, labels, ignored)[0])


@imports_step("one_hot", "one_hot_v2")
def _one_hot(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    add_one_hot(b, op, attrs, b.ids, [])


# ---------------------------------------------------------------- images
@imports_step("conv2d", "depthwise_conv2d", "conv3d")
def _convolution(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, weights = b.get(op, "Input"), b.get(op, "Filter")
    windows = convolution_of(op, attrs, x.shape, weights.shape)
    b.put(op, "Output", b.node("convolution", [x, weights], windows.results, windows=windows, computes="out"))


def convolution_of(op: Operator, attrs: Attrs, images: Shape, filters: Shape) -> Windows:
    """The windows of a convolution to which nothing is fused."""
    fused = any(op.inputs.get(slot) for slot in ("Bias", "ResidualData")) or any(
        attrs.get(name) for name in ("fuse_relu", "fuse_activation", "fuse_relu_before_depthwise_conv")
    )
    need(not fused, "a convolution that is fused")
    if op.type.startswith("conv3d"):
        return windows_of_volumes(attrs, images, filters)
    need(len(images) == len(filters) == 4, "a convolution of something other than images")
    need(attrs.get("data_format", "NCHW") in ("NCHW", "AnyLayout"), "convolution in NHWC")
    return windows_of(attrs, images, filters)


TRANSPOSED = ("conv2d_transpose", "depthwise_conv2d_transpose", "conv3d_transpose")


@imports_step(*TRANSPOSED)
def _transposed_convolution(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, weights = b.get(op, "Input"), b.get(op, "Filter")
    windows, shape = transposed_of(op, attrs, x.shape, weights.shape)
    b.put(op, "Output", b.node("convolution", [x, weights], shape, windows=windows, computes="x"))


def transposed_of(op: Operator, attrs: Attrs, x: Shape, filters: Shape) -> tuple[Windows, Shape]:
    """(the convolution whose gradient by its images this is, the shape of those images), if nothing is fused to it."""
    fused = op.inputs.get("Bias") or attrs.get("fuse_relu") or attrs.get("fuse_activation")
    need(not fused, "a convolution that is fused")
    return transposed_windows(attrs, x, filters)


# ---------------------------------------------------------------- normalization
def along(b: StepBuilder, value: Value, rank: int, axis: int = 1) -> Value:
    """Numbers by channel, in a shape that broadcasts."""
    return b.view(value, (1,) * axis + value.shape + (1,) * (rank - axis - 1))


@imports_step("batch_norm")
def _batch_norm(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, epsilon = b.get(op, "X"), literal(float(attrs["epsilon"]))
    check_batch_norm(b, op, attrs, x.shape)
    rank, count = len(x.shape), prod(x.shape) // x.shape[1]
    share = literal(1 / count)
    mean = b.formula(f"a * {share}", b.sums(x, (1,)))
    apart = b.formula("(a - b) * (a - b)", x, along(b, mean, rank))
    variance = b.formula(f"a * {share}", b.sums(apart, (1,)))
    inverse = b.formula(f"1.0f / sqrtf(a + {epsilon})", variance)
    numbers = [b.get(op, slot) for slot in ("Scale", "Bias")]
    parts = [along(b, each, rank) for each in (mean, inverse, *numbers)]
    b.put(op, "Y", b.formula("(a - b) * (d * c) + e", x, *parts))
    momentum = float(attrs["momentum"])
    for slot, new in (("Mean", mean), ("Variance", variance)):
        text = f"a * {literal(momentum)} + b * {literal(1 - momentum)}"
        b.put(op, f"{slot}Out", b.formula(text, b.get(op, slot), new))
    for slot, saved in (("SavedMean", mean), ("SavedVariance", inverse)):
        if b.wants(op, slot):
            b.put(op, slot, saved)


def check_batch_norm(b: StepBuilder, op: Operator, attrs: Attrs, shape: Shape) -> None:
    """Refuse all but normalization by the statistics of a batch, channels first."""
    still = attrs.get("is_test") or attrs.get("use_global_stats") or attrs.get("fuse_with_relu")
    need(not still and not op.inputs.get("MomentumTensor"), "batch_norm by running statistics")
    need(attrs.get("data_layout", "NCHW") in ("NCHW", "AnyLayout") and len(shape) >= 2, "batch_norm in NHWC")
    need(prod(shape) > shape[1] and b.has(op, "Scale"), "batch_norm of one element")


@imports_step("layer_norm")
def _layer_norm(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, start = b.get(op, "X"), int(attrs["begin_norm_axis"])
    need(0 < start < len(x.shape), "an axis out of range")
    rows, length = prod(x.shape[:start]), prod(x.shape[start:])
    flat = b.view(x, (rows, length))
    mean = rows_mean(b, flat)
    variance = rows_mean(b, b.formula("(a - b) * (a - b)", flat, mean, shape=flat.shape))
    epsilon = literal(float(attrs["epsilon"]))
    inputs, text = [flat, mean, variance], f"(a - b) * (1.0f / sqrtf(c + {epsilon}))"
    for slot, sign in (("Scale", "*"), ("Bias", "+")):
        if b.has(op, slot):
            text = f"({text} {sign} {'abcdefgh'[len(inputs)]})"
            inputs.append(b.view(b.get(op, slot), (1, length)))
    b.put(op, "Y", b.view(b.formula(text, *inputs, shape=flat.shape), x.shape))
    for slot, value in (("Mean", mean), ("Variance", variance)):
        if b.wants(op, slot):
            b.put(op, slot, b.view(value, (rows,)))


def rows_mean(b: StepBuilder, value: Value) -> Value:
    """The mean of each row of a matrix, [rows, 1]."""
    rows, length = value.shape
    return b.node("reduce", [value], (rows, 1), sizes=(rows, length, 1), how=1)


# ---------------------------------------------------------------- tables and dropout
@imports_step("lookup_table", "lookup_table_v2")
def _lookup(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    table = b.get(op, "W")
    need(not attrs.get("is_distributed") and not attrs.get("epmap"), "a table of a parameter server")
    padding = int(attrs.get("padding_idx", -1))
    ids = b.ids(op, "Ids", table.shape[0])
    need(len(table.shape) == 2 and -1 <= padding < table.shape[0], "padding that is no row")
    lead = ids.shape[:-1] if op.type == "lookup_table" else ids.shape
    need(op.type != "lookup_table" or ids.shape[-1:] == (1,), "ids whose last size is not 1")
    b.put(op, "Out", b.node("rows", [table, ids], (*lead, table.shape[1]), zero=padding))


@imports_step("gather")
def _gather(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    add_gather(b, op, attrs, b.ids, [])


@imports_step("gather_nd")
def _gather_nd(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    add_gather_nd(b, op, b.ids, [], nowhere=0)


PLACES = 22  # bits that say where an id of a table stands among the others


def whole_gradient(b: StepBuilder, rows: Rows, shape: Shape, zero: int = -1) -> Value:
    """A gradient of rows as that of a whole table: zeros elsewhere, and in the row `zero`."""
    check_rows(rows, shape)
    return b.node("rows_gradient", [*rows.ids, *rows.grads], shape, zero=zero)


def check_rows(rows: Rows, shape: Shape) -> None:
    """Refuse rows that do not fit a table, or that are too many."""
    need(len(shape) == 2 and all(each.shape[1:] == shape[1:] for each in rows.grads), "rows that do not fit a table")
    need(sum(each.shape[0] for each in rows.grads) < 1 << PLACES, "more ids than keys can tell")


@imports_step("dropout")
def _dropout(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, rate = b.get(op, "X"), float(attrs["dropout_prob"])
    need(not attrs.get("is_test") and not b.has(op, "Seed"), "dropout that does not draw, or by a computed seed")
    seed = int(attrs["seed"]) if attrs.get("fix_seed") else 0
    mask, factor = b.draw(x.shape, seed, rate), dropout_factor(attrs)
    b.masks[op.outputs["Mask"][0]] = mask
    text, shapes = f"a * b * {factor}", (x.shape, x.shape)
    b.put(
        op, "Out", b.node("formula", [x, mask], x.shape, text=text, shapes=shapes, counts_columns=False, drops=factor)
    )


def dropout_factor(attrs: Attrs) -> str:
    """What kept elements are multiplied by."""
    rate, implementation = float(attrs["dropout_prob"]), attrs["dropout_implementation"]
    need(0 <= rate <= 1 and implementation in ("upscale_in_train", "downgrade_in_infer"), "attributes of dropout")
    return literal(1 / (1 - rate)) if implementation == "upscale_in_train" and rate < 1 else "1.0f"
