"""The sequences of CRF inputs: rows with a LoD, or padded [sequences, longest, ...] with an input Length."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.rnn.packing import Packing, pack_runs


def pack_tagged(ctx: OpContext, Emission: Any, Length: Any, lod_slot: str) -> Packing:
    """The packing of Emission [rows, tags] by the LoD of input `lod_slot`, or of [N, longest, tags] by Length [N].

    Raises OperatorError when the sequences do not cover Emission.
    """
    return pack_runs(ctx, *tagged_runs(ctx, Emission, Length, lod_slot))


def tagged_runs(ctx: OpContext, Emission: Any, Length: Any, lod_slot: str) -> tuple[Any, Any]:
    """The same sequences as first rows and lengths, both [sequences] int64 on the host."""
    np = ctx.np
    if Length is None:
        lod = ctx.lod(lod_slot)
        if not lod:
            raise ctx.error(f"input {lod_slot} needs a LoD (or pass the input Length); found none")
        bounds = np.asarray(lod[0], dtype=np.int64)
        if bounds[-1] != Emission.shape[0]:
            raise ctx.error(
                f"the LoD of input {lod_slot} ends at {bounds[-1]}, but Emission has {Emission.shape[0]} rows"
            )
        return bounds[:-1], np.diff(bounds)
    lengths = np.asarray(ctx.host(Length)).reshape(-1).astype(np.int64)
    sequences, longest = Emission.shape[:2]
    if len(lengths) != sequences:
        raise ctx.error(
            f"input Length must have one number per sequence of Emission ({sequences}), found {len(lengths)}"
        )
    fits = ((lengths >= 0) & (lengths <= longest)).all()
    if not fits:
        raise ctx.error(f"input Length must lie between 0 and {longest}, found {lengths.tolist()[:12]}")
    return np.arange(sequences) * longest, lengths


def check_crf_shapes(ctx: OpContext | InferContext, Emission: Any, Transition: Any, Length: Any) -> int:
    """The number of tags; raises OperatorError unless Transition is [tags + 2, tags] and Emission ends in tags."""
    emission, transition = tuple(Emission.shape), tuple(Transition.shape)
    rank = 2 if Length is None else 3
    if len(emission) != rank:
        raise ctx.error(
            f"input Emission must have rank {rank} {'without' if rank == 2 else 'with'} an input Length, found {emission}"
        )
    known = [size for size in (emission[-1], transition[-1] if transition else -1) if size >= 0]
    fits = len(transition) == 2 and len(set(known)) <= 1 and (-1 in transition or transition[0] == transition[1] + 2)
    if not fits:
        raise ctx.error(
            f"input Transition must be (tags + 2, tags) with the {emission[-1]} tags of Emission, found {transition}"
        )
    return int(emission[-1])
