"""crf_decoding: every sequence separately."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.ops.structured.sequences import check_crf_shapes, tagged_runs
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.kernels.direct import are_floats, in_rows, run_call, task_count
from fluidtool.runtime.engines.native.library import Library


def crf_decoding(library: Library, ctx: OpContext, Emission: Any, Transition: Any, Label: Any, Length: Any) -> Any:
    """fluidtool.ops.structured.crf_decoding without Label."""
    if not are_floats(Emission, Transition) or Label is not None:
        return NotImplemented
    tags = check_crf_shapes(ctx, Emission, Transition, Length)
    starts, lengths = tagged_runs(ctx, Emission, Length, "Emission")
    if not Emission.size or not lengths.size:
        return NotImplemented
    path = np.zeros(Emission.size // tags, np.int64)
    room = (int(lengths.max()) + 2) * (tags + library.width)
    tasks = max(1, min(len(lengths), task_count(library, tags * Emission.size)))
    runs = np.stack([starts, lengths], axis=1).astype(np.int64)
    arguments = abi.Viterbi(
        source=in_rows(Emission), transitions=in_rows(Transition), scratch=np.empty(tasks * room, np.float32), path=path,
        runs=runs, sequences=len(lengths), tags=tags, task_scratch=room, rows=len(path), longest=int(lengths.max()),
    )  # fmt: skip
    run_call(library, arguments, tasks)
    return path.reshape((Emission.shape[0], 1) if Length is None else Emission.shape[:2])
