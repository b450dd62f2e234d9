"""Random choice of some of many candidates."""

from __future__ import annotations

from typing import Any


def reservoir(np: Any, count: int, total: int, generator: Any, slots: int | None = None) -> Any:
    """Positions [min(count, total)] of the candidates 0 … total - 1 that are taken: the first `count`, of which random
    ones give way to later candidates. Without a generator the first stay. Only the first `slots` places may change.
    """
    positions = np.arange(total)
    if total <= count or generator is None:
        return positions[:count]
    later = np.arange(count, total)
    places = np.floor(generator.random(len(later), dtype="float32") * later).astype("int64")
    for step in np.flatnonzero(places < (count if slots is None else slots)):
        place, candidate = places[step], later[step]
        positions[[place, candidate]] = positions[[candidate, place]]
    return positions[:count]
