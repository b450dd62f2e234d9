"""The style of drawings, and the page with its script: files as they are read by a browser."""

from __future__ import annotations

from importlib.resources import files


def asset(name: str) -> str:
    """The text of one of these files."""
    return files(__name__).joinpath(name).read_text("utf-8")
