"""Recurrent layers: gradients, real Paddle's numbers for the corners, and what is refused."""

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from tests.support.operators import check_gradient, lod_tensor, run_op

LENGTHS = [[2, 0, 3]]
ROWS, SEQUENCES, SIZE = 5, 3, 2


def wave(*shape: int, step: float = 1.0, dtype: str = "float64") -> np.ndarray[Any, Any]:
    """sin(step), sin(2 * step), … in this shape."""
    return np.sin(step * np.arange(1, np.prod(shape) + 1)).reshape(shape).astype(dtype)


def lstm_inputs(dtype: str = "float64", size: int = SIZE, peepholes: bool = True) -> dict[str, Any]:
    return {
        "Input": lod_tensor(wave(ROWS, 4 * size, dtype=dtype), LENGTHS),
        "H0": wave(SEQUENCES, size, step=0.8, dtype=dtype),
        "C0": wave(SEQUENCES, size, step=0.6, dtype=dtype),
        "Weight": wave(size, 4 * size, step=0.7, dtype=dtype),
        "Bias": wave(1, (7 if peepholes else 4) * size, step=0.3, dtype=dtype),
    }


def gru_inputs() -> dict[str, Any]:
    return {
        "Input": lod_tensor(wave(ROWS, 3 * SIZE), LENGTHS),
        "H0": wave(SEQUENCES, SIZE, step=0.8),
        "Weight": wave(SIZE, 3 * SIZE, step=0.7),
        "Bias": wave(1, 3 * SIZE, step=0.3),
    }


@pytest.mark.parametrize("reverse", [False, True])
def test_lstm_gradient_with_peepholes_initial_states_and_an_empty_sequence(reverse: bool) -> None:
    inputs = lstm_inputs()
    check_gradient("lstm", inputs, wrt=list(inputs), attrs={"is_reverse": reverse})


def test_lstm_gradient_through_other_activations() -> None:
    attrs = {"gate_activation": "tanh", "cell_activation": "sigmoid", "candidate_activation": "identity"}
    inputs = lstm_inputs()
    check_gradient("lstm", inputs, wrt=list(inputs), attrs=attrs)


def test_lstmp_gradient_within_and_beyond_the_clips() -> None:
    inputs = lstm_inputs()
    inputs["H0"] = wave(SEQUENCES, 1, step=0.8)
    inputs["Weight"] = wave(1, 4 * SIZE, step=0.7)
    inputs["ProjWeight"] = wave(SIZE, 1, step=0.9)
    attrs = {"cell_clip": 0.875, "proj_clip": 0.25}
    clipped = run_op("lstmp", inputs, attrs, fetch=["Cell", "Projection"])
    assert (np.abs(clipped["Cell"].numpy()) == 0.875).any() and (np.abs(clipped["Projection"].numpy()) == 0.25).any()
    check_gradient("lstmp", inputs, wrt=list(inputs), attrs=attrs)


def test_float32_gradient_of_a_size_divisible_by_8_is_that_of_paddles_avx_kernel() -> None:
    """Only the output gate learns: Paddle 1.8.5 and 2.6.2 on the CPU leave the rest of the step's gradient out."""
    from fluidtool.ir import Program
    from fluidtool.ops.gradient import make_grad_ops
    from fluidtool.runtime import Executor, Scope
    from fluidtool.tensor import LoDTensor

    program, scope = Program(), Scope()
    block = program.global_block()
    values = {
        "Input": lod_tensor(wave(2, 32, dtype="float32"), [[2]]),
        "Weight": LoDTensor(wave(8, 32, step=0.7, dtype="float32")),
        "Bias": LoDTensor(wave(1, 32, step=0.3, dtype="float32")),
        "Hidden@GRAD": LoDTensor(np.ones((2, 8), np.float32)),
    }
    for name, value in values.items():
        block.create_var(name=name, persistable=True)
        scope.var(name).value = value
    outputs = ["Hidden", "Cell", "BatchGate", "BatchCellPreAct"]
    for name in [*outputs, "Input@GRAD"]:
        block.create_var(name=name)
    op = block.append_op(
        type="lstm",
        inputs={slot: [slot] for slot in ("Input", "Weight", "Bias")},
        outputs={slot: [slot] for slot in outputs},
        attrs={"use_peepholes": False},
    )
    (grad,) = make_grad_ops(op, {"Weight@GRAD", "Bias@GRAD"})
    block.append_op(type=grad.type, inputs=grad.inputs, outputs=grad.outputs, attrs=grad.attrs)
    (got,) = Executor().run(program, {}, ["Input@GRAD"], scope)
    expected = [
        [0.1159843, 0.0425091, 0.0186523, 0.0093081, 0.0037968, 0.0783261, 0.0801695, 0.0518735],
        [0.0916537, 0.0438931, 0.0365718, 0.0150946, 0.0486564, 0.1255304, 0.0897341, 0.0451215],
    ]
    np.testing.assert_array_equal(got.numpy()[:, :24], 0)
    np.testing.assert_allclose(got.numpy()[:, 24:], expected, rtol=0, atol=2e-7)


