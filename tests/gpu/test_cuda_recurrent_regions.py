"""Recurrent layers that begin with given states, stacks of them, and single steps, in regions on a GPU: the numbers are numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.proto.enums import VarType
from fluidtool.tensor import LoDTensor
from tests.gpu.test_cuda_regions import calls, check, on_gpu
from tests.runtime.native.checking import Net
from tests.runtime.native.test_sequences import lstm, offsets, projected_lstm, sequences, small

pytestmark = pytest.mark.usefixtures("cupy")
SIZE = 5


# ---------------------------------------------------------------- initial states
def begun(net: Net, lengths: list[int], projected: int = 0, **attrs: Any) -> str:
    """A layer with initial states."""
    if projected:
        name = projected_lstm(net, lengths, SIZE, projected, **attrs)
    else:
        name = lstm(net, sequences(net, lengths, 4 * SIZE), SIZE, **attrs)
    op = net.program.global_block().ops[-1]
    op._inputs["H0"] = [net.data(of=small(net, len(lengths), projected or SIZE))]
    op._inputs["C0"] = [net.data(of=small(net, len(lengths), SIZE))]
    return name


@pytest.mark.parametrize("attrs", [{}, {"is_reverse": True, "peepholes": True}])
@pytest.mark.parametrize("lengths", [[3, 1, 4, 2], [0, 3, 0, 1], [1], [2] * 9])
def test_lstm_with_initial_states(lengths: list[int], attrs: dict[str, Any]) -> None:
    net = Net()
    kinds = check(net, begun(net, lengths, **attrs), rtol=2e-5)
    begin = ["pack", "each", "each"]  # what copies the states
    assert kinds == [*begin, *(["Product", "lstm"] * 2 if len(lengths) > 8 else ["lstm"] * max(lengths))]


@pytest.mark.parametrize("lengths", [[3, 1, 4, 2], [0, 3, 0, 1]])
def test_a_projected_layer_with_initial_states(lengths: list[int]) -> None:
    net = Net()
    kinds = check(net, begun(net, lengths, 3), rtol=2e-5)
    assert kinds == ["pack", "each", "each", *["lstm", "Product", "project"] * max(lengths)]


@pytest.mark.parametrize("missing", ["H0", "C0"])
def test_one_of_two_initial_states_is_left_to_the_operator(missing: str) -> None:
    net = Net()
    name = begun(net, [3, 2])
    del net.program.global_block().ops[-1]._inputs[missing]
    want: Any = None
    try:
        want = net.run("numpy", name)
    except Exception as error:
        with pytest.raises(type(error)):
            on_gpu(net, name)
        return
    np.testing.assert_allclose(on_gpu(net, name)[0], want[0], rtol=1e-4, atol=1e-6)
    assert net.why_not() == ["an LSTM with one of its two initial states"]


# ---------------------------------------------------------------- single steps
@pytest.mark.parametrize("bias", [0.0, 1.5, -0.25])
def test_a_step_of_an_lstm(bias: float) -> None:
    net = Net()
    product = net.op("mul", "Out", {"X": net.data(3, 7), "Y": net.parameter(7, 4 * SIZE)})
    names = net.several("lstm_unit", {"C": 1, "H": 1}, {"X": product, "C_prev": net.data(3, SIZE)}, forget_bias=bias)
    assert check(net, *names, rtol=1e-5) == ["Product", "each", "each"]


def test_the_hidden_state_of_a_step_alone() -> None:
    net = Net()
    product = net.op("mul", "Out", {"X": net.data(3, 7), "Y": net.parameter(7, 4 * SIZE)})
    inputs = {"X": product, "C_prev": net.data(3, SIZE)}
    name = net.several("lstm_unit", {"C": 1, "H": 1}, inputs, forget_bias=0.5)[1]
    assert check(net, name, rtol=1e-5) == ["Product", "each"]


# ---------------------------------------------------------------- stacks
def stack(net: Net, num_layers: int = 2, is_bidirec: bool = False, sequences: int = 3, **attrs: Any) -> list[str]:
    """A stack over 4 steps: its result and its last states."""
    count, widths = 1 + is_bidirec, [6, *[SIZE * (1 + is_bidirec)] * (num_layers - 1)]
    floats = sum(4 * SIZE * (width + SIZE + 2) for width in widths) * count
    first = [net.data(of=small(net, num_layers * count, sequences, SIZE)) for _ in range(2)]
    inputs = {"Input": net.data(4, sequences, 6), "InitH": first[0], "InitC": first[1]}
    inputs["W"] = net.parameter(of=small(net, floats))
    settings = {"hidden_size": SIZE, "input_size": 6, "max_len": 4, "is_test": True, **attrs}
    return net.several(
        "cudnn_lstm", {"Out": 1, "last_h": 1, "last_c": 1}, inputs,
        num_layers=num_layers, is_bidirec=is_bidirec, **settings,
    )  # fmt: skip


STACKS: dict[str, dict[str, Any]] = {
    "one layer": {"num_layers": 1},
    "two layers": {},
    "three layers, both directions": {"num_layers": 3, "is_bidirec": True},
    "many sequences": {"sequences": 9},
    "one sequence": {"sequences": 1, "is_bidirec": True},
    "dropout that is switched off": {"dropout_prob": 0.4},
    "dropout with nothing to drop": {"dropout_prob": 0.4, "num_layers": 1, "is_test": False},
}


@pytest.mark.parametrize("name", STACKS)
def test_stacks(name: str) -> None:
    net = Net()
    kinds = check(net, *stack(net, **STACKS[name]), rtol=2e-5)
    runs = STACKS[name].get("num_layers", 2) * (1 + STACKS[name].get("is_bidirec", False))
    assert kinds.count("lstm") == 4 * runs


def test_the_result_of_a_stack_alone() -> None:
    net = Net()
    check(net, stack(net)[0], rtol=2e-5)
    assert calls(net).count("lstm") == 8


def test_a_variable_for_what_training_keeps_is_no_input() -> None:
    """`layers.lstm` names one, which is empty in programs that are tested."""
    net = Net()
    names = stack(net, dropout_prob=0.4)
    block = net.program.global_block()
    block.create_var(name="kept", type=VarType.RAW, persistable=True)
    block.ops[-1]._inputs["Cache"] = ["kept"]
    check(net, *names, rtol=2e-5)


@pytest.mark.parametrize("changed", [{"is_test": False, "dropout_prob": 1.0}])
def test_dropout_between_layers_is_left_to_the_operator(changed: dict[str, Any]) -> None:
    net = Net()
    name = stack(net, **changed)[0]
    np.testing.assert_allclose(on_gpu(net, name)[0], net.run("numpy", name)[0], rtol=1e-4, atol=1e-6)


def test_weights_that_are_computed_are_left_to_the_operator() -> None:
    net = Net()
    names = stack(net)
    op = net.program.global_block().ops[-1]
    doubled = net.op("scale", "Out", {"X": op.inputs["W"][0]}, scale=2.0, bias=0.0)
    net.program.global_block().ops.insert(0, net.program.global_block().ops.pop())
    op._inputs["W"] = [doubled]
    np.testing.assert_allclose(on_gpu(net, names[0])[0], net.run("numpy", names[0])[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("half", ["bf16", "fp16"])
def test_in_halves_states_stay_in_float32(half: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUIDTOOL_CUDA_PRECISION", half)
    net = Net()
    names = stack(net, is_bidirec=True)
    for found, want in zip(on_gpu(net, *names), net.run("numpy", *names), strict=True):
        np.testing.assert_allclose(found, want, atol=1e-2)
    assert not net.why_not()


def test_lengths_of_one_batch_are_no_lengths_of_another() -> None:
    """Initial states are taken in the order of each batch."""
    net = Net()
    name = begun(net, [1, 4, 2])
    check(net, name, rtol=2e-5)
    gates = net.program.global_block().ops[-1].inputs["Input"][0]
    net.feeds[gates] = LoDTensor(net.feeds[gates].numpy(), offsets([4, 2, 1]))
    check(net, name, rtol=2e-5)
