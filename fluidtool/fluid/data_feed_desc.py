"""DataFeedDesc: how the slots of text files feed a program, in the text form of protobuf (Paddle 1.8.5 data_feed.proto)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fluidtool.errors import UnreadableError, UsageError
from fluidtool.fluid.multi_slot import Slot

__all__ = ["DataFeedDesc"]

TOKEN = re.compile(r'\s*(?:#[^\n]*\n\s*)*([A-Za-z_][\w]*|"(?:[^"\\]|\\.)*"|[-+.\w]+|[{}:])')
Fields = list[tuple[str, Any]]


def feed_text(
    name: str, batch_size: int | None, slots: Sequence[Slot], pipe_command: str, used: Sequence[bool] | None = None
) -> str:
    """The text form; fields that were never set are left out."""
    lines = [f'name: "{name}"'] if name else []
    if batch_size is not None:
        lines.append(f"batch_size: {batch_size}")
    if slots:
        lines.append("multi_slot_desc {")
        for index, slot in enumerate(slots):
            lines += ["  slots {", f'    name: "{slot.name}"', f'    type: "{slot.type}"']
            lines += ["    is_dense: true"] * slot.dense + ["    is_used: true"] * (used is None or used[index])
            lines += [*(f"    shape: {size}" for size in slot.shape), "  }"]
        lines.append("}")
    command = pipe_command.replace("\\", "\\\\").replace('"', '\\"')
    return "\n".join([*lines, f'pipe_command: "{command}"']) + "\n"


class DataFeedDesc:
    """The description in a file, which can be changed: batch size, dense and used slots.

    Raises UnreadableError for a file that is none.
    """

    def __init__(self, proto_file: str) -> None:
        fields = dict(_parse(proto_file))
        self.name, self.pipe_command = str(fields.get("name", "")), str(fields.get("pipe_command", "cat"))
        self._batch_size: int | None = fields.get("batch_size")
        entries = [dict(_last(value)) for key, value in fields.get("multi_slot_desc", []) if key == "slots"]
        self._used = [entry.get("is_used") == "true" for entry in entries]
        self._slots = [
            Slot(
                str(entry.get("name", "")),
                str(entry.get("type", "")),
                entry.get("is_dense") == "true",
                tuple(entry.get("shape", ())),
            )
            for entry in entries
        ]

    def set_batch_size(self, batch_size: int) -> None:
        """How many samples make a batch."""
        self._batch_size = batch_size

    def set_dense_slots(self, dense_slots_name: Sequence[str]) -> None:
        """Make slots dense: each sample has the same count of numbers. Raises UsageError for an unknown slot."""
        for index in self._indexes(dense_slots_name, "set_dense_slots"):
            self._slots[index] = replace(self._slots[index], dense=True)

    def set_use_slots(self, use_slots_name: Sequence[str]) -> None:
        """Name the slots that are used. Raises UsageError for an unknown slot."""
        for index in self._indexes(use_slots_name, "set_use_slots"):
            self._used[index] = True

    def desc(self) -> str:
        """The description as text."""
        return feed_text(self.name, self._batch_size, self._slots, self.pipe_command, self._used)

    def _indexes(self, names: Sequence[str], method: str) -> list[int]:
        if self.name != "MultiSlotDataFeed":
            raise UsageError(
                f"Only MultiSlotDataFeed needs {method}, please check your datafeed.proto: found {self.name!r}"
            )
        known = {slot.name: index for index, slot in enumerate(self._slots)}
        unknown = [name for name in names if name not in known]
        if unknown:
            raise UsageError(f"{method}: there is no slot {unknown[0]!r}; the slots are {', '.join(known)}")
        return [known[name] for name in names]


def _last(fields: Fields) -> Fields:
    """The fields of a slot; `shape`, which may stand several times, is gathered."""
    return [*fields, ("shape", [value for key, value in fields if key == "shape"])]


def _parse(path: str) -> Fields:
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableError(f"cannot read {path}: {error}") from error
    words, position = [], 0
    while text[position:].strip():
        match = TOKEN.match(text, position)
        if match is None:
            raise UnreadableError(f"{path} is no DataFeedDesc: cannot read on at {text[position : position + 30]!r}")
        words.append(match[1])
        position = match.end()
    fields, rest = _fields(words, path)
    if rest:
        raise UnreadableError(f"{path} is no DataFeedDesc: a brace is closed that was never opened")
    return fields


def _fields(words: list[str], path: str) -> tuple[Fields, list[str]]:
    fields: Fields = []
    while words and words[0] != "}":
        name, words = words[0], words[1:]
        if words[:1] == ["{"] or words[:2] == [":", "{"]:
            inner, words = _fields(words[words.index("{") + 1 :], path)
            if not words:
                raise UnreadableError(f"{path} is no DataFeedDesc: {name} is never closed")
            fields.append((name, inner))
            words = words[1:]
        elif len(words) > 1 and words[0] == ":":
            fields.append((name, _scalar(words[1])))
            words = words[2:]
        else:
            raise UnreadableError(f"{path} is no DataFeedDesc: {name!r} has no value; expected 'name: value'")
    return fields, words


def _scalar(word: str) -> Any:
    if word.startswith('"'):
        return word[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    return int(word) if re.fullmatch(r"-?\d+", word) else word
