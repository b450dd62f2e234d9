"""gru and its gradient: every sequence runs through all steps on one thread."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.ops.rnn.gru_cell import GruWeights, check_gru_shapes
from fluidtool.ops.rnn.lstm_layer import check_initial
from fluidtool.ops.rnn.packing import Packing, pack_sequences
from fluidtool.runtime.engines.native.calls import Kind
from fluidtool.runtime.engines.native.kernels.direct import are_floats, have_shape, in_rows, pack_matrix, run_step
from fluidtool.runtime.engines.native.kernels.recurrent import ACTIVATIONS, covers, cut, packed_sizes
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
    """What fluidtool.ops.rnn.gru does, to the rounding of float32."""
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
    arrays = (
        in_rows(Input),
        pack_matrix(library, in_rows(weights.gates)),
        pack_matrix(library, in_rows(weights.candidate)),
        in_rows(Bias),
        in_rows(packing.ordered(H0)),
        rows,
        gates,
        hidden,
        reset,
        np.array(packing.starts, np.int64),
        in_rows(packing.rows.astype(np.int64, copy=False)),
    )
    numbers = sizes(packing, size, ranks, origin_mode, gate_activation, activation)
    run_step(library, Kind.GRU, (None,), numbers, tasks, behind=arrays)
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
    """What the gradient of fluidtool.ops.rnn.gru does, to the rounding of float32."""
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
    arrays = (
        in_rows(Hidden_grad),
        pack_matrix(library, in_rows(weights.gates), transposed=True),
        pack_matrix(library, in_rows(weights.candidate), transposed=True),
        in_rows(BatchGate),
        in_rows(BatchHidden),
        first,
        grads,
        first_grad,
        np.empty(2 * size * ranks * tasks, np.float32),
        np.array(packing.starts, np.int64),
        in_rows(packing.rows.astype(np.int64, copy=False)),
    )
    numbers = sizes(packing, size, ranks, origin_mode, gate_activation, activation)
    run_step(library, Kind.GRU_GRADIENT, (None,), numbers, tasks, behind=arrays)
    gates_grad = packing.one_step_before(np, BatchHidden, first).T @ grads[:, : 2 * size]
    candidate_grad = BatchResetHiddenPrev.T @ grads[:, 2 * size :]
    return {
        "Input@GRAD": packing.unpack(np, grads),
        "H0@GRAD": None if first_grad is None else packing.unordered(np, first_grad),
        "Weight@GRAD": GruWeights.join(np, gates_grad, candidate_grad),
        "Bias@GRAD": grads.sum(axis=0)[None],
    }


def sizes(packing: Packing, size: int, ranks: int, origin_mode: bool, gate: str, candidate: str) -> dict[int, int]:
    """The numbers of a step (src/gru.c)."""
    own = {1: size, 2: ranks, 3: int(origin_mode), 4: ACTIVATIONS[gate], 5: ACTIVATIONS[candidate]}
    return packed_sizes(packing) | own
