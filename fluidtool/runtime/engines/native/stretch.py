"""A stretch: operators that run as one call into the library, compiled for the shapes of what they are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fluidtool.errors import OperatorError
from fluidtool.ir import Operator
from fluidtool.runtime.engines.native.arena import lay_out
from fluidtool.runtime.engines.native.fusing import fuse
from fluidtool.runtime.engines.native.graph import NotNativeError, Value
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.engines.native.lowering import lower
from fluidtool.runtime.engines.native.reading import read_graph
from fluidtool.runtime.engines.native.steps import Buffer, Draft, aligned_floats, finish

Mention = tuple[int, int, int]  # step, pointer, offset in bytes


@dataclass(slots=True)
class Compiled:
    """Steps with addresses, the memory behind them, and what to patch before each run."""

    library: Library
    steps: NDArray[np.void]
    drafts: list[Draft]
    arena: NDArray[np.float32]
    keep: list[Any]
    inputs: list[tuple[str, list[Mention]]]
    outputs: list[tuple[str, tuple[int, ...], list[Mention]]]
    bounds: list[tuple[str, int]]
    lock: Lock

    def run(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Compute the outputs (fresh arrays) from the inputs, by name."""
        for name, rows in self.bounds:
            ids = given[name]
            if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= rows):
                raise OperatorError(
                    f"{name} holds an id of {int(ids.min())} to {int(ids.max())}, the table has {rows} rows"
                )
        results: dict[str, Any] = {}
        with self.lock:
            pointers = self.steps["p"]
            held = []
            for name, places in self.inputs:
                array = np.ascontiguousarray(given[name])
                held.append(array)
                for step, slot, offset in places:
                    pointers[step, slot] = array.ctypes.data + offset
            for name, shape, places in self.outputs:
                array = results[name] = np.empty(shape, np.float32)
                for step, slot, offset in places:
                    pointers[step, slot] = array.ctypes.data + offset
            self.library.run(self.steps)
        return results


def compile_stretch(
    ops: Sequence[tuple[Operator, dict[str, Any]]],
    given: Mapping[str, NDArray[Any]],
    constants: Mapping[str, NDArray[Any]],
    wanted: Sequence[str],
    library: Library,
) -> Compiled:
    """Compile operators for inputs of these shapes; raises NotNativeError where a kernel is missing."""
    values = {name: Value(name, tuple(array.shape), integer=array.dtype != np.float32) for name, array in given.items()}
    for name, array in (*given.items(), *constants.items()):
        if array.dtype not in (np.float32, np.int64) or array.size == 0:
            raise NotNativeError(f"{name} is {array.dtype} {array.shape}", reader=name)
    values |= {
        name: Value(name, tuple(array.shape), array, array.dtype != np.float32) for name, array in constants.items()
    }
    graph = read_graph(ops, values, wanted)
    bounds = [(n.inputs[0].name, n.facts["table"].shape[0]) for n in graph.nodes if n.kind == "gather"]
    if any(name not in given for name, _ in bounds):
        raise NotNativeError("ids are computed within the stretch")
    fuse(graph)
    drafts, in_buffers, out_buffers = lower(graph, library)
    offsets, size = lay_out(drafts)
    arena = aligned_floats(size)

    def address(buffer: Buffer) -> int:
        if buffer.role == "arena":
            return int(arena.ctypes.data) + 4 * offsets[buffer]
        return int(buffer.array.ctypes.data) if buffer.role == "constant" else 0

    steps = finish(drafts, address)
    keep = [buffer.array for draft in drafts for buffer in draft.buffers() if buffer.role == "constant"]
    ins = [(value.name, mentions(drafts, buffer)) for value, buffer in zip(graph.inputs, in_buffers, strict=True)]
    outs = [
        (name, value.shape, mentions(drafts, buffer))
        for name, value, buffer in zip(wanted, graph.outputs, out_buffers, strict=True)
    ]
    return Compiled(library, steps, drafts, arena, keep, ins, outs, bounds, Lock())


def mentions(drafts: Sequence[Draft], buffer: Buffer) -> list[Mention]:
    """Wherever a buffer is touched."""
    return [
        (number, slot, offset * 4)
        for number, draft in enumerate(drafts)
        for slot, (other, offset) in draft.pointers.items()
        if other is buffer
    ]
