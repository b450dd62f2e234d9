"""Native kernels of what only training needs give numpy's numbers: gradients, losses, updates in place."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluidtool.errors import OperatorError
from fluidtool.ir import Program
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor, Scope
from fluidtool.runtime.engines.native.kernels import convolution, transposed
from fluidtool.tensor import LoDTensor, SelectedRows
from tests.runtime.native.test_operator_kernels import agree, counted, few, outputs_of

pytestmark = pytest.mark.usefixtures("native")


def floats(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# ---------------------------------------------------------------- activations
ACTIVATIONS: dict[str, dict[str, Any]] = {
    "relu": {},
    "relu6": {"threshold": 0.7},
    "leaky_relu": {"alpha": 0.2},
    "sigmoid": {},
    "tanh": {},
}


@pytest.mark.parametrize("type", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(1,), (3, 5), (7, 11, 13), (4, 70_001)], ids=str)
def test_gradients_of_activations(type: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, f"{type}_grad")
    out = outputs_of(type, {"X": floats(*shape)}, ["Out"], "numpy", **ACTIVATIONS[type])["Out"].numpy()
    feeds = {"Out": out, "Out@GRAD": floats(*shape, seed=1)}
    agree(f"{type}_grad", feeds, ["X@GRAD"], rtol=1e-6, **ACTIVATIONS[type])
    assert answered == [True]


def test_gradient_of_an_activation_of_float64_is_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "tanh_grad")
    agree("tanh_grad", {"Out": np.full(3, 0.5), "Out@GRAD": np.ones(3)}, ["X@GRAD"])
    assert answered == [False]


# ---------------------------------------------------------------- softmax with cross entropy
@few
@given(st.lists(st.integers(1, 5), min_size=1, max_size=2), st.integers(1, 70), st.booleans(), st.integers(0, 99))
def test_softmax_with_cross_entropy(rows: list[int], classes: int, soft: bool, seed: int) -> None:
    check_cross_entropy(tuple(rows), classes, soft, seed)


def check_cross_entropy(rows: tuple[int, ...], classes: int, soft: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    logits = (30 * random.standard_normal((*rows, classes))).astype(np.float32)  # some are floored at -64
    label: Any = random.integers(0, classes, (*rows, 1))
    if soft:
        label = random.dirichlet(np.ones(classes), rows).astype(np.float32)
    else:
        label[random.random(label.shape) < 0.2] = -100  # ignore_index
    attrs = {"soft_label": soft}
    made = agree("softmax_with_cross_entropy", {"Logits": logits, "Label": label}, ["Softmax", "Loss"], **attrs)
    feeds = {"Label": label, "Softmax": made["Softmax"].numpy(), "Loss@GRAD": floats(*rows, 1, seed=seed)}
    agree("softmax_with_cross_entropy_grad", feeds, ["Logits@GRAD"], rtol=1e-6, **attrs)


@pytest.mark.parametrize("soft", [False, True])
def test_softmax_with_cross_entropy_cut_among_threads_answers_by_itself(
    soft: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("softmax_with_cross_entropy", "softmax_with_cross_entropy_grad")
    answered = [counted(monkeypatch, name) for name in names]
    check_cross_entropy((7, 30), 333, soft, 0)
    assert answered == [[True], [True]]


@pytest.mark.parametrize("attrs", [{"axis": 1}, {"use_softmax": True}], ids=["along another axis", "of later versions"])
def test_softmax_with_cross_entropy_that_is_left_to_numpy(
    attrs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = counted(monkeypatch, "softmax_with_cross_entropy")
    label = np.zeros((2, 1, 4) if "axis" in attrs else (2, 3, 1), np.int64)
    agree("softmax_with_cross_entropy", {"Logits": floats(2, 3, 4), "Label": label}, ["Softmax", "Loss"], **attrs)
    assert answered == [False]


@pytest.mark.parametrize("kind", ["uint8", "int8", "int16", "int32", "uint32", "uint64"])
def test_softmax_with_cross_entropy_of_labels_of_every_kind(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers without a sign hold no -1: a label that is ignored became the class 255 of 4, read beyond its row."""
    answered = counted(monkeypatch, "softmax_with_cross_entropy")
    label = np.array([[1], [3], [100], [0]]).astype(kind)
    feeds = {"Logits": floats(4, 4), "Label": label}
    made = agree("softmax_with_cross_entropy", feeds, ["Softmax", "Loss"], ignore_index=100)
    assert answered == [True] and made["Loss"].numpy()[2] == 0
    given = {"Label": label, "Softmax": made["Softmax"].numpy(), "Loss@GRAD": floats(4, 1)}
    agree("softmax_with_cross_entropy_grad", given, ["Logits@GRAD"], rtol=1e-6, ignore_index=100)


