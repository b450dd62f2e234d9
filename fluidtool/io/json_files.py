"""Small files of text and JSON beside models and checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fluidtool.errors import UnreadableError
from fluidtool.tensor.files import read_file

LARGEST = 64 << 20  # bytes


def read_text(path: Path) -> str:
    """The text of a file in UTF-8; raises UnreadableError."""
    try:
        return read_file(path, LARGEST).decode()
    except UnicodeDecodeError as error:
        raise UnreadableError(f"cannot read {path}: it is not UTF-8 text ({error})") from error


def read_json(path: Path) -> Any:
    """The value of a JSON file; raises UnreadableError."""
    try:
        return json.loads(read_text(path))
    except UnreadableError:
        raise
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"cannot read {path} as JSON: {error}") from error


def read_json_object(path: Path) -> dict[str, Any]:
    """The object of a JSON file; raises UnreadableError for any other value too."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise UnreadableError(f"{path} must contain a JSON object, found {type(value).__name__}")
    return value
