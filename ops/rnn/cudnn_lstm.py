"""cudnn_lstm: a stacked LSTM whose parameters are one flat array, as cuDNN lays them out."""

from __future__ import annotations

from itertools import accumulate
from math import prod
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.multiply_adds import stacked_multiply_adds
from fluidtool.ops.registry import op
from fluidtool.ops.rnn.stack import Stack, dropout_masks, packings, run_stack, stack_gradients
from fluidtool.ops.rnn.stacked_layers import LayerWeights, LstmLayer
from fluidtool.ops.schema import TensorMeta
from fluidtool.tensor import LoDTensor


def _shapes(features: int, size: int, layers: int, directions: int) -> list[tuple[int, ...]]:
    """The shapes in W: the two matrices of every layer and direction, then the two biases of each."""
    matrices: list[tuple[int, ...]] = []
    for layer in range(layers):
        inputs = features if layer == 0 else size * directions
        matrices += [(4 * size, inputs), (4 * size, size)] * directions
    return matrices + [(4 * size,)] * len(matrices)


def _weights(
    ctx: OpContext, W: Any, features: int, size: int, layers: int, directions: int
) -> list[list[LayerWeights]]:
    shapes = _shapes(features, size, layers, directions)
    sizes = [prod(shape) for shape in shapes]
    if sum(sizes) != W.size:
        raise ctx.error(
            f"input W must hold {sum(sizes)} numbers for {features} features, hidden size {size}, {layers} layers and "
            f"{directions} directions; found {W.size}"
        )
    starts, flat = accumulate(sizes, initial=0), W.reshape(-1)
    parts = [
        flat[start : start + length].reshape(shape) for start, length, shape in zip(starts, sizes, shapes, strict=False)
    ]
    count = layers * directions
    each = [
        LayerWeights(*parts[2 * i : 2 * i + 2], *parts[2 * (count + i) : 2 * (count + i) + 2]) for i in range(count)
    ]
    return [each[layer * directions : (layer + 1) * directions] for layer in range(layers)]


def _make_stack(
    ctx: OpContext, Input: Any, InitH: Any, InitC: Any, W: Any, layers: int, is_bidirec: bool, masks: Any
) -> Stack:
    directions = 2 if is_bidirec else 1
    if Input.ndim != 3:
        raise ctx.error(f"input Input must be [steps, sequences, features], found shape {Input.shape}")
    steps, sequences, features = Input.shape
    size = InitH.shape[-1]
    expected = (layers * directions, sequences, size)
    found = (tuple(InitH.shape), tuple(InitC.shape))
    if found != (expected, expected):
        raise ctx.error(f"inputs InitH and InitC must have shape {expected}, found {found}")
    weights = _weights(ctx, W, features, size, layers, directions)
    return Stack(LstmLayer(), weights, packings(ctx, steps, sequences, None, directions), masks)


@op(
    "cudnn_lstm",
    inputs="Input InitH InitC W Cache?",
    outputs="Out last_h last_c",
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
    """
    masks = None
    rows = Input.reshape(-1, Input.shape[-1])
    if dropout_prob > 0 and not is_test and num_layers > 1:
        width = InitH.shape[-1] * (2 if is_bidirec else 1)
        masks = dropout_masks(ctx, (num_layers - 1, len(rows), width), dropout_prob, seed, Input.dtype)
        for holder in ctx.inputs.get("Cache", ()):
            holder.value = LoDTensor(masks)
    stack = _make_stack(ctx, Input, InitH, InitC, W, num_layers, is_bidirec, masks)
    run = run_stack(ctx.xp, stack, rows, [InitH, InitC])
    out = run.out.reshape(*Input.shape[:2], run.out.shape[1])
    return {"Out": out, "last_h": run.final[0], "last_c": run.final[1]}


@cudnn_lstm.infer
def _(
    ctx: InferContext,
    Input: TensorMeta,
    InitH: TensorMeta,
    InitC: TensorMeta,
    W: TensorMeta,
    Cache: TensorMeta | None,
    *,
    is_bidirec: bool,
    hidden_size: int,
) -> dict[str, TensorMeta]:
    if Input.rank != 3:
        raise ctx.error(f"input Input must be [steps, sequences, features], found shape {Input.shape}")
    width = hidden_size * (2 if is_bidirec else 1)
    return {"Out": Input.with_shape((*Input.shape[:2], width)), "last_h": InitH, "last_c": InitC}


@cudnn_lstm.grad(
    inputs="Input InitH InitC W Cache? Out Out@GRAD last_h@GRAD last_c@GRAD",
    outputs="Input@GRAD InitH@GRAD InitC@GRAD W@GRAD",
)
def cudnn_lstm_grad(
    ctx: OpContext,
    Input: Any,
    InitH: Any,
    InitC: Any,
    W: Any,
    Cache: Any,
    Out: Any,
    Out_grad: Any,
    last_h_grad: Any,
    last_c_grad: Any,
    *,
    dropout_prob: float,
    is_bidirec: bool,
    num_layers: int,
    is_test: bool,
) -> dict[str, Any]:
    """Backpropagation through the stack; the forward run is done again, with the dropout masks of Cache."""
    xp = ctx.xp
    dropped = dropout_prob > 0 and not is_test and num_layers > 1
    if dropped and Cache is None:
        raise ctx.error(
            "with dropout, input Cache must name the variable with the forward operator's masks; found none"
        )
    stack = _make_stack(ctx, Input, InitH, InitC, W, num_layers, is_bidirec, Cache if dropped else None)
    states = [InitH, InitC]
    run = run_stack(xp, stack, Input.reshape(-1, Input.shape[2]), states)
    out_grad = Out_grad.reshape(run.out.shape)
    rows_grad, state_grads, weight_grads = stack_gradients(xp, stack, run, states, out_grad, [last_h_grad, last_c_grad])
    each = [weights for layer in weight_grads for weights in layer]
    matrices = [matrix.reshape(-1) for weights in each for matrix in (weights.inputs, weights.recurrent)]
    biases = [bias for weights in each for bias in (weights.input_bias, weights.recurrent_bias)]
    return {
        "Input@GRAD": rows_grad.reshape(Input.shape),
        "InitH@GRAD": state_grads[0],
        "InitC@GRAD": state_grads[1],
        "W@GRAD": xp.concatenate(matrices + biases).reshape(W.shape),
    }