def test_softmax_with_cross_entropy_of_labels_column_by_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels in another order in memory ended in an internal error."""
    answered = counted(monkeypatch, "softmax_with_cross_entropy")
    label = np.asfortranarray(np.arange(12).reshape(3, 4, 1) % 5)
    agree("softmax_with_cross_entropy", {"Logits": floats(3, 4, 5), "Label": label}, ["Softmax", "Loss"])
    assert answered == [True]


@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_softmax_with_cross_entropy_says_which_class_does_not_exist(engine: str) -> None:
    feeds = {"Logits": floats(2, 3), "Label": np.array([[1], [3]])}
    with pytest.raises(OperatorError, match="holds class 3, expected 0 to 2"):
        outputs_of("softmax_with_cross_entropy", feeds, ["Loss"], engine)


def test_softmax_with_cross_entropy_keeps_numbers_that_are_none() -> None:
    logits = floats(3, 40)
    logits[1, 35] = np.nan
    found = outputs_of(
        "softmax_with_cross_entropy", {"Logits": logits, "Label": np.zeros((3, 1), np.int64)}, ["Loss"], "native"
    )["Loss"].numpy()
    assert np.isnan(found).ravel().tolist() == [False, True, False]


# ---------------------------------------------------------------- depthwise convolution
def check_depthwise(x: tuple[int, ...], window: tuple[int, int], **attrs: Any) -> None:
    channels = x[1]
    feeds = {"Input": floats(*x), "Filter": floats(channels, 1, *window, seed=1)}
    attrs["groups"] = channels
    made = agree("depthwise_conv2d", feeds, ["Output"], 3e-6, prod(window) ** 0.5, **attrs)["Output"]
    out_grad = floats(*made.shape(), seed=2)
    scale = max(out_grad.size / channels, prod(window)) ** 0.5
    slots = ["Input@GRAD", "Filter@GRAD"]
    agree("depthwise_conv2d_grad", feeds | {"Output@GRAD": out_grad}, slots, 3e-6, scale, **attrs)


@few
@given(st.data())
def test_depthwise_convolution(data: st.DataObject) -> None:
    draw = data.draw
    window = draw(st.tuples(st.integers(1, 5), st.integers(2, 5)))
    dilations = draw(st.tuples(*[st.integers(1, 2)] * 2))
    pads = draw(st.lists(st.integers(0, 3), min_size=4, max_size=4))
    reach = [d * (w - 1) + 1 for d, w in zip(dilations, window, strict=True)]
    image = [
        draw(st.integers(max(1, r - before - after), 40))
        for r, before, after in zip(reach, pads[::2], pads[1::2], strict=True)
    ]
    images, channels = draw(st.integers(1, 3)), draw(st.integers(2, 9))
    strides = list(draw(st.tuples(*[st.integers(1, 3)] * 2)))
    check_depthwise((images, channels, *image), window, strides=strides, paddings=pads, dilations=list(dilations))


@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_convolution_cut_among_threads_answers_by_itself(
    stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = counted(monkeypatch, "depthwise_conv2d"), counted(monkeypatch, "depthwise_conv2d_grad")
    check_depthwise((3, 17, 33, 47), (3, 3), strides=[stride, stride], paddings=[1, 1])
    assert answered == ([True], [True])


def test_depthwise_gradients_by_one_input_alone() -> None:
    feeds = {"Input": floats(2, 3, 9, 9), "Filter": floats(3, 1, 3, 3), "Output@GRAD": floats(2, 3, 7, 7)}
    for slot in ("Input@GRAD", "Filter@GRAD"):
        agree("depthwise_conv2d_grad", feeds, [slot], 3e-6, 10, groups=3)


def test_several_filters_for_a_channel_are_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "depthwise_conv2d")
    feeds = {"Input": floats(2, 3, 9, 9), "Filter": floats(6, 1, 3, 3)}
    agree("depthwise_conv2d", feeds, ["Output"], 3e-6, 10, groups=3)
    assert answered == [False]


# ---------------------------------------------------------------- gradients of convolutions in groups, and that stride
@pytest.fixture
def small_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the native kernels do convolutions that would not pay."""
    for name in ("WORTH", "DEPTH", "GRADIENT_WORTH", "LAST_WORTH", "CHANNELS"):
        monkeypatch.setattr(convolution, name, 0)
    for name in ("FILTERS", "GRADIENT_FILTERS"):
        monkeypatch.setattr(convolution, name, 1 << 30)
    for name in ("WORTH", "CHANNELS"):
        monkeypatch.setattr(transposed, name, 0)


