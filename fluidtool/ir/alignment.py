"""`align(left, right)`: which item of one sequence is which item of another, in order, by the likeness of pairs.

The matching has the largest sum of weights that keeps the order of both sequences (longest common subsequence, with
weights). It is symmetric: exchanging the two sequences exchanges the two positions of every pair and changes nothing else.

The table that this takes is as large as the product of the lengths. Sequences for which it would be too large are cut where
both have a key that occurs once in each of them, and, where there is none, into parts of a length.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

import numpy as np

Key = tuple[str, tuple[str, ...]]  # what an item is, and its name: the type of an operator, what it writes
Pair = tuple[int | None, int | None]

SAME, ALIKE = 3, 1  # one pair of the same key outweighs two pairs of the same kind
TABLE = 1 << 24  # the largest table
PART = 1 << 20  # the table of a part where there is nothing to cut at
_TAKE, _LEFT, _RIGHT = 0, 1, 2


def align(left: Sequence[Key], right: Sequence[Key]) -> list[Pair]:
    """Pairs of positions in order; None where the other side has no counterpart.

    Items of the same key go together first, then those of the same kind under another name.
    """
    if list(right) < list(left):  # of several matchings that are as good, take the same one from both sides
        return [(mine, other) for other, mine in align(right, left)]
    head = 0
    while head < min(len(left), len(right)) and left[head] == right[head]:
        head += 1
    tail = 0
    while tail < min(len(left), len(right)) - head and left[-1 - tail] == right[-1 - tail]:
        tail += 1
    middle = _align(left[head : len(left) - tail], right[head : len(right) - tail])
    shifted = _shifted(middle, head, head)
    ends = [(len(left) - k, len(right) - k) for k in range(tail, 0, -1)]
    return [*((k, k) for k in range(head)), *shifted, *ends]


def _align(left: Sequence[Key], right: Sequence[Key]) -> list[Pair]:
    """With one table, or part by part."""
    if len(left) * len(right) <= TABLE:
        return _by_table(left, right)
    found: list[Pair] = []
    row = column = 0
    for i, j in _cuts(left, right):
        found += _shifted(_align(left[row:i], right[column:j]), row, column)
        row, column = i, j
    return found + _shifted(_align(left[row:], right[column:]), row, column)


def _shifted(pairs: Sequence[Pair], row: int, column: int) -> list[Pair]:
    return [(None if i is None else i + row, None if j is None else j + column) for i, j in pairs]


def _cuts(left: Sequence[Key], right: Sequence[Key]) -> list[tuple[int, int]]:
    """Pairs of positions in order at which both sequences may be cut."""
    places = {key: position for position, key in enumerate(right)}
    counts, others = Counter(left), Counter(right)
    once = [(i, places[key]) for i, key in enumerate(left) if counts[key] == 1 and others[key] == 1]
    found = _rising(once)
    if found:
        return sorted({*found, *((i + 1, j + 1) for i, j in found)})
    parts = int((len(left) * len(right) / PART) ** 0.5) + 1
    return [(len(left) * part // parts, len(right) * part // parts) for part in range(1, parts)]


def _rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The most of these pairs, which are in order on the left, that are in order on the right as well."""
    ends: list[int] = []  # of the rising rows of each length the least end
    last: list[int] = []  # and the pair that it belongs to
    before: list[int] = []
    for number, (_, j) in enumerate(pairs):
        length = bisect_left(ends, j)
        ends[length : length + 1] = [j]
        last[length : length + 1] = [number]
        before.append(last[length - 1] if length else -1)
    found, number = [], last[-1] if last else -1
    while number >= 0:
        found.append(pairs[number])
        number = before[number]
    return found[::-1]


def _by_table(left: Sequence[Key], right: Sequence[Key]) -> list[Pair]:
    """One row of the table at a time: an item without counterpart costs nothing, so a row is a running maximum."""
    rows, columns = len(left), len(right)
    number_of_kind = {kind: number for number, kind in enumerate(dict.fromkeys(kind for kind, _ in right))}
    number_of_key = {key: number for number, key in enumerate(dict.fromkeys(right))}
    kinds = np.array([number_of_kind[kind] for kind, _ in right], dtype=np.int64)
    keys = np.array([number_of_key[key] for key in right], dtype=np.int64)
    choice = np.full((rows, columns), _LEFT, dtype=np.int8)
    best = np.zeros(columns + 1, dtype=np.int32)
    for row, key in enumerate(left):
        weight = np.where(kinds == number_of_kind.get(key[0], -1), ALIKE, 0)
        weight[keys == number_of_key.get(key, -1)] = SAME
        taken = np.where(weight > 0, best[:-1] + weight, -1)
        above = best[1:]
        new = np.maximum.accumulate(np.maximum(taken, above))
        choice[row, new > above] = _RIGHT
        choice[row, new == taken] = _TAKE
        best[1:] = new
    return _walk(choice, rows, columns)


def _walk(choice: np.ndarray[tuple[int, ...], np.dtype[np.int8]], rows: int, columns: int) -> list[Pair]:
    """From the last pair back to the first."""
    pairs: list[Pair] = []
    row, column = rows - 1, columns - 1
    while row >= 0 or column >= 0:
        step = _LEFT if column < 0 else _RIGHT if row < 0 else int(choice[row, column])
        pairs.append((row if step != _RIGHT else None, column if step != _LEFT else None))
        row, column = row - (step != _RIGHT), column - (step != _LEFT)
    return pairs[::-1]
