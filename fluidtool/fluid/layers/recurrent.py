"""LSTM and GRU layers over sequences, and single steps of them (Paddle 1.8.5 layers/rnn.py)."""

from __future__ import annotations

from typing import Any

from fluidtool.errors import AssertedError, UsageError
from fluidtool.fluid.checks import check_type, check_variable_and_dtype
from fluidtool.fluid.initializer import Initializer
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.dense import fc
from fluidtool.fluid.layers.shape import concat
from fluidtool.ir import Variable
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text

REAL = ("float32", "float64")
ACTIVATIONS = ("identity", "sigmoid", "tanh", "relu")


def _check_state(state: Variable | None, name: str, layer: str) -> None:
    check_type(state, name, (Variable, type(None)), layer)
    if state is not None:
        check_variable_and_dtype(state, name, REAL, layer)


def _initial(state: Variable | None, name: str, rows: int, width: int) -> Variable | None:
    """An initial state, which must be [rows, width]."""
    if state is not None and state.shape != (rows, width):
        raise AssertedError(
            f"The shape of {name} should be (batch_size, {width}), "
            f"expected {shape_text((rows, width))}, found {shape_text(state.shape)}"
        )
    return state


def _append(
    helper: LayerHelper, op_type: str, inputs: dict[str, Any], outputs: dict[str, Variable], attrs: dict[str, Any]
) -> None:
    given = {slot: value for slot, value in inputs.items() if value is not None}
    helper.append_op(type=op_type, inputs=given, outputs=outputs, attrs=attrs)


