"""lstmp and lstmp_grad: as lstm, with a projection behind every step. Where something is clipped numpy computes."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.ops.rnn.lstm_layer import LANES, check_gate_shapes, check_initial, check_pair
from fluidtool.ops.rnn.lstmp import check_projection
from fluidtool.ops.rnn.packing import pack_sequences
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.kernels.direct import are_floats, have_shape, in_rows, pack_matrix, run_call
from fluidtool.runtime.engines.native.kernels.recurrent import (
    ACTIVATIONS,
    activations,
    bias_gradient,
    covers,
    cut,
    packed_rows,
    packed_sizes,
)
from fluidtool.runtime.engines.native.library import Library

Names = tuple[str, str, str]


def lstmp(
    library: Library,
    ctx: OpContext,
    Input: Any,
    H0: Any,
    C0: Any,
    Weight: Any,
    ProjWeight: Any,
    Bias: Any,
    *,
    use_peepholes: bool,
    is_reverse: bool,
    cell_clip: float,
    proj_clip: float,
    gate_activation: str,
    cell_activation: str,
    candidate_activation: str,
    proj_activation: str,
) -> Any:
    """fluidtool.ops.rnn.lstmp, to the rounding of float32."""
    names = (gate_activation, cell_activation, candidate_activation)
    if not are_floats(Input, H0, C0, Weight, ProjWeight, Bias) or not known(
        names, proj_activation, cell_clip, proj_clip
    ):
        return NotImplemented
    size = check_gate_shapes(ctx, Input, Weight, Bias, use_peepholes, ProjWeight.shape[-1])
    check_projection(ctx, ProjWeight, size)
    packing = pack_sequences(ctx, "Input", len(Input), is_reverse)
    fed_back = ProjWeight.shape[1]
    check_pair(ctx, H0, C0)
    check_initial(ctx, len(packing.order), "H0", H0, fed_back)
    check_initial(ctx, len(packing.order), "C0", C0, size)
    if not covers(packing, len(Input)):
        return NotImplemented
    hidden, cell, activated = (np.empty((len(Input), size), np.float32) for _ in range(3))
    gates, out = np.empty_like(Input, order="C"), np.empty((len(Input), fed_back), np.float32)
    ranks, tasks = cut(library, packing, size)
    arguments = abi.ProjectedLstm(
        source=in_rows(Input), weights=pack_matrix(library, in_rows(Weight)),
        projection=pack_matrix(library, in_rows(ProjWeight)), bias=in_rows(Bias),
        initial_out=in_rows(packing.ordered(H0)), initial_cell=in_rows(packing.ordered(C0)), out=out, hidden=hidden, cell=cell,
        gates=gates, activated=activated, scratch=np.empty((size + fed_back) * ranks * tasks, np.float32), size=size,
        fed_back=fed_back, task_sequences=ranks, peepholes=int(use_peepholes), **activations(names),
        projection_activation=of_projection(proj_activation, cell_activation), **packed_sizes(packing), **packed_rows(packing),
    )  # fmt: skip
    run_call(library, arguments, tasks)
    ctx.set_lod("BatchGate", packing.lod())
    return {
        "Projection": out,
        "Cell": cell,
        "BatchGate": gates,
        "BatchCellPreAct": activated,
        "BatchHidden": hidden,
    }


def lstmp_gradient(
    library: Library,
    ctx: OpContext,
    H0: Any,
    C0: Any,
    Weight: Any,
    ProjWeight: Any,
    Bias: Any,
    Projection: Any,
    Cell: Any,
    BatchGate: Any,
    BatchCellPreAct: Any,
    BatchHidden: Any,
    Projection_grad: Any,
    *,
    use_peepholes: bool,
    is_reverse: bool,
    cell_clip: float,
    proj_clip: float,
    gate_activation: str,
    cell_activation: str,
    candidate_activation: str,
    proj_activation: str,
) -> Any:
    """The gradient of fluidtool.ops.rnn.lstmp, to the rounding of float32."""
    names = (gate_activation, cell_activation, candidate_activation)
    cells, outs = (Cell, BatchCellPreAct, BatchHidden), (Projection, Projection_grad)
    if not are_floats(*cells, *outs, BatchGate, H0, C0, Weight, ProjWeight, Bias):
        return NotImplemented
    rows, (size, fed_back) = len(Cell), ProjWeight.shape
    packing = pack_sequences(ctx, "Cell", rows, is_reverse)
    sequences = len(packing.order)
    fits = have_shape((rows, size), *cells) and have_shape((rows, fed_back), *outs)
    fits &= have_shape((rows, 4 * size), BatchGate) and have_shape((fed_back, 4 * size), Weight)
    fits &= have_shape((1, (7 if use_peepholes else 4) * size), Bias)
    fits &= have_shape((sequences, fed_back), H0) and have_shape((sequences, size), C0)
    if not (fits and covers(packing, rows) and known(names, proj_activation, cell_clip, proj_clip)):
        return NotImplemented
    input_grad, projected_grad = np.empty((rows, 4 * size), np.float32), np.empty((rows, fed_back), np.float32)
    before, cell_before = np.empty_like(projected_grad), np.empty((rows, size), np.float32) if use_peepholes else None
    h0_grad, c0_grad = (None if initial is None else np.zeros_like(initial, order="C") for initial in (H0, C0))
    ranks, tasks = cut(library, packing, size)
    arguments = abi.ProjectedLstmGradient(
        out_grad=in_rows(Projection_grad), weights=pack_matrix(library, in_rows(Weight), transposed=True),
        projection=pack_matrix(library, in_rows(ProjWeight), transposed=True), bias=in_rows(Bias),
        initial_out=in_rows(packing.ordered(H0)), initial_cell=in_rows(packing.ordered(C0)), out=in_rows(Projection),
        cell=in_rows(Cell), gates=in_rows(BatchGate), activated=in_rows(BatchCellPreAct),
        scratch=np.empty((6 * size + fed_back) * ranks * tasks, np.float32), source_grad=input_grad,
        projected_grad=projected_grad, out_before=before, cell_before=cell_before, initial_out_grad=h0_grad,
        initial_cell_grad=c0_grad, size=size, fed_back=fed_back, task_sequences=ranks, peepholes=int(use_peepholes),
        only_later=int(size % LANES == 0), **activations(names),
        projection_activation=of_projection(proj_activation, cell_activation), **packed_sizes(packing), **packed_rows(packing),
    )  # fmt: skip
    run_call(library, arguments, tasks)
    return {
        "Input@GRAD": input_grad,
        "H0@GRAD": None if h0_grad is None else packing.unordered(np, h0_grad),
        "C0@GRAD": None if c0_grad is None else packing.unordered(np, c0_grad),
        "Weight@GRAD": before.T @ input_grad,
        "ProjWeight@GRAD": BatchHidden.T @ projected_grad,
        "Bias@GRAD": bias_gradient(input_grad, cell_before, Cell),
    }


def known(names: Names, projection: str, cell_clip: float, proj_clip: float) -> bool:
    """Whether the kernels have all of this."""
    return {*names, projection} <= ACTIVATIONS.keys() and cell_clip <= 0 and proj_clip <= 0


def of_projection(projection: str, cell: str) -> int:
    """What follows the projection: the activation of the cell unless `projection` is the identity, as in Paddle."""
    return ACTIVATIONS["identity" if projection == "identity" else cell]
