"""Boxes: priors, codes, overlaps, suppression."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.onnx_export import ragged
from fluidtool.onnx_export.graph import BOOL, Graph, Value
from fluidtool.onnx_export.operation import Operation
from fluidtool.onnx_export.operators.reduction import sorted_along
from fluidtool.onnx_export.registry import need, renders

SHRINKS_ABOVE = 0.5  # below, the threshold of suppression stays as it is
LOWEST = float(np.finfo(np.float32).min)


def corners(boxes: Value) -> list[Value]:
    """xmin, ymin, xmax, ymax."""
    return [boxes.pick(-1, i) for i in range(4)]


@renders("prior_box", "density_prior_box", "anchor_generator")
def priors(g: Graph, op: Operation) -> Value:
    need(False, "the size of its image is known only at run time; give the input a fixed size")
    raise AssertionError


@renders("box_coder")
def box_coder(g: Graph, op: Operation) -> Value:
    prior, scale, target = op["PriorBox"], op.get("PriorBoxVar"), op["TargetBox"]
    pixel = 0 if op.attr("box_normalized") else 1
    variance = list(op.attr("variance"))
    if scale is None and variance:
        scale = g.constant([variance], target.dtype)
    encodes = op.attr("code_type") == "encode_center_size"
    beside = 1 if not encodes and op.attr("axis") == 1 else 0
    prior = prior.unsqueeze(beside)
    scale = None if scale is None else scale.unsqueeze(beside)
    low_x, low_y, high_x, high_y = corners(prior)
    width, height = high_x - low_x + pixel, high_y - low_y + pixel
    center_x, center_y = low_x + width / 2, low_y + height / 2
    if encodes:
        xmin, ymin, xmax, ymax = corners(target.unsqueeze(1))
        codes = [
            ((xmax + xmin) / 2 - center_x) / width,
            ((ymax + ymin) / 2 - center_y) / height,
            ((xmax - xmin + pixel) / width).apply("Abs").apply("Log"),
            ((ymax - ymin + pixel) / height).apply("Abs").apply("Log"),
        ]
        encoded = g.stack(codes, -1)
        return encoded if scale is None else encoded / scale
    x, y, w, h = corners(target if scale is None else target * scale)
    x, y = x * width + center_x, y * height + center_y
    w, h = w.apply("Exp") * width, h.apply("Exp") * height
    return g.stack([x - w / 2, y - h / 2, x + w / 2 - pixel, y + h / 2 - pixel], -1)


@renders("iou_similarity")
def iou_similarity(g: Graph, op: Operation) -> Value:
    return overlap(g, op["X"].unsqueeze(1), op["Y"].unsqueeze(0), 0 if op.attr("box_normalized") else 1)


def overlap(g: Graph, a: Value, b: Value, pixel: int) -> Value:
    """Intersection over union; boxes broadcast."""
    one, two = corners(a), corners(b)
    width = (g.minimum(one[2], two[2]) - g.maximum(one[0], two[0]) + pixel).apply("Relu")
    height = (g.minimum(one[3], two[3]) - g.maximum(one[1], two[1]) + pixel).apply("Relu")
    inter = width * height
    areas = [(box[2] - box[0] + pixel) * (box[3] - box[1] + pixel) for box in (one, two)]
    union = areas[0] + areas[1] - inter
    return g.where(union > 0, inter / union, 0)


@renders("box_clip")
def box_clip(g: Graph, op: Operation) -> Value:
    boxes, info = op["Input"], op["ImInfo"]
    if boxes.levels:
        info = info.gather(ragged.owners(g, boxes.levels[-1]), 0)
    elif op.lod_level("Input"):
        op.single()
        info = info.pick(0, 0).unsqueeze(0)
    sizes = info.part(1, 0, 2) / info.part(1, 2, 3)
    sizes = _rounded(sizes) - 1
    height, width = sizes.part(1, 0, 1), sizes.part(1, 1, 2)
    limit = g.concat([width, height, width, height], 1)
    if boxes.rank == 3:
        limit = limit.unsqueeze(1)
    return g.maximum(g.minimum(boxes, limit), 0).shaped(boxes.shape)


def _rounded(x: Value) -> Value:
    return (x + 0.5).apply("Floor")


@renders("polygon_box_transform")
def polygon_box_transform(g: Graph, op: Operation) -> Value:
    x = op["Input"]
    channels, height, width = x.size(1), x.size(2), x.size(3)
    across = np.broadcast_to(np.arange(width)[None, None], (1, height, width))
    down = np.broadcast_to(np.arange(height)[None, :, None], (1, height, width))
    place = np.concatenate([across if c % 2 == 0 else down for c in range(channels)]).astype(x.dtype)
    return g.constant(place * 4) - x


@renders("yolo_box")
def yolo_box(g: Graph, op: Operation) -> dict[str, Value]:
    x, image = op["X"], op["ImgSize"]
    classes, anchors = op.attr("class_num"), np.asarray(op.attr("anchors"), np.float64).reshape(-1, 2)
    count = len(anchors)
    aware = bool(op.attr("iou_aware", False))
    height, width = x.dim(2), x.dim(3)
    maps, wanted = x, None
    if aware:
        wanted, maps = x.part(1, 0, count).apply("Sigmoid"), x.part(1, count)
    maps = maps.reshape([x.dim(0), count, 5 + classes, height, width])
    confidence = maps.pick(2, 4).apply("Sigmoid")
    if wanted is not None:
        factor = op.attr("iou_aware_factor", 0.5)
        confidence = g.binary("Pow", confidence, 1.0 - factor) * g.binary("Pow", wanted, factor)
    kept = (confidence >= op.attr("conf_thresh")).unsqueeze(-1)
    sizes = image.cast(x.dtype).unsqueeze(2, 3, 4)
    image_height, image_width = sizes.pick(1, 0), sizes.pick(1, 1)
    columns = width if op.saved_since(2, 0) else height
    scale, ratio = op.attr("scale_x_y"), op.attr("downsample_ratio")
    bias = -0.5 * (scale - 1.0)
    across, down = _cells(g, width, x.dtype), _cells(g, height, x.dtype).unsqueeze(1)
    cells_x, cells_y = _number(g, columns, x.dtype), _number(g, height, x.dtype)
    center_x = (across + maps.pick(2, 0).apply("Sigmoid") * scale + bias) * image_width / cells_x
    center_y = (down + maps.pick(2, 1).apply("Sigmoid") * scale + bias) * image_height / cells_y
    sides = g.constant(anchors.astype(x.dtype).reshape(1, count, 2, 1, 1))
    w = maps.pick(2, 2).apply("Exp") * sides.pick(2, 0) * image_width / (cells_x * ratio)
    h = maps.pick(2, 3).apply("Exp") * sides.pick(2, 1) * image_height / (cells_y * ratio)
    box = [center_x - w / 2, center_y - h / 2, center_x + w / 2, center_y + h / 2]
    if op.attr("clip_bbox"):
        box = [
            g.maximum(box[0], 0), g.maximum(box[1], 0),
            g.minimum(box[2], image_width - 1), g.minimum(box[3], image_height - 1),
        ]  # fmt: skip
    scores = confidence.unsqueeze(-1) * maps.part(2, 5).apply("Sigmoid").transpose(0, 1, 3, 4, 2)
    cells = height * width * count if isinstance(height, int) and isinstance(width, int) else -1
    return {
        "Boxes": g.where(kept, g.stack(box, -1), 0).reshape(
            [x.dim(0), cells, 4] if cells > 0 else g.vector([x.dim(0), -1, 4])
        ),
        "Scores": g.where(kept, scores, 0).reshape(
            [x.dim(0), cells, classes] if cells > 0 else g.vector([x.dim(0), -1, classes])
        ),
    }


def _cells(g: Graph, count: int | Value, dtype: Any) -> Value:
    return g.range(0, count if isinstance(count, int) else count.scalar()).cast(dtype)


def _number(g: Graph, count: int | Value, dtype: Any) -> Value:
    return g.constant(count, dtype) if isinstance(count, int) else count.scalar().cast(dtype)


# ---------------------------------------------------------------- suppression
@renders("multiclass_nms", "multiclass_nms2", "multiclass_nms3")
def multiclass_nms(g: Graph, op: Operation) -> dict[str, Value]:
    boxes, scores = op["BBoxes"], op["Scores"]
    need(scores.rank == 3, "scores and boxes by sequence")
    need((boxes.shape or ())[-1] == 4, "polygons")
    boxes, scores = boxes.cast(np.float32), scores.cast(np.float32)
    chosen = selected(g, op, boxes, scores)
    image, label, place = (chosen.pick(1, i) for i in range(3))
    points = g.op("GatherND", scores, g.stack([image, label, place], 1), shape=(-1,))
    keep = op.attr("keep_top_k")
    if keep > -1:
        chosen_few = best(g, image, points, keep)
        image, label, place, points = (
            g.op("Compress", value, chosen_few, axis=0, shape=(-1,)) for value in (image, label, place, points)
        )
    found = g.op("GatherND", boxes, g.stack([image, place], 1), shape=(-1, 4))
    rows = g.concat([label.cast(np.float32).unsqueeze(1), points.unsqueeze(1), found], 1).shaped((-1, 6))
    if op.type == "multiclass_nms":
        return {"Out": _or_nothing(g, rows).cast(op.dtype("Out", np.float32))}
    index = (image * boxes.dim_value(1) + place).cast(np.int32).unsqueeze(1)
    result = {"Out": rows.cast(op.dtype("Out", np.float32)), "Index": index}
    if op.wants("NmsRoisNum"):
        last = boxes.dim(0)
        images = g.range(0, last if isinstance(last, int) else last.scalar())
        result["NmsRoisNum"] = image.unsqueeze(0).equals(images.unsqueeze(1)).cast(np.int32).sum(1)
    return result


def selected(g: Graph, op: Operation, boxes: Value, scores: Value) -> Value:
    """[K, 3]: image, class and box of what is kept, ordered by these and by score."""
    background = op.attr("background_label")
    classes = scores.size(1, "Scores")
    if 0 <= background < classes:
        hidden = np.zeros((1, classes, 1), bool)
        hidden[0, background] = True
        scores = g.where(g.constant(hidden), LOWEST, scores)
    top = op.attr("nms_top_k")
    count = (boxes.shape or ())[1]
    limit, least, eta = op.attr("nms_threshold"), op.attr("score_threshold"), op.attr("nms_eta")
    if eta < 1 and limit > SHRINKS_ABOVE:
        most: int | Value = boxes.dim_value(1) if top < 0 else g.minimum(boxes.dim_value(1), top)
        return shrinking(g, boxes, scores, most, (least, limit, eta), 0 if op.attr("normalized") else 1)
    if top > -1 and not (0 <= count <= top):
        many: int | Value = top if count > top else g.minimum(boxes.dim_value(1), top)
        if not isinstance(many, int) or many > 0:
            values, _ = sorted_along(g, scores, 2, many, True)
            scores = g.where(scores >= values.part(2, -1), scores, LOWEST)
    if not op.attr("normalized"):
        boxes = boxes + g.constant(np.asarray([0, 0, 1, 1], np.float32))
    low = boxes.part(2, 0, 2)  # a box that ends before it starts is empty; ONNX would exchange its corners
    boxes = g.concat([low, g.maximum(low, boxes.part(2, 2, 4))], 2)
    return g.op(
        "NonMaxSuppression", boxes, scores, boxes.dim_value(1), g.constant([limit], np.float32),
        g.constant([least], np.float32), dtype=np.int64, shape=(-1, 3),
    )  # fmt: skip


def shrinking(
    g: Graph, boxes: Value, scores: Value, most: int | Value, limits: tuple[float, float, float], pixel: int
) -> Value:
    """[K, 3]: image, class and box of what is kept of the best `most` by a threshold that falls with every box kept.

    limits: the lowest score (excluded), the threshold at the start, and the factor that it falls by while above 0.5.
    """
    least, start, eta = limits
    points, places = sorted_along(g, scores, 2, most, True)
    valid, sizes = points > least, places.dims()
    classes, count = scores.size(1), places.dim_value(2)
    low = boxes.part(2, 0, 2)
    boxes = g.concat([low, g.maximum(low, boxes.part(2, 2, 4))], 2)
    each = g.vector([boxes.dim(0), -1, 1])
    regions = g.op("GatherND", boxes, places.reshape(each), batch_dims=1)
    regions = regions.reshape(g.concat([sizes, g.constant([4], np.int64)], 0)).shaped((-1, classes, -1, 4))

    body = g.inner()
    number = body.input(body.name(f"{g.prefix}.number"), np.int64, ())
    goes_on = body.input(body.name(f"{g.prefix}.goes_on"), BOOL, ())
    kept = body.input(body.name(f"{g.prefix}.kept"), BOOL, (-1, classes, -1))
    limit = body.input(body.name(f"{g.prefix}.limit"), np.float32, (-1, classes))
    here = number.reshape([1])
    shared = overlap(body, regions.within(body).gather(here, 2), regions.within(body), pixel)
    highest = body.where(kept, shared, -1.0).reduce("Max", [2])
    stays = valid.within(body).gather(number, 2) & (highest <= limit)
    places_now = body.range(0, count.within(body).scalar()).equals(here)
    falls = stays & (limit > SHRINKS_ABOVE)
    body.outputs = [
        body.same("Identity", goes_on),
        kept | (stays.unsqueeze(2) & places_now),
        body.where(falls, limit * eta, limit),
    ]
    states = [g.full(sizes, False, BOOL), g.full(sizes.part(0, 0, 2), start, np.float32)]
    chosen, _ = g.node("Loop", [count.scalar(), None, *states], [BOOL, np.float32], body=body)
    found = g.op("NonZero", chosen, dtype=np.int64, shape=(3, -1)).swap()
    place = g.op("GatherND", places, found, shape=(-1,))
    return g.concat([found.part(1, 0, 2), place.unsqueeze(1)], 1)


def best(g: Graph, image: Value, points: Value, count: int) -> Value:
    """Which of the rows are among the best `count` of their image; of equal ones the first."""
    size = points.dim_value(0)
    numbers = g.range(0, size.scalar())
    ahead = points.unsqueeze(0) > points.unsqueeze(1)
    tied = points.unsqueeze(0).equals(points.unsqueeze(1)) & (numbers.unsqueeze(0) < numbers.unsqueeze(1))
    same = image.unsqueeze(0).equals(image.unsqueeze(1))
    rank = ((ahead | tied) & same).cast(np.int32).sum(1)
    return rank < count


def _or_nothing(g: Graph, rows: Value) -> Value:
    """Rows, or [[-1]] where there are none."""
    empty = rows.dim_value(0).equals(0).scalar()
    nothing, something = g.inner(), g.inner()
    nothing.outputs = [nothing.same("Identity", nothing.constant([[-1.0]], np.float32)).shaped((-1, -1))]
    something.outputs = [something.same("Identity", rows).shaped((-1, -1))]
    return g.op("If", empty, dtype=np.float32, then_branch=nothing, else_branch=something, shape=(-1, -1))


@renders("nms")
def plain_nms(g: Graph, op: Operation) -> Value:
    boxes = op["Boxes"].cast(np.float32).unsqueeze(0)
    count = boxes.dim_value(1)
    order = g.range(0, count.scalar()).cast(np.float32)
    scores = (-order).unsqueeze(0, 1)
    limit = g.constant([op.attr("iou_threshold")], np.float32)
    found = g.op("NonMaxSuppression", boxes, scores, count, limit, dtype=np.int64, shape=(-1, 3))
    return found.pick(1, 2)


@renders("matrix_nms")
def matrix_nms(g: Graph, op: Operation) -> dict[str, Value]:
    """For each class the best boxes decay by their overlaps with better ones; nothing is dropped but by its score."""
    boxes, scores = op["BBoxes"], op["Scores"]
    need((boxes.shape or ())[-1] == 4, "polygons")
    images, count = boxes.size(0, "BBoxes"), boxes.size(1, "BBoxes")
    parts = [_decayed(g, op, boxes.pick(0, image), scores.pick(0, image)) for image in range(images)]
    indices = [index + image * count if image else index for image, (_, index) in enumerate(parts)]
    found = {
        "Out": g.concat([rows for rows, _ in parts], 0).shaped((-1, 6)),
        "Index": g.concat(indices, 0).cast(np.int32).unsqueeze(1),
    }
    if op.wants("RoisNum"):
        found["RoisNum"] = g.concat([index.dim_value(0) for index in indices], 0).cast(np.int32)
    return found


def _decayed(g: Graph, op: Operation, boxes: Value, scores: Value) -> tuple[Value, Value]:
    """Of one image: the rows of the result, and which of its boxes they are."""
    count, classes = boxes.size(0), scores.size(0)
    top = op.attr("nms_top_k")
    top = count if top < 0 else min(top, count)
    background = op.attr("background_label")
    kept = [c for c in range(classes) if c != background]
    labels = g.constant(kept, np.int64)
    chosen = scores.gather(labels, 0)  # [C, M]
    points, places = sorted_along(g, chosen, 1, top, True)
    above = points > op.attr("score_threshold")
    regions = boxes.gather(places, 0)  # [C, top, 4]
    iou = overlap(g, regions.unsqueeze(2), regions.unsqueeze(1), 0 if op.attr("normalized") else 1)
    better = np.tril(np.ones((top, top), bool), -1)[None]  # [i, j]: j is better than i
    iou = g.where(g.constant(better), iou, 0)
    most = iou.reduce("Max", [2])  # of each with better ones
    if op.attr("use_gaussian"):
        sigma = op.attr("gaussian_sigma")
        decay = ((most.unsqueeze(1) * most.unsqueeze(1) - iou * iou) * sigma).apply("Exp")
    else:
        decay = (1 - iou) / (1 - most.unsqueeze(1))
    decay = g.where(g.constant(better), decay, 1).reduce("Min", [2])
    decayed = points * decay
    kind = decayed > op.attr("post_threshold")
    valid = (above & kind).flat()
    flat = g.where(valid, decayed.flat(), LOWEST)
    keep = op.attr("keep_top_k")
    total = top * len(kept)
    most_rows = total if keep < 0 else min(keep, total)
    best_points, order = sorted_along(g, flat, 0, most_rows, True)
    there = best_points > LOWEST / 2
    order = g.op("Compress", order, there, axis=0, shape=(-1,))
    best_points = g.op("Compress", best_points, there, axis=0, shape=(-1,))
    label = labels.gather(g.binary("Div", order, top), 0)
    index = places.flat().gather(order, 0)
    return g.concat([label.cast(boxes.dtype).unsqueeze(1), best_points.unsqueeze(1), boxes.gather(index, 0)], 1), index
