"""YOLO heads in training steps: yolov3_loss with its gradient, and boxes beside it: the numbers and the errors of the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import OperatorError
from fluidtool.fluid import layers
from fluidtool.runtime import Executor
from fluidtool.runtime.engines.cuda.training.compiled import CudaStep
from fluidtool.tensor import CUDAPlace, LoDTensor
from tests.gpu.standin import EVENTS
from tests.gpu.test_cuda_types_outside import stepped
from tests.gpu.test_training_reductions import in_a_step
from tests.runtime.native.checking import Array, Net
from tests.runtime.native.test_detection import yolo

pytestmark = pytest.mark.usefixtures("cupy")
ANCHORS, CLASSES, CELLS, IMAGES, TRUTHS = [10, 13, 16, 30, 33, 23, 30, 61], 4, 5, 3, 6


def truths(seed: int = 0) -> tuple[Array, Array, Array]:
    """Boxes, classes and scores: some are no boxes at all, and two share a cell."""
    random = np.random.default_rng(seed)
    boxes = np.concatenate(
        [random.uniform(0, 0.99, (IMAGES, TRUTHS, 2)), random.uniform(0.02, 0.6, (IMAGES, TRUTHS, 2))], axis=2
    )
    boxes[0, 2] = 0
    boxes[1, 4] = boxes[1, 1] * [1, 1, 1.01, 0.99]
    boxes[2, 3:] = 0
    labels = random.integers(0, CLASSES, (IMAGES, TRUTHS))
    return (
        boxes.astype(np.float32),
        labels.astype(np.int32),
        random.uniform(0.2, 1, (IMAGES, TRUTHS)).astype(np.float32),
    )


def head(net: Net, has_scores: bool, **attrs: Any) -> list[str]:
    """The loss of a head, its masks, and its gradient."""
    settled = {
        "anchors": ANCHORS, "anchor_mask": [1, 3], "class_num": CLASSES, "downsample_ratio": 32, "ignore_thresh": 0.3,
        "use_label_smooth": True, "scale_x_y": 1.0,
    } | attrs  # fmt: skip
    boxes, labels, scores = truths()
    x = net.data(of=net.random.standard_normal((IMAGES, 2 * (5 + CLASSES), CELLS, CELLS)).astype(np.float32))
    given = {"X": x, "GTBox": net.data(of=boxes), "GTLabel": net.data(of=labels)}
    if has_scores:
        given["GTScore"] = net.data(of=scores)
    names = net.several("yolov3_loss", {"Loss": 1, "ObjectnessMask": 1, "GTMatchMask": 1}, given, **settled)
    made = dict(zip(("Loss", "ObjectnessMask", "GTMatchMask"), names, strict=True))
    grads = given | {slot: made[slot] for slot in ("ObjectnessMask", "GTMatchMask")} | {"Loss@GRAD": net.data(IMAGES)}
    return [*names, net.op("yolov3_loss_grad", "X@GRAD", grads, **settled)]


@pytest.mark.parametrize("has_scores", [False, True])
@pytest.mark.parametrize(
    "attrs", [{}, {"use_label_smooth": False}, {"scale_x_y": 1.2}, {"ignore_thresh": 0.05}, {"anchor_mask": [0, 1]}]
)
def test_the_loss_of_a_head(attrs: dict[str, Any], has_scores: bool, compiled: list[CudaStep]) -> None:
    net = Net()
    in_a_step(net, *head(net, has_scores, **attrs), rtol=2e-6)
    assert len(compiled) == 1


def test_without_a_ground_truth_only_objects_count(compiled: list[CudaStep]) -> None:
    net = Net()
    names = head(net, False)
    net.feeds["data1"] = np.zeros_like(net.feeds["data1"])
    in_a_step(net, *names, rtol=2e-6)
    assert len(compiled) == 1


# ---------------------------------------------------------------- boxes
@pytest.mark.parametrize("version", [0, 2_000_000])
@pytest.mark.parametrize("attrs", [{}, {"clip_bbox": False}, {"scale_x_y": 1.1}, {"conf_thresh": 0.6}])
def test_boxes_of_a_head(attrs: dict[str, Any], version: int, compiled: list[CudaStep]) -> None:
    net = Net()
    names = yolo(net, (2, 4, 4), version, **attrs)
    y, grad = net.op("relu", "Out", {"X": net.data(2, 3)}), net.data(2, 3)
    in_a_step(net, *names, net.op("relu_grad", "X@GRAD", {"Out": y, "Out@GRAD": grad}), rtol=1e-5)
    assert len(compiled) == 1


@pytest.mark.parametrize("axis", [0, 1])
def test_boxes_that_are_decoded_have_the_sequences_of_the_cpu(axis: int, compiled: list[CudaStep]) -> None:
    net = Net()
    codes, priors = net.data(3, 3, 4), net.data(of=np.abs(net.random.standard_normal((3, 4))).astype(np.float32))
    for name, offsets in ((codes, [0, 1, 3]), (priors, [0, 2, 3])):
        net.feeds[name] = LoDTensor(net.feeds[name], [offsets])
    attrs: dict[str, Any] = {"code_type": "decode_center_size", "axis": axis, "variance": [0.1, 0.1, 0.2, 0.2]}
    found = net.op("box_coder", "OutputBox", {"PriorBox": priors, "TargetBox": codes}, **attrs)
    stepped(net, net.op("relu", "Out", {"X": found}), rtol=1e-5)
    assert len(compiled) == 1
    names = [found, net.program.global_block().ops[-1].output_arg_names[0]]
    lods = [
        each.run(net.program, net.feeds, names, net.scope)[0].offsets for each in (Executor(), Executor(CUDAPlace(0)))
    ]
    assert lods[0] == lods[1] == [[[0, 1, 3]], [[0, 2, 3]]][axis]


# ---------------------------------------------------------------- a network
def detector() -> tuple[fluid.Program, fluid.Program, Any, Any]:
    """A small detector that is trained, and the boxes that it finds."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        image, size = layers.data("image", [3, 20, 20]), layers.data("size", [2], dtype="int32")
        boxes, labels = layers.data("boxes", [TRUTHS, 4]), layers.data("labels", [TRUTHS], dtype="int32")
        scores = layers.data("scores", [TRUTHS])
        features = layers.leaky_relu(layers.batch_norm(layers.conv2d(image, 8, 3, stride=2, padding=1)))
        maps = layers.conv2d(features, 2 * (5 + CLASSES), 2, stride=2, param_attr="w")
        common = {"class_num": CLASSES, "downsample_ratio": 32}
        loss = layers.yolov3_loss(maps, boxes, labels, ANCHORS, [1, 3], ignore_thresh=0.3, gt_score=scores, **common)
        total = layers.mean(loss)
        found, _ = layers.yolo_box(maps, size, ANCHORS[2:4] + ANCHORS[6:8], conf_thresh=0.01, **common)
        fluid.optimizer.Momentum(1e-3, 0.9).minimize(total)
    return main, startup, total, found