def test_lstmp_applies_the_cell_activation_to_the_projection_whatever_proj_activation_names() -> None:
    inputs = {
        "Input": lod_tensor(wave(2, 8), [[2]]),
        "Weight": wave(1, 8, step=0.7),
        "ProjWeight": wave(2, 1, step=0.9),
        "Bias": wave(1, 8, step=0.3),
    }
    attrs = {"use_peepholes": False, "proj_activation": "relu", "cell_activation": "sigmoid"}
    got = run_op("lstmp", inputs, attrs, fetch=["Projection"])["Projection"]
    np.testing.assert_allclose(got.numpy(), [[0.7150652], [0.6713425]], rtol=0, atol=1e-7)
    assert got.lod() == [[0, 2]]


@pytest.mark.parametrize("origin_mode", [False, True])
def test_gru_gradient_with_initial_state_and_an_empty_sequence(origin_mode: bool) -> None:
    inputs = gru_inputs()
    attrs = {"origin_mode": origin_mode, "is_reverse": origin_mode}
    check_gradient("gru", inputs, wrt=list(inputs), attrs=attrs, loss=["Hidden"])


def test_gru_leaves_gates_and_hidden_states_in_packed_order() -> None:
    inputs = {"Input": lod_tensor(wave(3, 6), [[2, 1]]), "Weight": wave(2, 6, step=0.5)}
    got = run_op("gru", inputs)
    hidden = [[-0.5197465, -0.1941564], [-0.4495642, -0.4635848], [-0.5719218, -0.2413667]]
    np.testing.assert_allclose(got["BatchHidden"].numpy(), hidden, rtol=0, atol=1e-7)
    np.testing.assert_allclose(got["Hidden"].numpy(), [hidden[0], hidden[2], hidden[1]], rtol=0, atol=1e-7)
    np.testing.assert_allclose(got["BatchResetHiddenPrev"].numpy()[2], [-0.2549078, -0.0573382], rtol=0, atol=1e-7)
    assert got["BatchGate"].lod() == [[0, 2, 3], [0, 2, 1], [0, 1]]


@pytest.mark.parametrize("attrs", [{}, {"origin_mode": True, "activation": 1, "gate_activation": 2}])
def test_gru_unit_gradient(attrs: dict[str, Any]) -> None:
    inputs = {
        "Input": wave(3, 6),
        "HiddenPrev": wave(3, 2, step=0.8),
        "Weight": wave(2, 6, step=0.7),
        "Bias": wave(1, 6),
    }
    check_gradient("gru_unit", inputs, wrt=list(inputs), attrs=attrs, loss=["Hidden"])


def test_lstm_unit_gradient_from_both_outputs() -> None:
    inputs = {"X": wave(3, 8), "C_prev": wave(3, 2, step=0.8)}
    check_gradient("lstm_unit", inputs, wrt=list(inputs), attrs={"forget_bias": 0.5}, loss=["C", "H"])


def stack_inputs(mode: str, layers: int, directions: int, size: int = 2, features: int = 2) -> dict[str, Any]:
    """Inputs of `rnn` for 3 steps of 3 sequences."""
    gates = {"LSTM": 4, "GRU": 3}.get(mode, 1)
    matrices, biases = [], []
    for layer in range(layers):
        for direction in range(directions):
            step = 0.3 + 0.2 * direction + 0.1 * layer
            width = features if layer == 0 else size * directions
            matrices += [wave(gates * size, width, step=step), wave(gates * size, size, step=step + 0.05)]
            biases += [wave(gates * size, step=step + 0.1), wave(gates * size, step=step + 0.15)]
    states = 2 if mode == "LSTM" else 1
    return {
        "Input": wave(3, 3, features),
        "PreState": [wave(layers * directions, 3, size, step=0.8 + 0.1 * i) for i in range(states)],
        "WeightList": matrices + biases,
    }


