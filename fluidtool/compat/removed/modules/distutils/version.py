"""`distutils.version`: versions that compare by their numbers, and by the words between them."""

from __future__ import annotations

import re
from functools import total_ordering


@total_ordering
class LooseVersion:
    """A version of any form."""

    def __init__(self, vstring: str = "") -> None:
        self.vstring = vstring
        parts = re.findall(r"\d+|[a-z]+", vstring)
        self.version = [int(part) if part.isdigit() else part for part in parts]

    def __str__(self) -> str:
        return self.vstring

    def __repr__(self) -> str:
        return f"{type(self).__name__} ('{self.vstring}')"

    def __eq__(self, other: object) -> bool:
        return self.version == _version(other)

    def __lt__(self, other: object) -> bool:
        return self.version < _version(other)

    def __hash__(self) -> int:
        return hash(tuple(self.version))


class StrictVersion(LooseVersion):
    """A version of numbers."""


def _version(other: object) -> list[int | str]:
    return other.version if isinstance(other, LooseVersion) else LooseVersion(str(other)).version
