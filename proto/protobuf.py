"""What fluidtool takes from the protobuf package, once it is known to be new enough.

An older one is refused in one sentence, before an import of ours fails in the middle of it.
"""

from __future__ import annotations

from importlib import import_module

from fluidtool.errors import DependencyError

OLDEST = (4, 25)  # as pyproject.toml says


def check_protobuf() -> None:
    """Raise DependencyError when protobuf is missing or older than fluidtool needs."""
    try:
        found = str(import_module("google.protobuf").__version__)
    except ImportError:
        found = ""
    if tuple(int(part) for part in found.split(".")[:2] if part.isdigit()) < OLDEST:
        needed = ".".join(map(str, OLDEST))
        raise DependencyError(
            f"fluidtool needs protobuf {needed} or later, found {found or 'none'}; "
            f"install it: python -m pip install 'protobuf>={needed}'"
        )


check_protobuf()

from google.protobuf import text_format  # noqa: E402 - after the check
from google.protobuf.message import DecodeError, Message  # noqa: E402
from google.protobuf.unknown_fields import UnknownFieldSet  # noqa: E402

__all__ = ["DecodeError", "Message", "UnknownFieldSet", "text_format"]
