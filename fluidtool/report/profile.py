"""The document of `profile`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict

from fluidtool.report.common import EngineUse, Times


class Bandwidth(TypedDict):
    """How fast memory is, for an amount that stays in some cache or in none."""

    bytes: Annotated[int, "the amount of memory that was touched"]
    bytes_per_second: Annotated[float, "how fast it was read and written"]


class Peak(TypedDict):
    """What the machine can do, as measured before and after."""

    by: Annotated[str, "what measured it"]
    flops_per_second: Annotated[float, "multiplications and additions"]
    bandwidth: Annotated[Sequence[Bandwidth], "the memory"]


class ProfiledItem(TypedDict):
    """An operator that ran by itself, or a kernel call of a region."""

    item: Annotated[int, "its number"]
    name: Annotated[str, "what it is"]
    kernel: Annotated[str, "its kernel"]
    engine: Annotated[str, "what computed it"]
    region: Annotated[int | None, "the region that it belongs to, counted from 1"]
    block: Annotated[int | None, "the block of its operator; of several operators, of the last; null for other work"]
    operator: Annotated[int | None, "the position of that operator in its block"]
    output: Annotated[str, "the variable that it computes"]
    shape: Annotated[Sequence[int], "the shape of the output"]
    times: Annotated[int, "how many times it ran in one run of the model"]
    seconds: Annotated[
        float, "the mean time of all of these in the middle half of the watched runs, without what ran within it"
    ]
    share: Annotated[float, "its share of seconds_added, 0 to 1"]
    multiply_adds: Annotated[int, "its multiply-adds"]
    bytes: Annotated[int, "what it read and wrote"]
    flops_per_second: Annotated[float | None, "its multiplications and additions per second"]
    bytes_per_second: Annotated[float | None, "what it read and wrote per second"]
    limit: Annotated[str | None, "what limits it: multiply-adds or memory"]
    of_peak: Annotated[float | None, "what share of the machine's peak it reached, 0 to 1"]


class MemoryPoint(TypedDict):
    """The memory during an item."""

    item: Annotated[int, "the number of the item"]
    seconds: Annotated[float, "the time since the run began"]
    alive_bytes: Annotated[int, "the activations that were alive"]


class ProfiledMemory(TypedDict):
    """The memory along a run; parameters do not count."""

    peak_bytes: Annotated[int, "the most bytes that were alive at once"]
    peak_item: Annotated[int | None, "the number of the item during which they were"]
    curve: Annotated[Sequence[MemoryPoint], "the items in order"]


class ProfileReport(TypedDict):
    """A profile of a model."""

    schema: Annotated[Literal["fluidtool.profile/1"], "the kind of this document"]
    engine: Annotated[EngineUse, "what computed"]
    seconds: Annotated[Times, "the time of a run"]
    seconds_watched: Annotated[Times, "the time of a run while each item is timed"]
    seconds_added: Annotated[
        float, "what the items and seconds_outside add up to: the mean of the middle half of these runs"
    ]
    seconds_outside: Annotated[float, "what passed outside all items"]
    peak: Annotated[Peak, "what the machine can do"]
    items: Annotated[Sequence[ProfiledItem], "operators and kernel calls, in the order of the run"]
    memory: Annotated[ProfiledMemory, "the memory along the run"]