GROUPS = [(2, 3, 5), (8, 4, 4), (16, 4, 4), (4, 8, 16), (2, 16, 32), (3, 16, 64), (2, 5, 96), (4, 32, 8), (32, 1, 1)]


@pytest.mark.usefixtures("small_convolutions")
@pytest.mark.parametrize(("groups", "inner", "count"), GROUPS)
@pytest.mark.parametrize("stride", [1, 2])
def test_gradients_of_a_convolution_in_groups(groups: int, inner: int, count: int, stride: int) -> None:
    """inner channels and count filters in each group: whether or not they make whole vectors."""
    feeds = {"Input": floats(2, groups * inner, 7, 9), "Filter": floats(groups * count, inner, 3, 3, seed=1)}
    attrs = {"groups": groups, "paddings": [1, 1], "strides": [stride, stride]}
    made = outputs_of("conv2d", feeds, ["Output"], "numpy", **attrs)["Output"]
    feeds["Output@GRAD"] = floats(*made.shape(), seed=2)
    agree("conv2d_grad", feeds, ["Input@GRAD", "Filter@GRAD"], 3e-6, 30, **attrs)


@pytest.mark.usefixtures("small_convolutions")
@few
@given(st.data())
def test_transposed_convolution(data: st.DataObject) -> None:
    draw = data.draw
    window = draw(st.tuples(*[st.integers(1, 5)] * 2))
    strides = [draw(st.integers(1, size)) for size in window]
    pads = draw(st.lists(st.integers(0, 1), min_size=2, max_size=2))
    image = [
        draw(st.integers(1 + -(-max(0, 2 * pad + 1 - size) // stride), 9))
        for size, stride, pad in zip(window, strides, pads, strict=True)
    ]
    channels, filters, images = (draw(st.integers(1, most)) for most in (20, 20, 3))
    attrs = {"strides": strides, "paddings": pads}
    feeds = {"Input": floats(images, channels, *image), "Filter": floats(channels, filters, *window, seed=1)}
    made = agree("conv2d_transpose", feeds, ["Output"], 3e-6, (channels * prod(window)) ** 0.5, **attrs)["Output"]
    feeds["Output@GRAD"] = floats(*made.shape(), seed=2)
    scale = max(feeds["Output@GRAD"].size, filters * prod(window)) ** 0.5
    agree("conv2d_transpose_grad", feeds, ["Input@GRAD", "Filter@GRAD"], 3e-6, scale, **attrs)


def test_large_transposed_convolution_answers_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "conv2d_transpose"), counted(monkeypatch, "conv2d_transpose_grad")
    feeds = {"Input": floats(32, 24, 9, 9), "Filter": floats(24, 18, 4, 4, seed=1)}
    attrs = {"strides": [2, 2], "paddings": [1, 1]}
    made = agree("conv2d_transpose", feeds, ["Output"], 3e-6, 20, **attrs)["Output"]
    feeds["Output@GRAD"] = floats(*made.shape(), seed=2)
    agree("conv2d_transpose_grad", feeds, ["Input@GRAD", "Filter@GRAD"], 3e-6, 200, **attrs)
    assert answered == ([True], [True])


def test_small_transposed_convolution_is_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "conv2d_transpose")
    feeds = {"Input": floats(2, 8, 5, 5), "Filter": floats(8, 8, 4, 4, seed=1)}
    agree("conv2d_transpose", feeds, ["Output"], 3e-6, 12, strides=[2, 2])
    assert answered == [False]


@pytest.mark.usefixtures("small_convolutions")
@pytest.mark.parametrize(
    "attrs",
    [{"groups": 2}, {"dilations": [2, 2]}, {"strides": [4, 4]}, {"data_format": "NHWC"}, {"fuse_relu": True}],
    ids=["groups", "dilated", "strides beyond the window", "channels last", "fused"],
)
def test_transposed_convolution_that_is_left_to_numpy(attrs: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "conv2d_transpose")
    feeds = {"Input": floats(2, 4, 4, 4), "Filter": floats(4, 3, 3, 3, seed=1)}
    agree("conv2d_transpose", feeds, ["Output"], 3e-6, 6, **attrs)
    assert answered == [False]


# ---------------------------------------------------------------- rows of tables and sequences
@pytest.mark.parametrize("type", ["lookup_table", "lookup_table_v2"])
@pytest.mark.parametrize("width", [1, 5, 16, 33])
def test_dense_gradient_of_a_table(type: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, f"{type}_grad")
    ids = np.random.default_rng(0).integers(0, 11, (6, 7, 1) if type == "lookup_table" else (6, 7))
    feeds = {"W": floats(11, width), "Ids": ids, "Out@GRAD": floats(6, 7, width, seed=1)}
    agree(f"{type}_grad", feeds, ["W@GRAD"], rtol=1e-6)
    assert answered == [True]


def test_gradient_of_a_table_with_padding_is_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "lookup_table_v2_grad")
    feeds = {"W": floats(4, 3), "Ids": np.array([0, 2, 0]), "Out@GRAD": floats(3, 3)}
    agree("lookup_table_v2_grad", feeds, ["W@GRAD"], padding_idx=0)
    assert answered == [False]