@pytest.mark.parametrize("mode", ["LSTM", "GRU", "RNN_TANH", "RNN_RELU"])
def test_rnn_gradient_of_two_bidirectional_layers_with_lengths(mode: str) -> None:
    inputs = stack_inputs(mode, 2, 2) | {"SequenceLength": np.array([2, 3, 0], np.int32)}
    states = len(inputs["PreState"])
    check_gradient(
        "rnn",
        inputs,
        wrt=["Input", "PreState", "WeightList"],
        attrs={"mode": mode, "hidden_size": 2, "num_layers": 2, "is_bidirec": True},
        outputs={"State": states},
        loss=["Out", "State"],
        rtol=1e-4,
    )


def test_rnn_reverses_within_the_length_and_gives_zeros_beyond_it() -> None:
    steps = (0.3, 0.5, 0.7, 0.9)
    inputs = {
        "Input": wave(3, 2, 1),
        "PreState": wave(2, 2, 1, step=0.7),
        "WeightList": [wave(3, 1, step=s) for s in steps] + [wave(3, step=s) for s in (0.2, 0.4, 0.6, 0.8)],
        "SequenceLength": np.array([3, 1], np.int32),
    }
    attrs = {"mode": "GRU", "hidden_size": 1, "input_size": 1, "is_bidirec": True, "is_test": True}
    got = run_op("rnn", inputs, attrs, outputs={"State": 1}, fetch=["Out", "State"])
    expected = [
        [[0.68052987, 0.85738102], [0.98601013, 0.36165368]],
        [[0.72021511, 0.85372132], [0, 0]],
        [[0.71904049, 0.84757565], [0, 0]],
    ]
    np.testing.assert_allclose(got["Out"].numpy(), expected, rtol=0, atol=1e-8)
    states = [[[0.71904049], [0.98601013]], [[0.85738102], [0.36165368]]]
    np.testing.assert_allclose(got["State"].numpy(), states, rtol=0, atol=1e-8)


def test_rnn_dropout_lies_between_layers_and_is_off_in_tests() -> None:
    inputs = stack_inputs("RNN_TANH", 2, 1)
    attrs = {"mode": "RNN_TANH", "hidden_size": 2, "num_layers": 2, "dropout_prob": 1.0, "seed": 3}
    plain = run_op("rnn", inputs, attrs | {"dropout_prob": 0.0}, fetch=["Out"])["Out"].numpy()
    tested = run_op("rnn", inputs, attrs | {"is_test": True}, fetch=["Out"])["Out"].numpy()
    np.testing.assert_array_equal(tested, plain)
    dropped = run_op("rnn", inputs, attrs, fetch=["Out"])["Out"].numpy()
    changed = inputs | {"Input": np.zeros_like(inputs["Input"])}
    np.testing.assert_array_equal(dropped, run_op("rnn", changed, attrs, fetch=["Out"])["Out"].numpy())


def test_cudnn_lstm_is_rnn_with_its_weights_in_one_row() -> None:
    inputs = stack_inputs("LSTM", 2, 2)
    attrs = {"hidden_size": 2, "num_layers": 2, "is_bidirec": True}
    rnn = run_op("rnn", inputs, attrs | {"mode": "LSTM"}, outputs={"State": 2}, fetch=["Out", "State"])
    flat = np.concatenate([weight.reshape(-1) for weight in inputs["WeightList"]])
    row = {"Input": inputs["Input"], "InitH": inputs["PreState"][0], "InitC": inputs["PreState"][1], "W": flat}
    got = run_op("cudnn_lstm", row, attrs)
    for value, expected in zip([got["Out"], got["last_h"], got["last_c"]], [rnn["Out"], *rnn["State"]], strict=True):
        np.testing.assert_array_equal(value.numpy(), expected.numpy())


def of_paddle_2(inputs: dict[str, Any], lengths: list[int]) -> dict[str, Any]:
    """Inputs of rnn as cudnn_lstm of Paddle 2.x takes them."""
    h, c = inputs["PreState"]
    return {
        "Input": inputs["Input"],
        "InitH": h,
        "InitC": c,
        "WeightList": inputs["WeightList"],
        "SequenceLength": np.array(lengths, np.int32),
    }


