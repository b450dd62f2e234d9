"""Operators of the Paddle 1.8.5 table that fluidtool does not run, each with its reason."""

from __future__ import annotations

EXCLUDED: dict[str, str] = {}
