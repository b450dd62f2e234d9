"""Valid programs: odd feeds, other batches and several threads give what numpy gives; a mismatch is judged by float64."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

import numpy as np

from fluidtool.tensor import LoDTensor
from tests.fuzz._engines import Outcome, eager, run, use, variants
from tests.fuzz._networks import NUMBERS, Case, network, recipes
from tests.fuzz._processes import in_processes
from tests.fuzz.campaign import Budget, Finding
from tests.fuzz.native_invalid import judged

TOLERANCE = 2e-4  # of the largest number, for float32
OTHERS = ("onnxruntime", "openvino")  # that run a case in SOME of all, where they are installed
SOME = 0.05
LEEWAY = 4  # times as far from float64's numbers as numpy's float32


def search(budget: Budget) -> Iterator[Finding]:
    """Run unspoiled networks with feeds that lie in memory in odd ways, and hold odd numbers."""
    there, there_too = variants(), [name for name in OTHERS if find_spec(name)]
    recipes()
    budget.started = time.monotonic()

    def try_case(seed: int) -> str:
        rng = random.Random(seed)
        case = network(rng)
        odd = rng.random() < 0.2
        if rng.random() < 0.3:
            resize(case, rng.choice((0, 1, 2, 3, 5)))
        for name in case.feeds:
            case.feeds[name] = changed(case, case.feeds[name], rng, odd)
        variant = rng.choice(there)
        use(variant)
        found = compared(case, rng.random() < 0.1, odd)
        if not found and there_too and rng.random() < SOME:
            variant = rng.choice(there_too)
            reference = run(case, "numpy")
            found = compared_with(reference, [run(case, variant)], case, odd or not finite(reference))
        return found and f"{variant}: {found} [{'; '.join(case.told)}]"

    yield from in_processes(budget.seeds(), try_case)


def resize(case: Case, rows: int) -> None:
    """Another batch: so many rows in every feed without LoD that has as many as the first of them."""
    feeds = {name: value for name, value in case.feeds.items() if not value.lod() and value.numpy().ndim}
    if not feeds or len(feeds) < len(case.feeds):
        return
    usual = len(next(iter(feeds.values())).numpy())
    for name, value in feeds.items():
        if len(value.numpy()) == usual and usual:
            case.feeds[name] = LoDTensor(np.take(value.numpy(), np.arange(rows) % usual, axis=0))
    case.told.append(f"{rows} rows")


def changed(case: Case, value: LoDTensor, rng: random.Random, odd: bool) -> LoDTensor:
    """The same feed laid out in another way, of another batch, or with odd numbers."""
    array, lod = value.numpy(), value.lod()
    if odd and array.dtype == np.float32 and array.size:
        array = array.copy()
        for _ in range(rng.randint(1, 3)):
            array.reshape(-1)[rng.randrange(array.size)] = rng.choice(NUMBERS)
        case.told.append("odd numbers")
    found = LoDTensor(rng.choice(LAYOUTS)(array))
    found.set_lod(lod)
    return found


def gapped(array: Any) -> Any:
    """Every other number of a larger array."""
    wide = np.repeat(array, 2, axis=-1) if array.ndim else array
    return wide[..., ::2] if array.ndim else wide


def locked(array: Any) -> Any:
    """Read-only."""
    found = array.copy()
    found.flags.writeable = False
    return found


def turned(array: Any) -> Any:
    """Walked through backwards."""
    return np.ascontiguousarray(array[::-1])[::-1] if array.ndim else array


LAYOUTS = (np.ascontiguousarray, np.asfortranarray, gapped, locked, turned)


def compared(case: Case, several: bool, odd: bool) -> str:
    """What is wrong with native results, beside numpy's in float32 and in float64."""
    reference = run(case, "numpy")
    with eager():
        if several:
            with ThreadPoolExecutor(4) as pool:
                outcomes = list(pool.map(lambda _: run(case, "native", times=2), range(4)))
        else:
            outcomes = [run(case, "native", times=2)]
    return compared_with(reference, outcomes, case, odd)


def compared_with(reference: Outcome, outcomes: list[Outcome], case: Case, odd: bool) -> str:
    """What is wrong with the outcomes of an engine, beside numpy's."""
    for native in outcomes:
        found = judged(reference, native, alike=not odd)
        if found or reference.values is None or native.values is None:
            return found
        for number, (a, b) in enumerate(zip(reference.values, native.values, strict=True)):
            if a.array is None or b.array is None:  # dimensions without memory
                continue
            found = distance(a.array, b.array, lambda n=number: in_double(case, n), odd)
            if found:
                return f"result {number}: {found}"
    return ""


def finite(outcome: Outcome) -> bool:
    """Whether all results are numbers: what becomes of others is for each library to say."""
    arrays = [value.array for value in outcome.values or () if isinstance(value, LoDTensor) and value.array is not None]
    return all(np.isfinite(array).all() for array in arrays if array.dtype.kind == "f")


def in_double(case: Case, number: int) -> Any:
    """A result in float64, by numpy."""
    wide = Case(case.program, *(widened(values) for values in (case.feeds, case.parameters)), case.fetches)
    outcome = run(wide, "numpy")
    return None if outcome.values is None else outcome.values[number].array


def widened(values: dict[str, Any]) -> dict[str, Any]:
    """Every float32 tensor as float64."""
    found = {}
    for name, value in values.items():
        if value.array is not None and value.array.dtype == np.float32:
            lod, value = value.lod(), LoDTensor(value.array.astype(np.float64))
            value.set_lod(lod)
        found[name] = value
    return found


def distance(reference: Any, native: Any, double: Any, odd: bool) -> str:
    """Where numbers are too far apart; those that are no numbers must be at the same places."""
    if reference.dtype.kind != "f" or odd:
        same = np.array_equal(reference, native) or odd
        return "" if same else "other integers"
    if not np.array_equal(np.isfinite(reference), np.isfinite(native)):
        return "NaN or infinity in other places"
    here = np.isfinite(reference)
    far = np.abs(np.where(here, reference, 0).astype(np.float64) - np.where(here, native, 0))
    largest = max(float(np.abs(np.where(here, reference, 0)).max(initial=0)), 1e-6)
    if float(far.max(initial=0)) <= TOLERANCE * largest:
        return ""
    exact = double()
    if exact is None or exact.shape != native.shape:
        return f"differs by {float(far.max()):.3g} of {largest:.3g}"
    own, other = (float(np.abs(np.where(here, a - exact, 0)).max(initial=0)) for a in (native, reference))
    return "" if own <= LEEWAY * other + TOLERANCE * largest else f"is {own:.3g} from float64, numpy {other:.3g}"
