"""Where in a script an operator was written: the call stack that programs keep in `op_callstack`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fluidtool.ir.operator import Operator
from fluidtool.ir.roles import CALLSTACK_ATTR

_FRAME = re.compile(r'\s*File "(.+)", line (\d+)')
_LIBRARIES = ("/paddle/", "/fluidtool/", "/contextlib.py")  # the last one ends a `with` of a script


def written_in(op: Operator) -> str:
    """'train.py, line 12: y = fluid.layers.fc(x, 10)', the innermost line outside Paddle and fluidtool; '' if unknown."""
    for file, line, code in _frames(op):
        if not any(library in file for library in _LIBRARIES):
            return f"{file}, line {line}: {code}" if code else f"{file}, line {line}"
    return ""


def _frames(op: Operator) -> Iterator[tuple[str, str, str]]:
    """(file, line, code), the innermost first; Paddle writes a frame as one text, we as two."""
    lines = [line for text in op.get_attr(CALLSTACK_ATTR, []) for line in text.splitlines()]
    for line, after in zip(lines, [*lines[1:], ""], strict=False):
        found = _FRAME.match(line)
        if found:
            yield found[1], found[2], "" if _FRAME.match(after) else after.strip()