@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_gradient_of_a_table_says_which_row_does_not_exist(engine: str) -> None:
    feeds = {"W": floats(4, 3), "Ids": np.array([0, 4]), "Out@GRAD": floats(2, 3)}
    with pytest.raises(OperatorError, match="holds 4, expected 0 to 3"):
        outputs_of("lookup_table_v2_grad", feeds, ["W@GRAD"], engine)


@pytest.mark.parametrize(("length", "start"), [(1, 0), (3, -1), (3, 0), (4, -3), (5, 2)])
def test_gradient_of_sequence_conv(length: int, start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "sequence_conv_grad")
    offsets = [0, 3, 4, 4, 11, 13]
    feeds = {
        "X": LoDTensor(floats(13, 6), [offsets]),
        "Filter": floats(length * 6, 9, seed=1),
        "Out@GRAD": LoDTensor(floats(13, 9, seed=2), [offsets]),
    }
    attrs = {"contextLength": length, "contextStart": start}
    agree("sequence_conv_grad", feeds, ["X@GRAD", "Filter@GRAD"], scale=10, **attrs)
    assert answered == [True]


# ---------------------------------------------------------------- updates in place
UPDATES: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "sgd": ({}, {}),
    "momentum": ({"Velocity": "VelocityOut"}, {"mu": 0.9}),
    "adagrad": ({"Moment": "MomentOut"}, {"epsilon": 1e-6}),
    "adam": ({"Moment1": "Moment1Out", "Moment2": "Moment2Out"}, {}),
    "decayed_adagrad": ({"Moment": "MomentOut"}, {}),
    "rmsprop": ({"MeanSquare": "MeanSquareOut", "Moment": "MomentOut"}, {"momentum": 0.9}),
    "ftrl": ({"SquaredAccumulator": "SquaredAccumOut", "LinearAccumulator": "LinearAccumOut"}, {"l1": 0.1, "l2": 0.2}),
}
SPARSE = [
    ("sgd", {}),
    ("momentum", {}),
    ("momentum", {"use_nesterov": True}),
    ("adagrad", {}),
    ("adam", {}),
    ("adam", {"lazy_mode": True}),
    ("rmsprop", {}),
    ("ftrl", {}),
]


