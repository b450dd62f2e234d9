"""cudnn_lstm: a stacked LSTM whose parameters are one flat array, as cuDNN lays them out, or in Paddle 2.x a list."""

from __future__ import annotations

from itertools import accumulate
from math import prod
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.multiply_adds import stacked_multiply_adds
from fluidtool.ops.registry import op
from fluidtool.ops.rnn.stack import Stack, dropout_masks, packings, run_stack, sequence_lengths, stack_gradients
from fluidtool.ops.rnn.stacked_layers import LayerWeights, LstmLayer
from fluidtool.ops.schema import TensorMeta
from fluidtool.shapes import shape_text, shapes_text
from fluidtool.tensor import LoDTensor


def _shapes(features: int, size: int, layers: int, directions: int) -> list[tuple[int, ...]]:
    """The shapes in W: the two matrices of every layer and direction, then the two biases of each."""
    matrices: list[tuple[int, ...]] = []
    for layer in range(layers):
        inputs = features if layer == 0 else size * directions
        matrices += [(4 * size, inputs), (4 * size, size)] * directions
    return matrices + [(4 * size,)] * len(matrices)


def _parts(ctx: OpContext, W: Any, WeightList: list[Any], shapes: list[tuple[int, ...]], text: str) -> list[Any]:
    if WeightList:
        found = [tuple(part.shape) for part in WeightList]
        if found != shapes:
            raise ctx.error(
                f"input WeightList must hold arrays of the shapes {shapes_text(shapes)} for {text}; found {shapes_text(found)}"
            )
        return WeightList
    if W is None:
        raise ctx.error("names no variable for its input W, nor for WeightList")
    sizes = [prod(shape) for shape in shapes]
    if sum(sizes) != W.size:
        raise ctx.error(f"input W must hold {sum(sizes)} numbers for {text}; found {W.size}")
    starts, flat = accumulate(sizes, initial=0), W.reshape(-1)
    return [
        flat[start : start + length].reshape(shape) for start, length, shape in zip(starts, sizes, shapes, strict=False)
    ]


def _weights(
    ctx: OpContext, W: Any, WeightList: list[Any], features: int, size: int, layers: int, directions: int
) -> list[list[LayerWeights]]:
    text = f"{features} features, hidden size {size}, {layers} layers and {directions} directions"
    parts = _parts(ctx, W, WeightList, _shapes(features, size, layers, directions), text)
    count = layers * directions
    each = [
        LayerWeights(*parts[2 * i : 2 * i + 2], *parts[2 * (count + i) : 2 * (count + i) + 2]) for i in range(count)
    ]
    return [each[layer * directions : (layer + 1) * directions] for layer in range(layers)]


def _make_stack(
    ctx: OpContext,
    Input: Any,
    InitH: Any,
    InitC: Any,
    W: Any,
    WeightList: list[Any],
    SequenceLength: Any,
    layers: int,
    is_bidirec: bool,
    masks: Any,
) -> Stack:
    directions = 2 if is_bidirec else 1
    if Input.ndim != 3:
        raise ctx.error(f"input Input must be (steps, sequences, features), found shape {Input.shape}")
    steps, sequences, features = Input.shape
    size = InitH.shape[-1]
    expected = (layers * directions, sequences, size)
    found = (tuple(InitH.shape), tuple(InitC.shape))
    if found != (expected, expected):
        raise ctx.error(f"inputs InitH and InitC must have shape {shape_text(expected)}, found {shapes_text(found)}")
    weights = _weights(ctx, W, WeightList, features, size, layers, directions)
    lengths = None if SequenceLength is None else sequence_lengths(ctx, SequenceLength, steps, sequences)
    return Stack(LstmLayer(), weights, packings(ctx, steps, sequences, lengths, directions), masks)


