"""lstm and lstm_grad: every sequence runs through all steps on one thread, gates in one pass after the product."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.ops.rnn.lstm_layer import LANES, check_gate_shapes, check_initial, check_pair
from fluidtool.ops.rnn.packing import Packing, pack_sequences
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.kernels.direct import (
    Array,
    are_floats,
    have_shape,
    in_rows,
    pack_matrix,
    run_call,
)
from fluidtool.runtime.engines.native.kernels.products import is_worth_it, matrices, product
from fluidtool.runtime.engines.native.library import Library

ACTIVATIONS = {
    "identity": abi.ActivationKind.NONE,
    "relu": abi.ActivationKind.RELU,
    "sigmoid": abi.ActivationKind.SIGMOID,
    "tanh": abi.ActivationKind.TANH,
}
NEAR = 1 << 19  # bytes of weights that stay in a processor's cache
LEAST_DEALT, MOST_DEALT = 4, 32  # sequences of a task: more share what is read of the weights, fewer stay in the cache


def lstm(
    library: Library,
    ctx: OpContext,
    Input: Any,
    H0: Any,
    C0: Any,
    Weight: Any,
    Bias: Any,
    *,
    use_peepholes: bool,
    is_reverse: bool,
    gate_activation: str,
    cell_activation: str,
    candidate_activation: str,
) -> Any:
    """fluidtool.ops.rnn.lstm, to the rounding of float32."""
    names = (gate_activation, cell_activation, candidate_activation)
    if not are_floats(Input, H0, C0, Weight, Bias) or not set(names) <= ACTIVATIONS.keys():
        return NotImplemented
    size = check_gate_shapes(ctx, Input, Weight, Bias, use_peepholes)
    packing = pack_sequences(ctx, "Input", len(Input), is_reverse)
    check_pair(ctx, H0, C0)
    check_initial(ctx, len(packing.order), "H0", H0, size)
    check_initial(ctx, len(packing.order), "C0", C0, size)
    if not covers(packing, len(Input)):
        return NotImplemented
    hidden, cell, activated = (np.empty((len(Input), size), np.float32) for _ in range(3))
    gates = np.empty_like(Input, order="C")
    ranks, tasks = deal(library, packing, size)
    arguments = abi.Lstm(
        source=in_rows(Input), weights=pack_matrix(library, in_rows(Weight)), bias=in_rows(Bias),
        initial_hidden=in_rows(packing.ordered(H0)), initial_cell=in_rows(packing.ordered(C0)), hidden=hidden, cell=cell,
        gates=gates, activated=activated, scratch=np.empty(6 * size * ranks * tasks, np.float32), size=size,
        task_sequences=ranks, peepholes=int(use_peepholes), **activations(names), **packed_sizes(packing),
        **packed_rows(packing),
    )  # fmt: skip
    run_call(library, arguments, tasks)
    ctx.set_lod("BatchGate", packing.lod())
    return {"Hidden": hidden, "Cell": cell, "BatchGate": gates, "BatchCellPreAct": activated}


def lstm_gradient(
    library: Library,
    ctx: OpContext,
    Input: Any,
    H0: Any,
    C0: Any,
    Weight: Any,
    Bias: Any,
    Hidden: Any,
    Cell: Any,
    BatchGate: Any,
    BatchCellPreAct: Any,
    Hidden_grad: Any,
    *,
    use_peepholes: bool,
    is_reverse: bool,
    gate_activation: str,
    cell_activation: str,
    candidate_activation: str,
) -> Any:
    """The gradient of fluidtool.ops.rnn.lstm, to the rounding of float32, complete even where Paddle's omits a part."""
    names = (gate_activation, cell_activation, candidate_activation)
    frames, gates = (Hidden, Cell, BatchCellPreAct, Hidden_grad), (Input, BatchGate)
    if not are_floats(*frames, *gates, H0, C0, Weight, Bias) or not set(names) <= ACTIVATIONS.keys():
        return NotImplemented
    size = check_gate_shapes(ctx, Input, Weight, Bias, use_peepholes)
    packing = pack_sequences(ctx, "Input", len(Input), is_reverse)
    rows, sequences = len(Input), len(packing.order)
    fits = have_shape((rows, size), *frames) and have_shape(Input.shape, *gates) and covers(packing, rows)
    if not fits or not have_shape((sequences, size), H0, C0):
        return NotImplemented
    input_grad, before = np.empty((rows, 4 * size), np.float32), np.empty((rows, size), np.float32)
    cell_before = np.empty((rows, size), np.float32) if use_peepholes else None
    h0_grad, c0_grad = (None if initial is None else np.zeros_like(initial, order="C") for initial in (H0, C0))
    ranks, tasks = deal(library, packing, size)
    arguments = abi.LstmGradient(
        hidden_grad=in_rows(Hidden_grad), weights=pack_matrix(library, in_rows(Weight), transposed=True),
        bias=in_rows(Bias), initial_hidden=in_rows(packing.ordered(H0)), initial_cell=in_rows(packing.ordered(C0)),
        hidden=in_rows(Hidden), cell=in_rows(Cell), gates=in_rows(BatchGate), activated=in_rows(BatchCellPreAct),
        scratch=np.empty(6 * size * ranks * tasks, np.float32), source_grad=input_grad, hidden_before=before,
        cell_before=cell_before, initial_hidden_grad=h0_grad, initial_cell_grad=c0_grad, size=size,
        task_sequences=ranks, peepholes=int(use_peepholes), only_later=int(size % LANES == 0), **activations(names),
        **packed_sizes(packing), **packed_rows(packing),
    )  # fmt: skip
    run_call(library, arguments, tasks)
    return {
        "Input@GRAD": input_grad,
        "H0@GRAD": None if h0_grad is None else packing.unordered(np, h0_grad),
        "C0@GRAD": None if c0_grad is None else packing.unordered(np, c0_grad),
        "Weight@GRAD": weight_gradient(library, before, input_grad),
        "Bias@GRAD": bias_gradient(input_grad, cell_before, Cell),
    }


