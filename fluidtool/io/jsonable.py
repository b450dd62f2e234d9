"""Values as JSON has them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def jsonable(value: Any) -> Any:
    """The value in terms of JSON: arrays as nested lists, NaN and infinities as 'NaN', 'Infinity', '-Infinity'."""
    if isinstance(value, Mapping):
        return {_unicode(str(name)): jsonable(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [jsonable(item) for item in value]
    if hasattr(value, "tolist"):
        return jsonable(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, complex):
        return [jsonable(value.real), jsonable(value.imag)]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, str):
        return _unicode(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value if not isinstance(value, int) or isinstance(value, bool) else int(value)
    return _unicode(str(value))


def _unicode(text: str) -> str:
    r"""The text with bytes that are no UTF-8 (lone surrogates, as programs and file names have them) as `\xff`."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