@op(
    "cudnn_lstm",
    inputs="Input InitH InitC W/? Cache? WeightList/+* SequenceLength/+",
    outputs="Out last_h/? last_c/? LastH/+ LastC/+ StateOut/+~ Reserve/+~",
    attrs={
        "max_len": 20,
        "dropout_prob": 0.0,
        "is_bidirec": False,
        "input_size": 10,
        "hidden_size": 100,
        "num_layers": 1,
        "is_test": False,
        "seed": -1,
    },
    multiply_adds=stacked_multiply_adds,
)
def cudnn_lstm(
    ctx: OpContext,
    Input: Any,
    InitH: Any,
    InitC: Any,
    W: Any,
    Cache: Any,
    WeightList: list[Any],
    SequenceLength: Any,
    *,
    dropout_prob: float,
    is_bidirec: bool,
    num_layers: int,
    is_test: bool,
    seed: int,
) -> dict[str, Any]:
    """Out [steps, N, directions * H], last_h and last_c [layers * directions, N, H] of Input [steps, N, features].

    W: for every layer and direction the matrices [4H, inputs] and [4H, H] (input, forget, candidate, output gate), then
    for each the two biases [4H]. Dropout lies between layers; its masks go into the variable of slot Cache, which is the
    state that forward and gradient share (Paddle 1.8.5 cudnn_lstm_op.cu.cc).

    Paddle 2.x gives the same arrays as WeightList, may give SequenceLength [N], beyond which steps give 0, keeps the masks in
    StateOut and calls the last states LastH and LastC.
    """
    masks = None
    rows = Input.reshape(-1, Input.shape[-1])
    if dropout_prob > 0 and not is_test and num_layers > 1:
        width = InitH.shape[-1] * (2 if is_bidirec else 1)
        masks = dropout_masks(ctx, (num_layers - 1, len(rows), width), dropout_prob, seed, Input.dtype)
        for holder in ctx.inputs.get("Cache", ()):
            holder.value = LoDTensor(masks)
    stack = _make_stack(ctx, Input, InitH, InitC, W, WeightList, SequenceLength, num_layers, is_bidirec, masks)
    run = run_stack(ctx.xp, stack, rows, [InitH, InitC])
    out = run.out.reshape(*Input.shape[:2], run.out.shape[1])
    last_h, last_c = run.final
    kept = {"StateOut": ctx.dims_only((0,)) if masks is None else masks, "Reserve": ctx.dims_only((0,))}
    return {"Out": out, "last_h": last_h, "last_c": last_c, "LastH": last_h, "LastC": last_c, **kept}


@cudnn_lstm.infer
def _(
    ctx: InferContext,
    Input: TensorMeta,
    InitH: TensorMeta,
    InitC: TensorMeta,
    W: TensorMeta | None,
    Cache: TensorMeta | None,
    WeightList: list[TensorMeta],
    SequenceLength: TensorMeta | None,
    *,
    is_bidirec: bool,
    hidden_size: int,
) -> dict[str, TensorMeta]:
    if Input.rank != 3:
        raise ctx.error(f"input Input must be (steps, sequences, features), found shape {Input.shape}")
    width = hidden_size * (2 if is_bidirec else 1)
    states = {"last_h": InitH, "last_c": InitC, "LastH": InitH, "LastC": InitC}
    return {"Out": Input.with_shape((*Input.shape[:2], width)), **states}


@cudnn_lstm.grad(
    inputs="Input InitH InitC W? Cache? WeightList*? SequenceLength? Out StateOut? Out@GRAD last_h@GRAD? last_c@GRAD? "
    "LastH@GRAD? LastC@GRAD?",
    outputs="Input@GRAD InitH@GRAD InitC@GRAD W@GRAD? WeightList@GRAD*?",
)
def cudnn_lstm_grad(
    ctx: OpContext,
    Input: Any,
    InitH: Any,
    InitC: Any,
    W: Any,
    Cache: Any,
    WeightList: list[Any],
    SequenceLength: Any,
    Out: Any,
    StateOut: Any,
    Out_grad: Any,
    last_h_grad: Any,
    last_c_grad: Any,
    LastH_grad: Any,
    LastC_grad: Any,
    *,
    dropout_prob: float,
    is_bidirec: bool,
    num_layers: int,
    is_test: bool,
) -> dict[str, Any]:
    """Backpropagation through the stack; the forward run is done again, with the dropout masks of Cache or StateOut."""
    xp = ctx.xp
    dropped = dropout_prob > 0 and not is_test and num_layers > 1
    masks = (StateOut if Cache is None else Cache) if dropped else None
    if dropped and masks is None:
        raise ctx.error(
            "with dropout, input Cache must name the variable with the forward operator's masks; found none"
        )
    stack = _make_stack(ctx, Input, InitH, InitC, W, WeightList, SequenceLength, num_layers, is_bidirec, masks)
    states = [InitH, InitC]
    grads = (LastH_grad, LastC_grad) if WeightList else (last_h_grad, last_c_grad)
    finals = [xp.zeros_like(state) if grad is None else grad for state, grad in zip(states, grads, strict=True)]
    run = run_stack(xp, stack, Input.reshape(-1, Input.shape[2]), states)
    out_grad = Out_grad.reshape(run.out.shape)
    rows_grad, state_grads, weight_grads = stack_gradients(xp, stack, run, states, out_grad, finals)
    each = [weights for layer in weight_grads for weights in layer]
    matrices = [matrix for weights in each for matrix in (weights.inputs, weights.recurrent)]
    biases = [bias for weights in each for bias in (weights.input_bias, weights.recurrent_bias)]
    listed = matrices + biases
    flat = {} if W is None else {"W@GRAD": xp.concatenate([part.reshape(-1) for part in listed]).reshape(W.shape)}
    return {
        "Input@GRAD": rows_grad.reshape(Input.shape),
        "InitH@GRAD": state_grads[0],
        "InitC@GRAD": state_grads[1],
        "WeightList@GRAD": listed,
        **flat,
    }
