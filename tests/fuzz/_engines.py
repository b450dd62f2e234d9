"""A case on an engine, and what came of it; every variant of the native one, with its thresholds off."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from fluidtool.errors import FluidError
from fluidtool.runtime import Executor, partition
from fluidtool.runtime.engines.native.kernels import convolution, normalization, products, transposed
from fluidtool.runtime.engines.native.library import INSTRUCTIONS, absence, attempt, library, usable_instructions
from fluidtool.runtime.engines.native.lowering import builder
from fluidtool.runtime.graph.importers import IMPORTERS
from tests.fuzz._networks import Case

LIMITS = (
    (partition, "WORTH", frozenset(IMPORTERS)), (builder, "SMALL", 0), (convolution, "pays", lambda *_: True),
    (convolution, "GRADIENT_WORTH", 0), (convolution, "LAST_WORTH", 0), (convolution, "CHANNELS", 1),
    (convolution, "GRADIENT_FILTERS", 1 << 30), (convolution, "FILTERS", 1 << 30),
    (transposed, "WORTH", 0), (transposed, "CHANNELS", 1), (products, "LEAST_SIZE", 0), (normalization, "PLANE", 1),
)  # fmt: skip
"""Where the native engine leaves small work to numpy: here it does not."""


@dataclass
class Outcome:
    """What came of a run: its values, a refusal (a FluidError), or a fault (any other exception)."""

    values: list[Any] | None = None
    refusal: str = ""
    fault: str = ""


@contextmanager
def eager() -> Iterator[None]:
    """The native engine takes whatever it can, however small."""
    before = [getattr(module, name) for module, name, _ in LIMITS]
    for module, name, value in LIMITS:
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name, _), value in zip(LIMITS, before, strict=True):
            setattr(module, name, value)


def variants() -> tuple[str, ...]:
    """The instructions that this build has for this machine, or the ones that the environment names."""
    found = library()
    if found is None:
        return ()
    return (found.instructions,) if os.environ.get(INSTRUCTIONS) else tuple(usable_instructions(found.handle))


@contextmanager
def as_it_was() -> Iterator[None]:
    """Afterwards the native engine uses the instructions that it used before."""
    before = os.environ.get(INSTRUCTIONS)
    try:
        yield
    finally:
        os.environ.pop(INSTRUCTIONS, None)
        if before is not None:
            os.environ[INSTRUCTIONS] = before
        attempt.cache_clear()


def use(instructions: str) -> bool:
    """Let the native engine use these instructions; False where they are not to be had."""
    os.environ[INSTRUCTIONS] = instructions
    attempt.cache_clear()
    return not absence()


def run(case: Case, engine: str, precision: str = "float32", times: int = 1) -> Outcome:
    """Run a case on an engine, with parameters of its own."""
    scope = case.scope()
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            executor = Executor(engine=engine, precision=precision)
            for _ in range(times):
                values = executor.run(case.program, dict(case.feeds), list(case.fetches), scope)
    except FluidError as error:
        return Outcome(refusal=f"{type(error).__name__}: {error}")
    except MemoryError:
        return Outcome(refusal="MemoryError")
    except Exception as error:
        return Outcome(fault=f"{type(error).__name__}: {error}")
    return Outcome(values)


def threads() -> int:
    """How many threads the native engine has."""
    found = library()
    return 0 if found is None else found.threads
