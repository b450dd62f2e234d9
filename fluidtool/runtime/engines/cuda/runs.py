"""Kernels whose blocks have a sequence each: its rows lie between offsets, or are as many as a length in memory says."""

from __future__ import annotations

import numpy as np

from fluidtool.runtime.engines.cuda.lowering import Lowering
from fluidtool.runtime.engines.cuda.sources import Source
from fluidtool.runtime.graph.ir import Node
from fluidtool.runtime.graph.sequence_runs import Runs


def bounds(low: Lowering, src: Source, runs: Runs, lengths: str) -> tuple[str, str]:
    """Expressions for the first row of the sequence of a block, and for the number of its rows."""
    if not runs.is_padded:
        offsets = src.pointer(low.constant(np.asarray(runs.offsets, np.int64)))
        return f"(int){offsets}[sequence]", f"(int)({offsets}[sequence + 1] - {offsets}[sequence])"
    length = tag_of(low, src, runs, f"{lengths}[sequence]", runs.longest + 1)
    return f"sequence * {runs.longest if runs.step == 1 else 1}", length


def tag_of(low: Lowering, src: Source, runs: Runs, number: str, count: int) -> str:
    """A whole number of a sequence, which is below a count: where nobody has looked, one that is not is marked, and is 0."""
    return f"ft_row({number}, {count}, {src.writable(low.outside())})" if runs.is_marked else f"(int){number}"


def of_block(low: Lowering, node: Node) -> tuple[Source, list[str]]:
    """A kernel that knows `begin`, the first row of its sequence, and `count`, how many it has; the names of the node's inputs."""
    src = Source(low)
    places = [low.contiguous(value) for value in node.inputs]
    names = [src.pointer(place.buffer, place.offset) for place in places]
    begin, count = bounds(low, src, node.attrs["runs"], names[-1])
    src.lines += [
        "const int sequence = blockIdx.x, me = threadIdx.x;",
        f"const int begin = {begin}, count = {count};",
    ]
    return src, names


def beyond(runs: Runs, width: int, threads: int, value: str) -> list[str]:
    """Statements that give all rows of a padded sequence beyond its last one a value."""
    if not runs.is_padded:
        return []
    element = f"out[(begin + n * {runs.step}) * {width} + i]"
    loops = f"for (int n = count; n < {runs.longest}; n++) for (int i = me; i < {width}; i += {threads})"
    return [f"{loops} {element} = {value};"]