def batch(seed: int) -> dict[str, Array]:
    boxes, labels, scores = truths(seed)
    image = np.random.default_rng(seed).standard_normal((IMAGES, 3, 20, 20)).astype(np.float32)
    size = np.full((IMAGES, 2), 160, np.int32)
    return {"image": image, "boxes": boxes, "labels": labels, "scores": scores, "size": size}


def test_a_detector_with_its_boxes_is_one_graph(compiled: list[CudaStep]) -> None:
    main, startup, loss, boxes = detector()
    found = []
    for place in (fluid.CPUPlace(), CUDAPlace(0)):
        scope, executor = fluid.Scope(), fluid.Executor(place)
        fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
        found.append([executor.run(main, batch(seed), [loss, boxes], scope=scope) for seed in range(4)])
    for a, b in zip(found[1], found[0], strict=True):
        np.testing.assert_allclose(a[0], b[0], rtol=2e-5)
        np.testing.assert_allclose(a[1], b[1], rtol=1e-3, atol=1e-3)
    assert len(compiled) == 4


def test_a_step_of_a_detector_is_four_launches(compiled: list[CudaStep]) -> None:
    """What goes in, two looks at the centers with their flags, the graph, what comes out."""
    main, startup, loss, boxes = detector()
    scope, executor = fluid.Scope(), Executor(CUDAPlace(0))
    fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
    for _ in range(5):
        with EVENTS.counted() as counts:
            executor.run(main, batch(0), [loss.name, boxes.name], scope)
    assert len(compiled) == 5 and counts["launches"] == 4


@pytest.mark.parametrize("wrong", [(0, 1.5), (1, 1.0), (1, -0.4), (0, np.inf)])
def test_a_center_outside_changes_nothing(wrong: tuple[int, float], compiled: list[CudaStep]) -> None:
    main, startup, loss, _ = detector()
    messages = []
    for place in (fluid.CPUPlace(), CUDAPlace(0)):
        scope, executor = fluid.Scope(), fluid.Executor(place)
        fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
        executor.run(main, batch(0), [loss], scope=scope)
        before, feed = np.array(scope.find_var("w").get_tensor()), batch(1)
        feed["boxes"][1, 1] = [0.9, 0.9, 0.3, 0.4]
        feed["boxes"][1, 1, wrong[0]] = wrong[1]
        with pytest.raises(OperatorError, match="a center is outside") as caught, np.errstate(invalid="ignore"):
            executor.run(main, feed, [loss], scope=scope)
        messages.append(str(caught.value).partition(" [")[0])
        np.testing.assert_array_equal(np.array(scope.find_var("w").get_tensor()), before)
    assert messages[0] == messages[1] and compiled
