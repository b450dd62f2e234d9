"""int32 and booleans that leave a training step, and booleans that enter one: of the types that the CPU gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.fluid import layers
from fluidtool.proto.enums import VarType
from fluidtool.runtime.engines.cuda.training.compiled import CudaStep
from fluidtool.tensor import LoDTensor
from tests.gpu.standin import EVENTS
from tests.gpu.test_cuda_ranking import scores
from tests.gpu.test_cuda_wholes import cast, classifier, trained
from tests.gpu.test_training_reductions import in_a_step, kernels
from tests.runtime.native.checking import Array, Net

pytestmark = pytest.mark.usefixtures("cupy")
FP32, INT64, INT32, BOOL = (int(each) for each in (VarType.FP32, VarType.INT64, VarType.INT32, VarType.BOOL))


def flags(net: Net, *shape: int, seed: int = 0) -> str:
    return _typed(net, np.random.default_rng(seed).integers(0, 2, shape) == 1, VarType.BOOL)


def _typed(net: Net, array: Array, type: VarType) -> str:
    name = net.data(of=array)
    net.program.global_block().var(name).dtype = type
    return name


def typed(net: Net, name: str, type: VarType) -> str:
    """A result whose type is declared, as scripts do."""
    net.program.global_block().var(name).dtype = type
    return name


def stepped(net: Net, *names: str, rtol: float = 0.0) -> None:
    """The results of a step are numpy's; a gradient makes the program one that is trained."""
    x, grad = net.data(2, 3), net.data(2, 3)
    y = net.op("relu", "Out", {"X": x})
    in_a_step(net, *names, net.op("relu_grad", "X@GRAD", {"X": x, "Out": y, "Out@GRAD": grad}), rtol=rtol)


@pytest.mark.parametrize("wanted", [INT32, INT64, BOOL])
def test_what_is_cast_leaves_the_step(wanted: int, compiled: list[CudaStep]) -> None:
    net = Net()
    x = net.op("relu", "Out", {"X": net.data(of=scores("ties", 5, 3) * 2)})
    stepped(net, typed(net, cast(net, x, wanted), VarType(wanted)), x)
    assert len(compiled) == 1


def test_whole_numbers_of_32_bits_leave_as_they_came(compiled: list[CudaStep]) -> None:
    net = Net()
    x = net.data(of=np.array([[1, -2], [2**31 - 1, -(2**31)]], np.int32))
    stepped(net, net.op("reshape2", "Out", {"X": x}, "XShape", shape=[-1]), net.op("scale", "Out", {"X": x}, scale=2.0))
    assert len(compiled) == 1


@pytest.mark.parametrize("type", ["logical_and", "logical_or", "logical_xor", "logical_not"])
def test_booleans_enter_a_step_and_leave_it(type: str, compiled: list[CudaStep]) -> None:
    net = Net()
    given = {"X": flags(net, 4, 5), "Y": flags(net, 4, 5, seed=1)}
    if type == "logical_not":
        del given["Y"]
    found = typed(net, net.op(type, "Out", given), VarType.BOOL)
    stepped(net, found, cast(net, found, FP32, BOOL), cast(net, given["X"], INT32, BOOL))
    assert len(compiled) == 1


def test_booleans_are_handed_on_as_they_came(compiled: list[CudaStep]) -> None:
    net = Net()
    x = flags(net, 4, 5)
    stepped(net, net.op("assign", "Out", {"X": x}), net.op("relu", "Out", {"X": net.data(2, 3)}))
    assert len(compiled) == 1


def test_booleans_of_sequences_stay_sequences(compiled: list[CudaStep]) -> None:
    net = Net()
    x = net.data(3, 2)
    net.feeds[x] = LoDTensor(net.feeds[x], [[0, 1, 3]])
    found = typed(
        net, net.op("less_than", "Out", {"X": net.op("relu", "Out", {"X": x}), "Y": net.data(3, 2)}), VarType.BOOL
    )
    stepped(net, found)
    assert len(compiled) == 1


def test_what_a_step_gives_is_copied_at_once(compiled: list[CudaStep]) -> None:
    net = Net()
    x = net.op("relu", "Out", {"X": net.data(4, 3)})
    names = [x, typed(net, cast(net, x, BOOL), VarType.BOOL), typed(net, cast(net, x, INT32), VarType.INT32)]
    stepped(net, *names)
    (step,) = compiled
    given = dict(zip(step.names, step.inputs._arrays, strict=True))
    for _ in range(3):
        with EVENTS.counted() as counts:
            step.run(given, np.random.default_rng, {})
    assert counts["launches"] == 3  # what goes in, the graph, what comes out
    assert kernels(step)


# ---------------------------------------------------------------- with parameters
def shown(probabilities: Any, y: Any, loss: Any) -> list[Any]:
    """Booleans and counts that are fetched."""
    best, _ = layers.topk(probabilities, 1)
    correct, total = (layers.create_tensor("int32") for _ in range(2))
    return [
        layers.less_than(loss, best),
        layers.accuracy(probabilities, y, correct=correct, total=total),
        correct,
        total,
    ]


def test_booleans_and_counts_are_part_of_the_graph(compiled: list[CudaStep]) -> None:
    trained(*classifier(shown))
    assert len(compiled) == 3


def kept(probabilities: Any, y: Any, loss: Any) -> list[Any]:
    """Whole numbers of 32 bits that stay in the scope."""
    state = layers.create_global_var([6, 1], 0, "int32", persistable=True, name="kept")
    layers.assign(layers.cast(y, "int32"), state)
    return [layers.cast(state, "float32")]


def test_whole_numbers_of_32_bits_that_stay_in_the_scope_are_left_to_the_operator(compiled: list[CudaStep]) -> None:
    trained(*classifier(kept))
    assert compiled
