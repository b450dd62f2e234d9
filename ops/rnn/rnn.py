"""rnn: the stacked LSTM, GRU or plain recurrent network of Paddle 2.x."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.multiply_adds import stacked_multiply_adds
from fluidtool.ops.registry import op
from fluidtool.ops.rnn.activations import RELU, TANH
from fluidtool.ops.rnn.stack import Stack, dropout_masks, packings, run_stack, sequence_lengths, stack_gradients
from fluidtool.ops.rnn.stacked_layers import GruLayer, Layer, LayerWeights, LstmLayer, PlainLayer
from fluidtool.ops.schema import TensorMeta
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text, shapes_text

KINDS: dict[str, Layer] = {
    "LSTM": LstmLayer(),
    "GRU": GruLayer(),
    "RNN_TANH": PlainLayer(TANH),
    "RNN_RELU": PlainLayer(RELU),
}
ATTRS = {
    "dropout_prob": 0.0,
    "is_bidirec": False,
    "input_size": 10,
    "hidden_size": 100,
    "num_layers": 1,
    "mode": "RNN_TANH",
    "seed": 0,
    "is_test": False,
}


def _weights(
    ctx: OpContext, WeightList: list[Any], kind: Layer, layers: int, directions: int
) -> list[list[LayerWeights]]:
    """WeightList holds the two matrices of every layer and direction, then the two biases of each."""
    count = layers * directions
    if len(WeightList) != 4 * count:
        raise ctx.error(
            f"input WeightList must hold 4 arrays for each of {layers} layers and {directions} directions, "
            f"found {len(WeightList)}"
        )
    rows = {weight.shape[0] for weight in WeightList}
    size = WeightList[1].shape[1] if WeightList[1].ndim == 2 else 0
    if rows != {kind.gates * size}:
        raise ctx.error(f"every array of input WeightList must have {kind.gates} * {size} rows, found {sorted(rows)}")
    flat = [
        LayerWeights(
            WeightList[2 * i], WeightList[2 * i + 1], WeightList[2 * (count + i)], WeightList[2 * (count + i) + 1]
        )
        for i in range(count)
    ]
    return [flat[layer * directions : (layer + 1) * directions] for layer in range(layers)]


def _make_stack(
    ctx: OpContext,
    Input: Any,
    PreState: list[Any],
    WeightList: list[Any],
    SequenceLength: Any,
    mode: str,
    num_layers: int,
    is_bidirec: bool,
    masks: Any,
) -> Stack:
    kind = KINDS.get(mode)
    if kind is None:
        raise ctx.error(f"attribute mode must be one of {', '.join(KINDS)}, found {mode!r}")
    assert kind is not None
    if Input.ndim != 3:
        raise ctx.error(f"input Input must be (steps, sequences, features), found shape {Input.shape}")
    steps, sequences = Input.shape[:2]
    directions = 2 if is_bidirec else 1
    layers = _weights(ctx, WeightList, kind, num_layers, directions)
    states = 2 if mode == "LSTM" else 1
    expected = (num_layers * directions, sequences, layers[0][0].recurrent.shape[1])
    found = [tuple(state.shape) for state in PreState]
    if found != [expected] * states:
        raise ctx.error(f"input PreState must be {states} of shape {shape_text(expected)}, found {shapes_text(found)}")
    width = layers[0][0].inputs.shape[1]
    if Input.shape[2] != width:
        raise ctx.error(f"input Input must have {width} features, found shape {Input.shape}")
    lengths = None
    if SequenceLength is not None:
        lengths = sequence_lengths(ctx, SequenceLength, steps, sequences)
    return Stack(kind, layers, packings(ctx, steps, sequences, lengths, directions), masks)


@op(
    "rnn",
    inputs="Input PreState* WeightList* SequenceLength?",
    outputs="Out DropoutState~ State* Reserve~",
    attrs=ATTRS,
    multiply_adds=stacked_multiply_adds,
)
def rnn(
    ctx: OpContext,
    Input: Any,
    PreState: list[Any],
    WeightList: list[Any],
    SequenceLength: Any,
    *,
    dropout_prob: float,
    is_bidirec: bool,
    num_layers: int,
    mode: str,
    seed: int,
    is_test: bool,
) -> dict[str, Any]:
    """Out [steps, N, directions * H] and State (each [layers * directions, N, H]) of Input [steps, N, features].

    PreState holds h, for LSTM h and c. Steps beyond SequenceLength [N] give 0 and leave the state as it is. DropoutState
    keeps the dropout masks between the layers for the gradient, Reserve stays empty (Paddle 2.6.2 rnn_kernel.cc).
    """
    masks = None
    rows = Input.reshape(-1, Input.shape[-1])
    if dropout_prob > 0 and not is_test and num_layers > 1:
        width = PreState[0].shape[-1] * (2 if is_bidirec else 1)
        masks = dropout_masks(ctx, (num_layers - 1, len(rows), width), dropout_prob, seed, Input.dtype)
    stack = _make_stack(ctx, Input, PreState, WeightList, SequenceLength, mode, num_layers, is_bidirec, masks)
    run = run_stack(ctx.xp, stack, rows, PreState)
    return {
        "Out": run.out.reshape(*Input.shape[:2], run.out.shape[1]).astype(Input.dtype, copy=False),
        "DropoutState": ctx.dims_only((0,)) if masks is None else masks,
        "State": run.final,
        "Reserve": ctx.dims_only((0,)),
    }


@rnn.infer
def _(
    ctx: InferContext,
    Input: TensorMeta,
    PreState: list[TensorMeta],
    WeightList: list[TensorMeta],
    SequenceLength: TensorMeta | None,
    *,
    is_bidirec: bool,
    hidden_size: int,
) -> dict[str, Any]:
    if Input.rank != 3:
        raise ctx.error(f"input Input must be (steps, sequences, features), found shape {Input.shape}")
    width = hidden_size * (2 if is_bidirec else 1)
    return {
        "Out": Input.with_shape((*Input.shape[:2], width)),
        "State": list(PreState),
        "DropoutState": TensorMeta((-1,), VarType.UINT8),
    }


@rnn.grad(
    inputs="Input PreState* WeightList* SequenceLength? Out DropoutState? Reserve? Out@GRAD State@GRAD*",
    outputs="Input@GRAD PreState@GRAD* WeightList@GRAD*",
)
def rnn_grad(
    ctx: OpContext,
    Input: Any,
    PreState: list[Any],
    WeightList: list[Any],
    SequenceLength: Any,
    Out: Any,
    DropoutState: Any,
    Reserve: Any,
    Out_grad: Any,
    State_grad: list[Any],
    *,
    is_bidirec: bool,
    num_layers: int,
    mode: str,
) -> dict[str, Any]:
    """Backpropagation through the stack; the forward run is done again, with the masks of DropoutState.

    With is_bidirec and SequenceLength Paddle 2.6.2 gives other gradients, which central differences contradict.
    """
    xp = ctx.xp
    masks = DropoutState if getattr(DropoutState, "ndim", 0) == 3 else None
    stack = _make_stack(ctx, Input, PreState, WeightList, SequenceLength, mode, num_layers, is_bidirec, masks)
    run = run_stack(xp, stack, Input.reshape(-1, Input.shape[2]), PreState)
    given = [*State_grad, *([None] * (len(PreState) - len(State_grad)))]
    finals = [xp.zeros_like(state) if grad is None else grad for state, grad in zip(PreState, given, strict=True)]
    out_grad = Out_grad.reshape(run.out.shape)
    rows_grad, state_grads, weight_grads = stack_gradients(xp, stack, run, PreState, out_grad, finals)
    flat = [weights for layer in weight_grads for weights in layer]
    matrices = [matrix for weights in flat for matrix in (weights.inputs, weights.recurrent)]
    biases = [bias for weights in flat for bias in (weights.input_bias, weights.recurrent_bias)]
    return {
        "Input@GRAD": rows_grad.reshape(Input.shape),
        "PreState@GRAD": state_grads,
        "WeightList@GRAD": matrices + biases,
    }
