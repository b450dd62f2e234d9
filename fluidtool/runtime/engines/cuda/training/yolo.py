"""The loss of YOLO heads in training steps, and its gradient: a thread for each ground truth, then one for each cell and anchor."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.records import dataclass
from fluidtool.runtime.engines.cuda.lowering import Lowering, like_input, lowers
from fluidtool.runtime.engines.cuda.sources import THREADS, Source, number
from fluidtool.runtime.engines.cuda.training.building import StepBuilder, imports_step
from fluidtool.runtime.graph.bounds import COMPUTED, Bound
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.ir import Node, Value

Attrs = Mapping[str, Any]
CHANNEL, CELL, LEFT, TOP, WIDTH, HEIGHT, WEIGHT, SCORE = range(8)
TRUTH = 8
"""What is known of a ground truth: the channel and the cell where it belongs (-1: nowhere, -2: its center is outside), what the
outputs should be there, and how much they weigh."""
CROSS_ENTROPY = (
    "FT_DEVICE float ft_entropy(float x, float y) { return fmaxf(x, 0.0f) - x * y + log1pf(expf(-fabsf(x))); }\n"
)


@dataclass(frozen=True, slots=True)
class Head:
    """The numbers of a YOLO head: its anchors (width and height in pixels), those that are its own, and what its loss asks for."""

    anchors: tuple[float, ...]
    mask: tuple[int, ...]
    classes: int
    ratio: int
    threshold: float
    scale: float
    right: float  # what the output of the right class should be
    wrong: float  # and those of all others


# ---------------------------------------------------------------- importers
@imports_step("yolov3_loss")
def _loss(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    """Loss [N] of X [N, M * (5 + classes), H, H] for GTBox [N, B, 4] (Paddle 1.8.5 yolov3_loss_op.h)."""
    head, x, boxes, labels = _read(b, op, attrs)
    truths = _truths(b, op, head)
    images, _, height, width = x.shape
    count, cells = len(head.mask), (images, len(head.mask), height, width)
    objectness = b.node("yolo_objectness", [x, boxes, truths], cells, head=head)
    sizes = (images, count, 1, height, width)
    maps = b.view(x, (images, count, 5 + head.classes, height, width))
    objects = b.view(b.node("slice", [maps], sizes, starts=[0, 0, 4, 0, 0], sizes=sizes), cells)
    entropy = "fmaxf(a, 0.0f) - a * {} + log1pf(expf(-fabsf(a)))"
    text = f"(b > 1e-5f ? ({entropy.format('1.0f')}) * b : b > -0.5f ? {entropy.format('0.0f')} : 0.0f)"
    of_cells = b.sums(b.formula(text, objects, objectness), (0,))
    of_truths = b.sums(b.node("yolo_truth_loss", [x, truths, labels], boxes.shape[:2], head=head), (0,))
    b.put(op, "Loss", b.formula("a + b", of_truths, of_cells))
    if b.wants(op, "ObjectnessMask"):
        b.put(op, "ObjectnessMask", objectness)
    if b.wants(op, "GTMatchMask"):
        found = Value(op.outputs["GTMatchMask"][0], boxes.shape[:2], None, True, True)
        b.nodes.append(Node("converted", [_column(b, truths)], found, {"text": "(whole)(a < 0.0f ? -1.0f : a)"}))
        b.put(op, "GTMatchMask", found)


@imports_step("yolov3_loss_grad")
def _gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    """Where two ground truths share a cell only the later one counts, as in Paddle."""
    head, x, _, labels = _read(b, op, attrs)
    grad, objectness = b.get(op, "Loss@GRAD"), b.get(op, "ObjectnessMask")
    need(prod(grad.shape) == x.shape[0], "a gradient that does not fit")
    need(objectness.shape == (x.shape[0], len(head.mask), *x.shape[2:]), "a mask that does not fit")
    inputs = [x, _truths(b, op, head), labels, objectness, grad]
    b.put(op, "X@GRAD", b.node("yolo_gradient", inputs, x.shape, head=head))


def _read(b: StepBuilder, op: Operator, attrs: Attrs) -> tuple[Head, Value, Value, Value]:
    """The head, its outputs, the ground truths and their classes."""
    x, boxes, labels = b.get(op, "X"), b.get(op, "GTBox"), b.get(op, "GTLabel", integer=True)
    anchors, mask, classes = attrs["anchors"], attrs["anchor_mask"], int(attrs["class_num"])
    need(anchors and len(anchors) % 2 == 0 and mask and classes > 0, "a head without anchors or classes")
    need(all(0 <= place < len(anchors) // 2 for place in mask), "an anchor that there is not")
    need(len(x.shape) == 4 and x.shape[2] == x.shape[3], "a head that is no square")
    need(x.shape[1] == len(mask) * (5 + classes), "channels that do not match the anchors")
    need(len(boxes.shape) == 3 and boxes.shape[::2] == (x.shape[0], 4), "ground truths of another shape")
    need(labels.shape == boxes.shape[:2], "classes that are not one for each ground truth")
    share = min(1.0 / classes, 1.0 / 40) if attrs["use_label_smooth"] else 0.0
    head = Head(
        tuple(map(float, anchors)), tuple(map(int, mask)), classes, int(attrs["downsample_ratio"]),
        float(attrs["ignore_thresh"]), float(attrs["scale_x_y"]), 1.0 - share, share,
    )  # fmt: skip
    return head, x, boxes, labels


def _truths(b: StepBuilder, op: Operator, head: Head) -> Value:
    """Where each ground truth belongs [N, B, TRUTH], made once for both directions; centers outside are found before the step."""
    boxes, height = b.get(op, "GTBox"), b.shape_of(op, "X")[2]
    scores = [b.get(op, "GTScore")] if b.has(op, "GTScore") else []
    need(all(each.shape == boxes.shape[:2] for each in scores), "scores that are not one for each ground truth")
    key = ("yolo", boxes, *scores, head, height)
    if key not in b.stacks:
        found = b.node("yolo_truths", [boxes, *scores], (*boxes.shape[:2], TRUTH), head=head, height=height)
        inside = b.whole_node("converted", [_column(b, found)], boxes.shape[:2], text="(a < -1.5f ? -1ll : 0ll)")
        b.check_before(inside, Bound(COMPUTED, 1), "ground truths that are computed")
        b.stacks[key] = found
    known: Value = b.stacks[key]
    return known


def _column(b: StepBuilder, truths: Value) -> Value:
    """The channels of ground truths."""
    sizes = (*truths.shape[:2], 1)
    return b.view(b.node("slice", [truths], sizes, starts=[0, 0, CHANNEL], sizes=sizes), sizes[:2])


# ---------------------------------------------------------------- kernels
@lowers("yolo_truths")
def _lower_truths(low: Lowering, node: Node) -> None:
    """The anchor that fits best, if the head has it, in the cell of the center."""
    head, height, (images, count, _) = node.attrs["head"], node.attrs["height"], node.output.shape
    out, src, size = low.new(node.output), Source(low), head.ratio * height
    anchors = np.asarray(head.anchors, np.float32).reshape(-1, 2)
    places = {anchor: place for place, anchor in reversed(list(enumerate(head.mask)))}
    channels = np.asarray([places.get(anchor, -1) for anchor in range(len(anchors))], np.int64)
    at = src.thread(images * count)
    names = [_pointer(low, src, value) for value in node.inputs]
    relative, pixels, channel = (src.table(each) for each in (anchors / np.float32(size), anchors, channels))
    src.lines += [
        f"const float* box = {names[0]} + {at} * 4;",
        f"float* own = out + {at} * {TRUTH};",
        "const float x = box[0], y = box[1], w = box[2], h = box[3];",
        f"const float score = {f'{names[1]}[{at}]' if len(names) > 1 else '1.0f'};",
        "const bool valid = !(w < 1e-6f || h < 1e-6f);",
        "int best = 0;",
        "float most = -1.0f;",
        f"for (int i = 0; i < {len(anchors)}; i++) {{",
        f"    const float aw = {relative}[2 * i], ah = {relative}[2 * i + 1], inter = fminf(w, aw) * fminf(h, ah);",
        "    const float share = inter / (valid ? w * h + aw * ah - inter : 1.0f);",
        "    if (i == 0 || share > most) { most = share; best = i; }",
        "}",
        f"const whole column = ft_whole(x * {number(height)}), row = ft_whole(y * {number(height)});",
        f"const whole cell = (whole)((unsigned long long)row * {height}ull + (unsigned long long)column);",
        f"const whole place = valid ? {channel}[best] : -1;",
        f"const bool outside = place >= 0 && (cell < 0 || cell >= {height * height});",
        f"own[{CHANNEL}] = outside ? -2.0f : (float)place;",
        f"own[{CELL}] = place < 0 || outside ? 0.0f : (float)cell;",
        f"own[{LEFT}] = x * {number(height)} - (float)column;",
        f"own[{TOP}] = y * {number(height)} - (float)row;",
        f"own[{WIDTH}] = logf((valid ? w : 1.0f) * {number(size)} / {pixels}[2 * best]);",
        f"own[{HEIGHT}] = logf((valid ? h : 1.0f) * {number(size)} / {pixels}[2 * best + 1]);",
        f"own[{WEIGHT}] = (2.0f - w * h) * score;",
        f"own[{SCORE}] = score;",
    ]
    low.calls.append(src.launch(out, -(-images * count // THREADS), THREADS, "yolo_truths"))


@lowers("yolo_objectness")
def _lower_objectness(low: Lowering, node: Node) -> None:
    """The score of a ground truth that belongs there, -1 where a box overlaps one by more than the threshold, else 0."""
    head, (x, boxes, truths), shape = node.attrs["head"], node.inputs, node.output.shape
    src, out, height = Source(low), low.new(node.output), shape[2]
    n, m, row, column = src.split(src.thread(prod(shape)), shape)
    channel, size = _channels(src, x, head, (n, m, row, column)), head.ratio * height
    own = np.asarray(head.anchors, np.float32).reshape(-1, 2)[list(head.mask)]
    anchors, count = src.table(own), boxes.shape[1]
    scale, shift = number(head.scale), number(-0.5 * (head.scale - 1.0))
    src.lines += [
        f"const float x = ((float){column} + ft_sigmoid({channel('0')}) * {scale} + {shift}) / {number(height)};",
        f"const float y = ((float){row} + ft_sigmoid({channel('1')}) * {scale} + {shift}) / {number(height)};",
        f"const float w = expf({channel('2')}) * {anchors}[2 * {m}] / {number(size)};",
        f"const float h = expf({channel('3')}) * {anchors}[2 * {m} + 1] / {number(size)};",
        "float best = 0.0f, score = 0.0f;",
        "bool belongs = false;",
        f"for (int i = {n} * {count}; i < ({n} + 1) * {count}; i++) {{",
        f"    const float* box = {_pointer(low, src, boxes)} + i * 4;",
        f"    const float* truth = {_pointer(low, src, truths)} + i * {TRUTH};",
        "    const float across = fminf(x + w / 2.0f, box[0] + box[2] / 2.0f) - fmaxf(x - w / 2.0f, box[0] - box[2] / 2.0f);",
        "    const float down = fminf(y + h / 2.0f, box[1] + box[3] / 2.0f) - fmaxf(y - h / 2.0f, box[1] - box[3] / 2.0f);",
        "    const float inter = across < 0.0f || down < 0.0f ? 0.0f : across * down;",
        "    if (!(box[2] < 1e-6f || box[3] < 1e-6f)) best = ft_larger(best, inter / (w * h + box[2] * box[3] - inter));",
        f"    if ({_is_here('truth', m, row, column, height)}) {{ belongs = true; score = truth[{SCORE}]; }}",
        "}",
        src.store(out, [n, m, row, column], f"(belongs ? score : best > {number(head.threshold)} ? -1.0f : 0.0f)"),
    ]
    low.calls.append(src.launch(out, -(-prod(shape) // THREADS), THREADS, "yolo_objectness"))


@lowers("yolo_truth_loss")
def _lower_truth_loss(low: Lowering, node: Node) -> None:
    """The loss of location and classes of each ground truth."""
    head, (x, truths, labels), shape = node.attrs["head"], node.inputs, node.output.shape
    src, out, width = Source(low), low.new(node.output), x.shape[3]
    src.functions["entropy"] = CROSS_ENTROPY
    at = src.thread(prod(shape))
    n = src.whole(f"{at} / {shape[1]}")
    src.lines += [
        f"const float* truth = {_pointer(low, src, truths)} + {at} * {TRUTH};",
        f"if (truth[{CHANNEL}] < 0.0f) {{ out[{at}] = 0.0f; return; }}",
        f"const int m = (int)truth[{CHANNEL}], cell = (int)truth[{CELL}];",
        f"const int row = cell / {width}, column = cell % {width};",
    ]
    channel = _channels(src, x, head, (n, "m", "row", "column"))
    right, wrong = number(head.right), number(head.wrong)
    src.lines += [
        f"float found = ft_entropy({channel('0')}, truth[{LEFT}]) + ft_entropy({channel('1')}, truth[{TOP}]);",
        f"found += fabsf(truth[{WIDTH}] - {channel('2')}) + fabsf(truth[{HEIGHT}] - {channel('3')});",
        f"const whole label = {_pointer(low, src, labels)}[{at}];",
        "float classes = 0.0f;",
        f"for (int c = 0; c < {head.classes}; c++) {{",
        f"    classes += ft_entropy({channel('5 + c')}, label == c ? {right} : {wrong});",
        "}",
        f"out[{at}] = found * truth[{WEIGHT}] + classes * truth[{SCORE}];",
    ]
    low.calls.append(src.launch(out, -(-prod(shape) // THREADS), THREADS, "yolo_loss"))


@lowers("yolo_gradient")
def _lower_gradient(low: Lowering, node: Node) -> None:
    """A thread for each cell of an anchor looks for the last ground truth that belongs there, and writes all its channels."""
    head, (x, truths, labels, objectness, grad) = node.attrs["head"], node.inputs
    images, _, height, width = x.shape
    shape, count, step = (images, len(head.mask), height, width), truths.shape[1], 5 + head.classes
    src, out = Source(low), low.new(node.output, like_input(low, node))
    n, m, row, column = src.split(src.thread(prod(shape)), shape)
    channel = _channels(src, x, head, (n, m, row, column))

    def stored(place: str, value: str) -> str:
        return src.within(lambda: src.store(out, [n, f"({m} * {step} + {place})", row, column], value))

    right, wrong = number(head.right), number(head.wrong)
    locations = (
        f"ft_sigmoid({channel('0')}) - truth[{LEFT}]", f"ft_sigmoid({channel('1')}) - truth[{TOP}]",
        f"{channel('2')} > truth[{WIDTH}] ? 1.0f : -1.0f", f"{channel('3')} > truth[{HEIGHT}] ? 1.0f : -1.0f",
    )  # fmt: skip
    src.lines += [
        "int last = -1;",
        f"for (int i = {n} * {count}; i < ({n} + 1) * {count}; i++) {{",
        f"    const float* other = {_pointer(low, src, truths)} + i * {TRUTH};",
        f"    if ({_is_here('other', m, row, column, width)}) last = i;",
        "}",
        f"const float share = {src.load(grad, _first(grad, n))};",
        f"const float object = {src.load(objectness, [n, m, row, column])}, p = ft_sigmoid({channel('4')});",
        "const float of_object = object > 1e-5f ? (p - 1.0f) * object : object > -0.5f ? p : 0.0f;",
        stored("4", "of_object * share"),
        f"const float* truth = {_pointer(low, src, truths)} + (last < 0 ? 0 : last) * {TRUTH};",
        f"const float weight = last < 0 ? 0.0f : truth[{WEIGHT}] * share, score = last < 0 ? 0.0f : truth[{SCORE}] * share;",
        *(stored(str(place), f"last < 0 ? 0.0f : ({text}) * weight") for place, text in enumerate(locations)),
        f"const whole label = last < 0 ? -1 : {_pointer(low, src, labels)}[last];",
        f"for (int c = 0; c < {head.classes}; c++) {{",
        f"    const float wanted = label == c ? {right} : {wrong};",
        "    " + stored("5 + c", f"last < 0 ? 0.0f : (ft_sigmoid({channel('5 + c')}) - wanted) * score"),
        "}",
    ]
    low.calls.append(src.launch(out, -(-prod(shape) // THREADS), THREADS, "yolo_back"))


def _pointer(low: Lowering, src: Source, value: Value) -> str:
    """The name of the first element of a value whose elements lie row by row."""
    place = low.contiguous(value)
    return src.pointer(place.buffer, place.offset)


def _channels(src: Source, x: Value, head: Head, cell: tuple[str, str, str, str]) -> Any:
    """What reads an output of the anchor of a cell by its number."""
    n, m, row, column = cell
    return lambda place: src.load(x, [n, f"({m} * {5 + head.classes} + {place})", row, column])


def _first(grad: Value, image: str) -> list[str]:
    """The index of the number of an image, of as many numbers as there are images."""
    return [image if size > 1 else "0" for size in grad.shape]


def _is_here(truth: str, anchor: str, row: str, column: str, width: int) -> str:
    """Whether a ground truth belongs to an anchor and a cell."""
    return f"{truth}[{CHANNEL}] == (float)({anchor}) && {truth}[{CELL}] == (float)({row} * {width} + {column})"
