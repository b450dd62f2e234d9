"""How something stood in the file that it was read from."""

from __future__ import annotations

from fluidtool.records import dataclass


@dataclass(frozen=True, slots=True)
class Original:
    """What a file has (`given`) where this version would write the same fields in other bytes (`canonical`).

    `given` is written again as long as the fields are those that were read. What was built has no original (None).
    """

    canonical: bytes = b""
    given: bytes = b""


ORDINARY = Original()