class Training:
    """One optimizer operator that updates the variables of a scope."""

    def __init__(self, type: str, engine: str, sparse: bool = False, **attrs: Any) -> None:
        self.moments, own = UPDATES[type]
        self.scope, self.executor = Scope(), Executor(engine=engine)
        self.program, slots = Program(), {"Param": "ParamOut", **self.moments}
        self.names = list(slots)
        single = ["LearningRate", *(["Beta1Pow", "Beta2Pow"] if type == "adam" else [])]
        block = self.program.global_block()
        for name in [*self.names, *single, "Grad"]:
            block.create_var(name=name, dtype=VarType.FP32, persistable=name != "Grad")
        for number, name in enumerate(self.names):
            self.scope.var(name).value = LoDTensor(np.abs(floats(9, 5, seed=number)))
        for name in single:
            self.scope.var(name).value = LoDTensor(np.array([0.5], np.float32))
        block.append_op(
            type=type,
            inputs={name: [name] for name in [*self.names, *single, "Grad"]},
            outputs={slots[name]: [name] for name in self.names},
            attrs=own | attrs,
        )
        self.grad = SelectedRows([7, 2, 7], 9, floats(3, 5, seed=9)) if sparse else floats(9, 5, seed=9)

    def step(self) -> None:
        self.executor.run(self.program, {"Grad": self.grad}, [], self.scope)

    def array(self, name: str) -> Any:
        return self.scope.var(name).value.array


def addresses(training: Training) -> list[int]:
    return [training.array(name).ctypes.data for name in training.names]


@pytest.mark.parametrize("type", UPDATES)
def test_updates_take_the_place_of_what_nobody_else_holds(type: str) -> None:
    training, plain = Training(type, "native"), Training(type, "numpy")
    before = addresses(training)
    for each in (training, training, plain, plain):
        each.step()
    assert addresses(training) == before
    for name in training.names:
        np.testing.assert_allclose(training.array(name), plain.array(name), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("type", "attrs"), SPARSE)
def test_sparse_updates_take_the_place_of_what_nobody_else_holds(type: str, attrs: dict[str, Any]) -> None:
    training, plain = (Training(type, engine, sparse=True, **attrs) for engine in ("native", "numpy"))
    before = addresses(training)
    for each in (training, training, plain, plain):
        each.step()
    assert addresses(training) == before
    for name in training.names:
        np.testing.assert_allclose(training.array(name), plain.array(name), rtol=1e-6, atol=1e-7)


HOLDERS = {
    "the array": lambda variable, scope: variable.value.array,
    "a view": lambda variable, scope: variable.value.array[2:, 1:],
    "its memory": lambda variable, scope: memoryview(variable.value.array),
    "the tensor": lambda variable, scope: variable.value,
    "another variable's tensor": lambda variable, scope: setattr(scope.var("other"), "value", variable.value),
}


@pytest.mark.parametrize("how", HOLDERS)
@pytest.mark.parametrize(
    ("type", "sparse"),
    [*((type, False) for type in UPDATES), *dict.fromkeys((type, True) for type, _ in SPARSE)],
)
def test_updates_leave_arrays_that_somebody_holds(type: str, sparse: bool, how: str) -> None:
    training = Training(type, "native", sparse)
    address = training.array("Param").ctypes.data
    held = HOLDERS[how](training.scope.var("Param"), training.scope)
    training.step()
    assert training.array("Param").ctypes.data != address
    del held


def test_updates_leave_memory_that_belongs_to_somebody_else() -> None:
    """A parameter that is part of a larger array, as when a file is mapped."""
    training = Training("sgd", "native")
    training.scope.var("Param").value = LoDTensor(floats(20, 5)[3:12])
    before = training.array("Param").base.copy()
    base = training.array("Param").base
    training.step()
    np.testing.assert_array_equal(base, before)


def test_a_fetched_parameter_stays_as_it_was_fetched() -> None:
    training = Training("sgd", "native")
    (fetched,) = training.executor.run(training.program, {"Grad": training.grad}, ["Param"], training.scope)
    before = np.array(fetched)
    training.step()
    np.testing.assert_array_equal(np.asarray(fetched), before)
