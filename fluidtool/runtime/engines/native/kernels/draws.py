"""numpy's random numbers by several threads: the same ones, and the generator ends in the same state."""

from __future__ import annotations

from math import prod

import numpy as np

from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.kernels.direct import Array, run_call, task_count
from fluidtool.runtime.engines.native.library import Library

LEAST = 1 << 11  # numbers from which a call is quicker
WORD = (1 << 64) - 1


def random(library: Library, generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """generator.random(shape, float32), bit for bit."""
    bits, count = generator.bit_generator, prod(shape)
    if not isinstance(bits, np.random.PCG64) or count < LEAST or count % 2:
        return generator.random(shape, np.float32)
    with bits.lock:
        before = bits.state
        if not before["has_uint32"]:
            bits.advance(count // 2)
            after = bits.state
            bits.state = after | {"uinteger": folded(after["state"]["state"]) >> 32}  # as numpy leaves it
    if before["has_uint32"]:  # half a word comes first: no number is where the kernel would draw it
        return generator.random(shape, np.float32)
    state, increment = before["state"]["state"], before["state"]["inc"]
    words = np.array([state & WORD, state >> 64, increment & WORD, increment >> 64], np.uint64)
    out = np.empty(shape, np.float32)
    run_call(library, abi.Draw(generator=words, out=out, count=count), task_count(library, count))
    return out


def folded(state: int) -> int:
    """The word that PCG64 makes of a state."""
    word, turn = (state >> 64 ^ state) & WORD, state >> 122
    return (word >> turn | word << (64 - turn)) & WORD
