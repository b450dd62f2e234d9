"""gru and its gradient: every sequence runs through all steps on one thread."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.ops.rnn.gru_cell import GruWeights, check_gru_shapes
from fluidtool.ops.rnn.lstm_layer import check_initial
from fluidtool.ops.rnn.packing import pack_sequences
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.kernels.direct import are_floats, have_shape, in_rows, pack_matrix, run_call
from fluidtool.runtime.engines.native.kernels.recurrent import ACTIVATIONS, covers, cut, packed_rows, packed_sizes
from fluidtool.runtime.engines.native.library import Library


def gru(
    library: Library,
    ctx: OpContext,
    Input: Any,
    H0: Any,
    Weight: Any,
    Bias: Any,
    *,
    activation: str,
    gate_activation: str,
    is_reverse: bool,
    origin_mode: bool,
) -> Any:
    """fluidtool.ops.rnn.gru, to the rounding of float32."""
    if not are_floats(Input, H0, Weight, Bias) or not {gate_activation, activation} <= ACTIVATIONS.keys():
        return NotImplemented
    size = check_gru_shapes(ctx, Input, Weight, Bias)
    packing = pack_sequences(ctx, "Input", len(Input), is_reverse)
    check_initial(ctx, len(packing.order), "H0", H0, size)
    if not covers(packing, len(Input)):
        return NotImplemented
    weights = GruWeights.split(Weight)
    gates = np.empty(Input.shape, np.float32)
    rows, hidden, reset = (np.empty((len(Input), size), np.float32) for _ in range(3))
    ranks, tasks = cut(library, packing, size)
    arguments = abi.Gru(
        source=in_rows(Input), gate_weights=pack_matrix(library, in_rows(weights.gates)),
        candidate_weights=pack_matrix(library, in_rows(weights.candidate)), bias=in_rows(Bias),
        initial=in_rows(packing.ordered(H0)), hidden=rows, gates=gates, packed_hidden=hidden, reset=reset, size=size,
        task_sequences=ranks, origin=int(origin_mode), gate_activation=ACTIVATIONS[gate_activation],
        candidate_activation=ACTIVATIONS[activation], **packed_sizes(packing), **packed_rows(packing),
    )  # fmt: skip
    run_call(library, arguments, tasks)
    ctx.set_lod("BatchGate", packing.lod())
    ctx.set_lod("BatchHidden", packing.lod())
    return {"BatchGate": gates, "BatchResetHiddenPrev": reset, "BatchHidden": hidden, "Hidden": rows}


def gru_gradient(
    library: Library,
    ctx: OpContext,
    Input: Any,
    H0: Any,
    Weight: Any,
    Bias: Any,
    BatchGate: Any,
    BatchResetHiddenPrev: Any,
    BatchHidden: Any,
    Hidden: Any,
    Hidden_grad: Any,
    *,
    activation: str,
    gate_activation: str,
    is_reverse: bool,
    origin_mode: bool,
) -> Any:
    """The gradient of fluidtool.ops.rnn.gru, to the rounding of float32."""
    frames = (BatchResetHiddenPrev, BatchHidden, Hidden_grad)
    names_fit = {gate_activation, activation} <= ACTIVATIONS.keys()
    if not are_floats(H0, Weight, BatchGate, *frames) or not names_fit:
        return NotImplemented
    packing, size, rows = pack_sequences(ctx, "Hidden", len(Hidden), is_reverse), Weight.shape[0], len(Hidden)
    fits = have_shape((rows, size), *frames) and have_shape((rows, 3 * size), BatchGate)
    if not fits or not covers(packing, rows) or not have_shape((len(packing.order), size), H0):
        return NotImplemented
    weights, first = GruWeights.split(Weight), in_rows(packing.ordered(H0))
    grads = np.empty((rows, 3 * size), np.float32)
    first_grad = None if first is None else np.zeros_like(first)
    ranks, tasks = cut(library, packing, size)
    arguments = abi.GruGradient(
        hidden_grad=in_rows(Hidden_grad), gate_weights=pack_matrix(library, in_rows(weights.gates), transposed=True),
        candidate_weights=pack_matrix(library, in_rows(weights.candidate), transposed=True), gates=in_rows(BatchGate),
        packed_hidden=in_rows(BatchHidden), initial=first, gates_grad=grads, initial_grad=first_grad,
        scratch=np.empty(2 * size * ranks * tasks, np.float32), size=size, task_sequences=ranks, origin=int(origin_mode),
        gate_activation=ACTIVATIONS[gate_activation], candidate_activation=ACTIVATIONS[activation],
        **packed_sizes(packing), **packed_rows(packing),
    )  # fmt: skip
    run_call(library, arguments, tasks)
    gates_grad = packing.one_step_before(np, BatchHidden, first).T @ grads[:, : 2 * size]
    candidate_grad = BatchResetHiddenPrev.T @ grads[:, 2 * size :]
    return {
        "Input@GRAD": packing.unpack(np, grads),
        "H0@GRAD": None if first_grad is None else packing.unordered(np, first_grad),
        "Weight@GRAD": GruWeights.join(np, gates_grad, candidate_grad),
        "Bias@GRAD": grads.sum(axis=0)[None],
    }
