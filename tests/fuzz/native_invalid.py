"""Spoiled programs: whatever numpy's bodies refuse, no variant of the native engine may compute; nothing crashes.

Under AddressSanitizer: `python -m tests.runtime.native.sanitize address tests.fuzz native_invalid --minutes 1`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from tests.fuzz._engines import Outcome, eager, run, use, variants
from tests.fuzz._networks import Case, network, packed, packed_case, quantized_network, recipes, spoil
from tests.fuzz._processes import in_processes
from tests.fuzz.campaign import Budget, Finding


def search(budget: Budget) -> Iterator[Finding]:
    """Spoil networks of native operators and packed cases of native bodies."""
    there = variants()
    recipes(), packed("body")  # read once, before any fork
    budget.started = time.monotonic()

    def try_case(seed: int) -> str:
        rng = random.Random(seed)
        case = spoiled(rng)
        variant = rng.choice(there)
        use(variant)
        precision = "bf16" if rng.random() < 0.1 else "float32"
        with eager():
            found = judged(run(case, "numpy", times=2), run(case, "native", precision, times=2), case.is_exact)
        return found and f"{variant} {precision}: {found} [{'; '.join(case.told)}]"

    yield from in_processes(budget.seeds(), try_case)


def spoiled(rng: random.Random) -> Case:
    """A network, one of 8 bits, or a packed case, spoiled."""
    drawn = rng.random()
    case = network(rng) if drawn < 0.6 else quantized_network(rng) if drawn < 0.75 else packed_case(rng)
    spoil(case, rng)
    return case


def judged(reference: Outcome, native: Outcome, alike: bool = True) -> str:
    """What is wrong with the native engine's outcome, beside numpy's; `alike`: shapes and LoDs are not up to rounding."""
    if native.fault:
        return f"native fails: {native.fault}"
    if reference.fault:
        return f"numpy fails: {reference.fault}"
    if native.values is None:
        return "" if reference.values is None else f"numpy runs it, native refuses: {native.refusal}"
    if reference.values is None:
        return f"native runs it, numpy refuses: {reference.refusal}"
    return forms(reference.values, native.values) if alike else ""


def forms(reference: list[object], native: list[object]) -> str:
    """Where shapes, data types or LoDs differ."""
    for number, pair in enumerate(zip(reference, native, strict=True)):
        a, b = (form(value) for value in pair)
        if a != b:
            return f"result {number} is {b}, numpy's {a}"
    return ""


def form(value: object) -> str:
    """Shape, data type and LoD of a tensor; the kind of everything else."""
    array = getattr(value, "array", None)
    if array is None:
        return type(value).__name__
    return f"{array.dtype} {list(array.shape)} {getattr(value, 'offsets', [])}"


def case_of(seed: int) -> Case:
    """The case of a seed, for a closer look at a finding."""
    return spoiled(random.Random(seed))
