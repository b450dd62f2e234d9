"""Nested structures of variables: lists, tuples, named tuples and dicts as one flat list and back.

Dicts are in the order of their sorted keys; strings are leaves (Paddle 1.8.5 layers/utils.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.ir import Variable


def is_sequence(value: Any) -> bool:
    """Whether a value has parts: a list, a tuple or a dict, not a string."""
    return isinstance(value, (dict, Sequence)) and not isinstance(value, (str, bytes))


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from (value[key] for key in sorted(value))
    else:
        yield from value


def convert_to_list(value: Any, n: int, name: str, dtype: type = int) -> list[Any]:
    """n values of a type, from one value or n values; raises UsageError."""
    if isinstance(value, dtype):
        return [value] * n
    try:
        values = list(value)
    except TypeError:
        raise UsageError(f"The {name}'s type must be list or tuple. Received: {value}") from None
    if len(values) != n:
        raise UsageError(f"The {name}'s length must be {n}. Received: {value}")
    for single in values:
        try:
            dtype(single)
        except (ValueError, TypeError):
            raise UsageError(
                f"The {name}'s type must be a list or tuple of {n} {dtype}. Received: {value} including element {single} of "
                f"type {type(single)}"
            ) from None
    return values


def _is_symmetric_padding(padding: Sequence[Any], data_dim: int) -> bool:
    """Whether each dimension is padded alike on both sides: `data_dim` numbers, or two for each. Raises UsageError."""
    if len(padding) not in (data_dim, 2 * data_dim):
        raise UsageError(
            f"padding of {data_dim} dimensions takes {data_dim} or {2 * data_dim} numbers, found {padding}"
        )
    return len(padding) == data_dim or list(padding[::2]) == list(padding[1::2])


def _contain_var(list_or_tuple: Iterable[Any]) -> bool:
    """Whether one of the values is a variable."""
    return any(isinstance(item, Variable) for item in list_or_tuple)


def flatten(nest: Any) -> list[Any]:
    """The leaves in order; [nest] for a leaf."""
    return [leaf for part in _parts(nest) for leaf in flatten(part)] if is_sequence(nest) else [nest]


def pack_sequence_as(structure: Any, flat_sequence: Any) -> Any:
    """The leaves of `flat_sequence` in the shape of `structure`; raises UsageError if their number differs."""
    if not is_sequence(flat_sequence):
        raise ArgumentTypeError("flat_sequence must be a sequence")
    leaves = list(flat_sequence)
    if not is_sequence(structure):
        if len(leaves) != 1:
            raise UsageError(f"Structure is a scalar but len(flat_sequence) == {len(leaves)} > 1")
        return leaves[0]
    count = len(flatten(structure))
    if count != len(leaves):
        raise UsageError(
            f"Could not pack sequence. Structure had {count} elements, but flat_sequence had {len(leaves)} elements.  "
            f"Structure: {structure}, flat_sequence: {flat_sequence}."
        )
    return _packed(structure, iter(leaves))


def _packed(structure: Any, leaves: Iterator[Any]) -> Any:
    if not is_sequence(structure):
        return next(leaves)
    parts = [_packed(part, leaves) for part in _parts(structure)]
    kind = type(structure)
    if isinstance(structure, dict):
        by_key = dict(zip(sorted(structure), parts, strict=True))
        return kind((key, by_key[key]) for key in structure)
    return kind(*parts) if hasattr(structure, "_fields") else kind(parts)


def map_structure(function: Callable[..., Any], *structures: Any) -> Any:
    """function(leaf of each structure) leaf by leaf, in the shape of the first structure."""
    return pack_sequence_as(
        structures[0], [function(*leaves) for leaves in zip(*map(flatten, structures), strict=False)]
    )


def assert_same_structure(first: Any, second: Any, check_types: bool = True) -> None:
    """Raise UsageError (ArgumentTypeError for other types of containers) unless both nest in the same way."""
    counts = len(flatten(first)), len(flatten(second))
    if counts[0] != counts[1]:
        raise UsageError(
            "The two structures don't have the same number of elements.\n\n"
            f"First structure ({counts[0]} elements): {first}\n\nSecond structure ({counts[1]} elements): {second}"
        )
    _assert_same(first, second, check_types)


def _assert_same(first: Any, second: Any, check_types: bool) -> None:
    if is_sequence(first) != is_sequence(second):
        raise UsageError(
            "The two structures don't have the same nested structure.\n\n"
            f"First structure: {first}\n\nSecond structure: {second}."
        )
    if not is_sequence(first):
        return
    if check_types and type(first) is not type(second):
        raise ArgumentTypeError(
            "The two structures don't have the same sequence type. First structure has type "
            f"{type(first)}, while second structure has type {type(second)}."
        )
    if check_types and isinstance(first, dict) and set(first) != set(second):
        raise UsageError(
            "The two dictionaries don't have the same set of keys. First structure has keys "
            f"{set(first)}, while second structure has keys {set(second)}."
        )
    for one, other in zip(_parts(first), _parts(second), strict=False):
        _assert_same(one, other, check_types)