def test_cudnn_lstm_of_paddle_2_is_rnn() -> None:
    inputs = stack_inputs("LSTM", 2, 2)
    lengths = [len(inputs["Input"]) - 1, *[len(inputs["Input"])] * (inputs["Input"].shape[1] - 1)]
    row = of_paddle_2(inputs, lengths)
    attrs = {"hidden_size": 2, "num_layers": 2, "is_bidirec": True}
    more = {"SequenceLength": row["SequenceLength"]}
    rnn = run_op("rnn", inputs | more, attrs | {"mode": "LSTM"}, outputs={"State": 2}, fetch=["Out", "State"])
    got = run_op("cudnn_lstm", row, attrs)
    for value, expected in zip([got["Out"], got["LastH"], got["LastC"]], [rnn["Out"], *rnn["State"]], strict=True):
        np.testing.assert_array_equal(value.numpy(), expected.numpy())


def test_cudnn_lstm_refuses_lists_of_other_weights() -> None:
    inputs = of_paddle_2(stack_inputs("LSTM", 1, 1), [1, 1])
    refused(
        "cudnn_lstm",
        inputs | {"WeightList": inputs["WeightList"][:3]},
        "input WeightList must hold arrays of the shapes",
    )
    del inputs["WeightList"]
    refused("cudnn_lstm", inputs, "names no variable for its input W, nor for WeightList")


def test_cudnn_lstm_of_paddle_2_gradient() -> None:
    inputs = of_paddle_2(stack_inputs("LSTM", 1, 2), [])
    del inputs["SequenceLength"]
    attrs = {"hidden_size": 2, "is_bidirec": True}
    check_gradient("cudnn_lstm", inputs, wrt=list(inputs), attrs=attrs, loss=["Out", "LastH", "LastC"])


def test_cudnn_lstm_gradient() -> None:
    inputs = stack_inputs("LSTM", 1, 2)
    row = {
        "Input": inputs["Input"],
        "InitH": inputs["PreState"][0],
        "InitC": inputs["PreState"][1],
        "W": np.concatenate([weight.reshape(-1) for weight in inputs["WeightList"]]),
    }
    attrs = {"hidden_size": 2, "is_bidirec": True}
    check_gradient("cudnn_lstm", row, wrt=list(row), attrs=attrs, loss=["Out", "last_h", "last_c"])


def test_attention_lstm_without_hidden_state_and_scalar_bias() -> None:
    inputs = {
        "X": lod_tensor(wave(3, 2), [[2, 1]]),
        "C0": wave(2, 1),
        "AttentionWeight": wave(3, 1, step=0.7),
        "AttentionScalar": np.array([[0.5]]),
        "LSTMWeight": wave(3, 4, step=0.3),
        "LSTMBias": wave(1, 4, step=0.9),
    }
    got = run_op("attention_lstm", inputs, fetch=["Hidden", "Cell", "AttentionedX"])
    np.testing.assert_allclose(got["Hidden"].numpy()[:, 0], [0.3485756, 0.3875016, 0.0061336], rtol=0, atol=1e-7)
    np.testing.assert_allclose(got["Cell"].numpy()[:, 0], [0.5324901, 0.5568365, 0.0148937], rtol=0, atol=1e-7)
    np.testing.assert_allclose(got["AttentionedX"].numpy()[:, 0], [1.4381574, -0.6548788, -0.8931059], atol=1e-7)


def refused(op: str, inputs: dict[str, Any], message: str, attrs: dict[str, Any] | None = None) -> None:
    with pytest.raises(OperatorError, match=message):
        run_op(op, inputs, attrs)


def test_an_input_without_lod_is_refused() -> None:
    refused(
        "lstm", lstm_inputs() | {"Input": wave(5, 8)}, "lstm: input Input needs a LoD of exactly one level, found 0"
    )
    nested = lod_tensor(wave(5, 6), [[1, 1], [2, 3]])
    refused("gru", gru_inputs() | {"Input": nested}, "gru: input Input needs a LoD of exactly one level, found 2")


