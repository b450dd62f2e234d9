"""The order of collectives, compared between ranks before the first step: ranks that disagree would wait forever."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from fluidtool.distribute.collective.communicator import Communicator
from fluidtool.errors import CollectiveError


def check_order(communicator: Communicator, described: Sequence[str]) -> None:
    """Raise CollectiveError unless all ranks give the same descriptions: names the first difference and the ranks.

    Digests go round first; the descriptions follow only where they differ.
    """
    text = "\n".join(described).encode()
    digests = communicator.exchange(hashlib.sha256(text).digest())
    if len(set(digests)) > 1:
        compare([found.decode().split("\n") for found in communicator.exchange(text)])


def compare(sequences: Sequence[Sequence[str]]) -> None:
    """Raise CollectiveError where the sequences of the ranks differ: at the first place, with who wants what."""
    for place in range(max(map(len, sequences), default=0)):
        wanted: dict[str, list[int]] = {}
        for rank, sequence in enumerate(sequences):
            found = sequence[place] if place < len(sequence) else ""
            wanted.setdefault(found or "nothing more", []).append(rank)
        if len(wanted) > 1:
            listed = "; ".join(f"{_ranks(ranks)}: {found}" for found, ranks in wanted.items())
            raise CollectiveError(
                f"the ranks would wait for each other forever: their collective number {place} differs ({listed}); "
                "give every rank the same program, transpiled for its own rank"
            )


def _ranks(ranks: list[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))