def dynamic_lstm(
    input: Variable,
    size: int,
    h_0: Variable | None = None,
    c_0: Variable | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    dtype: Any = "float32",
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """The hidden and cell states [rows, size / 4] of an LSTM over the sequences of input [rows, size].

    input is a previous layer's result for the four gates. h_0, c_0: [sequences, size / 4].
    """
    if bias_attr is False:
        raise UsageError("bias_attr should not be False in dynamic_lstm.")
    check_variable_and_dtype(input, "input", REAL, "dynamic_lstm")
    _check_state(h_0, "h_0", "dynamic_lstm")
    _check_state(c_0, "c_0", "dynamic_lstm")
    helper = LayerHelper("lstm", input=input, param_attr=param_attr, bias_attr=bias_attr, name=name)
    width = size // 4
    weight = helper.create_parameter(helper.param_attr, shape=[width, 4 * width], dtype=dtype)
    bias_size = [1, (7 if use_peepholes else 4) * width]
    bias = helper.create_parameter(helper.bias_attr, shape=bias_size, dtype=dtype, is_bias=True)
    outputs = {
        slot: helper.create_variable_for_type_inference(dtype)
        for slot in ("Hidden", "Cell", "BatchGate", "BatchCellPreAct")
    }
    inputs = {
        "Input": input,
        "Weight": weight,
        "Bias": bias,
        "H0": _initial(h_0, "h0", input.shape[0], width),
        "C0": _initial(c_0, "c0", input.shape[0], width),
    }
    attrs = {
        "use_peepholes": use_peepholes,
        "is_reverse": is_reverse,
        "gate_activation": gate_activation,
        "cell_activation": cell_activation,
        "candidate_activation": candidate_activation,
    }
    _append(helper, "lstm", inputs, outputs, attrs)
    return outputs["Hidden"], outputs["Cell"]


def dynamic_lstmp(
    input: Variable,
    size: int,
    proj_size: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    proj_activation: str = "tanh",
    dtype: Any = "float32",
    name: str | None = None,
    h_0: Variable | None = None,
    c_0: Variable | None = None,
    cell_clip: float | None = None,
    proj_clip: float | None = None,
) -> tuple[Variable, Variable]:
    """dynamic_lstm whose hidden state is projected to proj_size: the projection [rows, proj_size] and the cell state."""
    if bias_attr is False:
        raise UsageError("bias_attr should not be False in dynamic_lstmp.")
    check_variable_and_dtype(input, "input", REAL, "dynamic_lstmp")
    _check_state(h_0, "h_0", "dynamic_lstmp")
    _check_state(c_0, "c_0", "dynamic_lstmp")
    helper = LayerHelper("lstmp", input=input, param_attr=param_attr, bias_attr=bias_attr, name=name)
    width = size // 4
    weight = helper.create_parameter(helper.param_attr, shape=[proj_size, 4 * width], dtype=dtype)
    projection = helper.create_parameter(helper.param_attr, shape=[width, proj_size], dtype=dtype)
    bias_size = [1, (7 if use_peepholes else 4) * width]
    bias = helper.create_parameter(helper.bias_attr, shape=bias_size, dtype=dtype, is_bias=True)
    outputs = {
        "Projection": helper.create_variable_for_type_inference(dtype),
        "Cell": helper.create_variable_for_type_inference(dtype),
    }
    helper.create_variable_for_type_inference(dtype)  # Paddle creates a sixth temporary, which is never written
    for slot in ("BatchHidden", "BatchGate", "BatchCellPreAct"):
        outputs[slot] = helper.create_variable_for_type_inference(dtype)
    for label, clip in (("cell_clip", cell_clip), ("proj_clip", proj_clip)):
        if clip is not None and clip < 0:
            raise AssertedError(f"{label} should not be negative.")
    inputs = {
        "Input": input,
        "Weight": weight,
        "ProjWeight": projection,
        "Bias": bias,
        "H0": _initial(h_0, "h0", input.shape[0], proj_size),
        "C0": _initial(c_0, "c0", input.shape[0], width),
    }
    attrs = {
        "use_peepholes": use_peepholes,
        "cell_clip": cell_clip,
        "proj_clip": proj_clip,
        "is_reverse": is_reverse,
        "gate_activation": gate_activation,
        "cell_activation": cell_activation,
        "candidate_activation": candidate_activation,
        "proj_activation": proj_activation,
    }
    _append(helper, "lstmp", inputs, outputs, attrs)
    return outputs["Projection"], outputs["Cell"]


def dynamic_gru(
    input: Variable,
    size: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    candidate_activation: str = "tanh",
    h_0: Variable | None = None,
    origin_mode: bool = False,
) -> Variable:
    """The hidden states [rows, size] of a GRU over the sequences of input [rows, 3 * size].

    origin_mode: h = u * h' + (1 - u) * c as in Cho et al. 2014, instead of (1 - u) * h' + u * c.
    """
    check_variable_and_dtype(input, "input", REAL, "dynamic_gru")
    _check_state(h_0, "h_0", "dynamic_gru")
    helper = LayerHelper("gru", input=input, param_attr=param_attr, bias_attr=bias_attr)
    dtype = helper.input_dtype()
    weight = helper.create_parameter(helper.param_attr, shape=[size, 3 * size], dtype=dtype)
    bias = helper.create_parameter(helper.bias_attr, shape=[1, 3 * size], dtype=dtype, is_bias=True)
    initial = _initial(h_0, "h0", input.shape[0], size)
    outputs = {
        slot: helper.create_variable_for_type_inference(dtype)
        for slot in ("Hidden", "BatchGate", "BatchResetHiddenPrev", "BatchHidden")
    }
    attrs = {
        "is_reverse": is_reverse,
        "gate_activation": gate_activation,
        "activation": candidate_activation,
        "origin_mode": origin_mode,
    }
    _append(helper, "gru", {"Input": input, "Weight": weight, "Bias": bias, "H0": initial}, outputs, attrs)
    return outputs["Hidden"]


def gru_unit(
    input: Variable,
    hidden: Variable,
    size: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    activation: str = "tanh",
    gate_activation: str = "sigmoid",
    origin_mode: bool = False,
) -> tuple[Variable, Variable, Variable]:
    """One step of a GRU: the new hidden state, the reset one before and the gates; input [n, size], hidden [n, size / 3].

    As in Paddle 1.8.5, the step computes with tanh and sigmoid whatever activations are given.
    """
    check_variable_and_dtype(input, "input", REAL, "gru_unit")
    check_variable_and_dtype(hidden, "hidden", REAL, "gru_unit")
    check_type(size, "size", int, "gru_unit")
    for label, value in (("activation", activation), ("gate_activation", gate_activation)):
        if value not in ACTIVATIONS:
            raise UsageError(f"{label} of gru_unit must be one of {', '.join(ACTIVATIONS)}, found {value!r}")
    helper = LayerHelper("gru_unit", input=input, param_attr=param_attr, bias_attr=bias_attr)
    dtype = helper.input_dtype()
    width = size // 3
    weight = helper.create_parameter(helper.param_attr, shape=[width, 3 * width], dtype=dtype)
    outputs = {slot: helper.create_variable_for_type_inference(dtype) for slot in ("Gate", "ResetHiddenPrev", "Hidden")}
    bias = helper.create_parameter(helper.bias_attr, shape=[1, 3 * width], dtype=dtype, is_bias=True)
    inputs = {"Input": input, "HiddenPrev": hidden, "Weight": weight, "Bias": bias}
    attrs = {
        "activation": ACTIVATIONS.index("tanh"),
        "gate_activation": ACTIVATIONS.index("sigmoid"),
        "origin_mode": origin_mode,
    }
    _append(helper, "gru_unit", inputs, outputs, attrs)
    return outputs["Hidden"], outputs["ResetHiddenPrev"], outputs["Gate"]


def lstm_unit(
    x_t: Variable,
    hidden_t_prev: Variable,
    cell_t_prev: Variable,
    forget_bias: float = 0.0,
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """One step of an LSTM: the new hidden and cell states [n, width] of x_t [n, features]."""
    helper = LayerHelper("lstm_unit", name=name)
    arguments = {"x_t": x_t, "hidden_t_prev": hidden_t_prev, "cell_t_prev": cell_t_prev}
    for label, value in arguments.items():
        check_variable_and_dtype(value, label, REAL, "lstm_unit")
    for label, value in arguments.items():
        if len(value.shape) != 2:
            raise UsageError(f"Rank of {label} must be 2, found {len(value.shape)}")
    if not x_t.shape[0] == hidden_t_prev.shape[0] == cell_t_prev.shape[0]:
        found = f"{x_t.shape[0]}, {hidden_t_prev.shape[0]} and {cell_t_prev.shape[0]}"
        raise UsageError(f"The 1st dimensions of x_t, hidden_t_prev and cell_t_prev must be the same, found {found}")
    if hidden_t_prev.shape[1] != cell_t_prev.shape[1]:
        found = f"{hidden_t_prev.shape[1]} and {cell_t_prev.shape[1]}"
        raise UsageError(f"The 2nd dimensions of hidden_t_prev and cell_t_prev must be the same, found {found}")
    joined = concat(input=[x_t, hidden_t_prev], axis=1)
    gates = fc(input=joined, size=4 * cell_t_prev.shape[1], param_attr=param_attr, bias_attr=bias_attr)
    cell = helper.create_variable_for_type_inference(x_t.dtype)
    hidden = helper.create_variable_for_type_inference(x_t.dtype)
    inputs, outputs = {"X": gates, "C_prev": cell_t_prev}, {"C": cell, "H": hidden}
    _append(helper, "lstm_unit", inputs, outputs, {"forget_bias": forget_bias})
    return hidden, cell


def lstm(
    input: Variable,
    init_h: Variable,
    init_c: Variable,
    max_len: int,
    hidden_size: int,
    num_layers: int,
    dropout_prob: float = 0.0,
    is_bidirec: bool = False,
    is_test: bool = False,
    name: str | None = None,
    default_initializer: Initializer | None = None,
    seed: int = -1,
) -> tuple[Variable, Variable, Variable]:
    """Layers of LSTM over input [steps, n, features]: the outputs, the last hidden and the last cell states.

    init_h, init_c: [layers (twice as many if is_bidirec), n, hidden_size]. All weights are one parameter.
    """
    helper = LayerHelper("cudnn_lstm", name=name)
    for label, value in (("input", input), ("init_h", init_h), ("init_c", init_c)):
        check_variable_and_dtype(value, label, REAL, "lstm")
    for label, number in (("max_len", max_len), ("hidden_size", hidden_size), ("num_layers", num_layers)):
        check_type(number, label, int, "lstm")
    directions = 2 if is_bidirec else 1
    sizes = [input.shape[-1]] + [hidden_size * directions] * (num_layers - 1)
    count = sum((size + hidden_size) * hidden_size * 4 + hidden_size * 8 for size in sizes) * directions
    weight = helper.create_parameter(
        helper.param_attr, shape=[count], dtype=input.dtype, default_initializer=default_initializer
    )
    outputs = {slot: helper.create_variable_for_type_inference(input.dtype) for slot in ("Out", "last_h", "last_c")}
    cache = helper.create_variable(persistable=True, type=VarType.RAW, stop_gradient=True)
    inputs = {"Input": input, "InitH": init_h, "InitC": init_c, "W": weight, "Cache": cache}
    attrs = {
        "max_len": max_len,
        "is_bidirec": is_bidirec,
        "input_size": input.shape[-1],
        "hidden_size": hidden_size,
        "num_layers": num_layers,
        "is_test": is_test,
        "dropout_prob": dropout_prob,
        "seed": seed,
    }
    _append(helper, "cudnn_lstm", inputs, outputs, attrs)
    return outputs["Out"], outputs["last_h"], outputs["last_c"]