def test_lstm_shapes_that_do_not_fit_are_named() -> None:
    inputs = lstm_inputs()
    refused("lstm", inputs | {"Weight": wave(2, 6)}, r"input Weight must have shape \(2, 8\).*found \(2, 6\)")
    refused("lstm", inputs | {"Bias": wave(1, 8)}, r"input Bias must have shape \(1, 14\) with use_peepholes=True")
    refused(
        "lstm", inputs | {"H0": wave(2, 2)}, r"input H0 must have one row per sequence, shape \(3, 2\), found \(2, 2\)"
    )
    refused(
        "lstm", inputs | {"Input": lod_tensor(wave(5, 6), LENGTHS)}, r"input Input must be \(rows, 4 \* hidden size\)"
    )
    del inputs["C0"]
    refused("lstm", inputs, "input H0 needs input C0")


def test_an_unknown_activation_is_refused_with_the_known_ones() -> None:
    message = "attribute gate_activation must be one of sigmoid, tanh, relu, identity, found 'swish'"
    refused("lstm", lstm_inputs(), message, {"gate_activation": "swish"})
    unit = {"Input": wave(3, 6), "HiddenPrev": wave(3, 2), "Weight": wave(2, 6)}
    refused(
        "gru_unit",
        unit,
        r"attribute activation must be one of 0 \(identity\), 1 \(sigmoid\).*found 7",
        {"activation": 7},
    )


def test_lstmp_and_gru_weights_that_do_not_fit_are_named() -> None:
    projected = lstm_inputs() | {"Weight": wave(1, 8), "ProjWeight": wave(3, 1), "H0": wave(3, 1)}
    refused("lstmp", projected, r"input ProjWeight must be \(hidden size 2, projection size\), found shape \(3, 1\)")
    refused("gru", gru_inputs() | {"Weight": wave(2, 5)}, r"input Weight must be \(hidden size, 3 \* hidden size\)")
    refused("gru", gru_inputs() | {"Bias": wave(1, 5)}, r"input Bias must have shape \(1, 6\), found \(1, 5\)")


def test_units_refuse_states_of_another_width() -> None:
    unit = {"Input": wave(3, 6), "HiddenPrev": wave(3, 3), "Weight": wave(2, 6)}
    refused("gru_unit", unit, r"input HiddenPrev must have shape \(3, 2\), found \(3, 3\)")
    refused("lstm_unit", {"X": wave(3, 8), "C_prev": wave(3, 3)}, r"input X must be 4 times as wide as C_prev")


def test_rnn_refuses_another_number_of_weights_a_wrong_mode_and_lengths_out_of_range() -> None:
    inputs = stack_inputs("GRU", 1, 1)
    attrs = {"mode": "GRU", "hidden_size": 2}
    refused("rnn", inputs, "input WeightList must hold 4 arrays for each of 2 layers", attrs | {"num_layers": 2})
    refused(
        "rnn", inputs, "attribute mode must be one of LSTM, GRU, RNN_TANH, RNN_RELU, found 'QRNN'", {"mode": "QRNN"}
    )
    beyond = inputs | {"SequenceLength": np.array([1, 2, 4], np.int32)}
    refused("rnn", beyond, "input SequenceLength must be 3 numbers from 0 to 3", attrs)


def test_cudnn_lstm_refuses_a_weight_row_of_another_length() -> None:
    inputs = {"Input": wave(3, 2, 2), "InitH": wave(1, 2, 2), "InitC": wave(1, 2, 2), "W": wave(47)}
    refused("cudnn_lstm", inputs, "input W must hold 48 numbers.*found 47", {"hidden_size": 2})


def test_attention_lstm_refuses_weights_and_states_that_do_not_fit() -> None:
    inputs = {
        "X": lod_tensor(wave(3, 2), [[2, 1]]),
        "C0": wave(2, 1),
        "AttentionWeight": wave(3, 1),
        "LSTMWeight": wave(3, 4),
        "LSTMBias": wave(1, 4),
    }
    refused("attention_lstm", inputs | {"LSTMWeight": wave(2, 4)}, r"input LSTMWeight must be \(D \+ M, 4 \* D\)")
    refused(
        "attention_lstm", inputs | {"AttentionWeight": wave(2, 1)}, r"input AttentionWeight must have shape \(3, 1\)"
    )
    refused("attention_lstm", inputs | {"C0": wave(3, 1)}, r"input C0 must have one row per sequence, shape \(2, 1\)")