def weight_gradient(library: Library, before: Array, grads: Array) -> Array:
    """[size, 4 * size], with the threads of all other kernels where it is worth a call."""
    (rows, size), columns = before.shape, grads.shape[1]
    if not is_worth_it(size, rows, columns):
        found: Array = before.T @ grads
        return found
    return product(library, matrices(before, True), matrices(grads), (size, columns))


def bias_gradient(grads: Any, cell_before: Any, cell: Any) -> Any:
    """[1, 4 * size]; if the previous cells are given, [1, 7 * size], ending with the peepholes' gradients."""
    sums = grads.sum(axis=0)
    if cell_before is None:
        return sums[None]
    size = cell.shape[1]
    seen = zip((cell_before, cell_before, cell), range(size, 4 * size, size), strict=True)
    return np.concatenate([sums, *((grads[:, at : at + size] * state).sum(axis=0) for state, at in seen)])[None]


def covers(packing: Packing, rows: int) -> bool:
    """Whether there are rows, and each belongs to exactly one sequence."""
    return 0 < rows == packing.starts[-1] and int(packing.rows.min()) == 0 and int(packing.rows.max()) == rows - 1


def deal(library: Library, packing: Packing, size: int) -> tuple[int, int]:
    """(sequences per task, tasks) where the sequences are dealt out one by one: as many tasks for every thread."""
    most = MOST_DEALT if 16 * size * size <= NEAR else packing.first
    wanted = library.threads * -(-packing.first // (library.threads * most))
    tasks = min(wanted, -(-packing.first // LEAST_DEALT))
    return -(-packing.first // tasks), tasks


def cut(library: Library, packing: Packing, size: int) -> tuple[int, int]:
    """(sequences per task, tasks): few sequences, more if the weights are not in a near cache."""
    ranks = 14 if library.width == 16 else 6
    if 16 * size * size > NEAR:
        ranks = max(ranks, -(-packing.first // library.threads))
    return ranks, -(-packing.first // ranks)


def activations(names: tuple[str, str, str]) -> dict[str, int]:
    """The arguments for them."""
    gate, cell, candidate = (ACTIVATIONS[name] for name in names)
    return {"gate_activation": gate, "cell_activation": cell, "candidate_activation": candidate}


def packed_sizes(packing: Packing) -> dict[str, int]:
    """The arguments with the numbers of steps, rows and sequences."""
    return {"steps": len(packing.starts) - 1, "rows": len(packing.rows), "sequences": len(packing.order)}


def packed_rows(packing: Packing) -> dict[str, Any]:
    """The arguments with the rows of the steps."""
    rows = in_rows(packing.rows.astype(np.int64, copy=False))
    return {"starts": np.array(packing.starts, np.int64), "row_of": rows}
