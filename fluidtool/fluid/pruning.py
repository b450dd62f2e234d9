"""What a run leaves out when its fetch list names optimizers, or asks for pruning (Paddle 1.8.5 executor.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from fluidtool.errors import ArgumentTypeError
from fluidtool.fluid.compiler import CompiledProgram
from fluidtool.ir import Operator, Program
from fluidtool.ir.roles import OpRole
from fluidtool.runtime.phases import role

Runnable = Program | CompiledProgram


def split_optimizers(fetch_list: Any) -> tuple[list[Any], list[Operator]]:
    """The variables of a fetch list, and the operators of its optimizers: what `minimize` returned, or the first part of it.

    Raises ArgumentTypeError for an operator that does not optimize.
    """
    items = list(_flat(fetch_list))
    operators = [item for item in items if isinstance(item, Operator)]
    for op in operators:
        if not role(op) & OpRole.Optimize:
            raise ArgumentTypeError(f"The operator in fetch_list is not an optimize_op, found {op.type}")
    return [item for item in items if not isinstance(item, Operator)], operators


def _flat(fetch_list: Any) -> Iterator[Any]:
    for item in _as_list(fetch_list):
        if isinstance(item, tuple) and item and isinstance(item[0], (list, tuple)):  # operators, and what they update
            yield from item[0]
        elif isinstance(item, list):
            yield from item
        else:
            yield item


def _as_list(items: Any) -> list[Any]:
    if items is None:
        return []
    return list(items) if isinstance(items, (list, tuple)) and not _is_minimized(items) else [items]


def _is_minimized(items: Any) -> bool:
    return isinstance(items, tuple) and bool(items) and isinstance(items[0], list) and _all_operators(items[0])


def _all_operators(items: Iterable[Any]) -> bool:
    return all(isinstance(item, Operator) for item in items)


def pruned(program: Runnable, feed: Any, fetches: Sequence[str], optimizers: Sequence[Operator]) -> Program:
    """A copy with what the fetches and the optimizers depend on (all optimizers, where none is given), from what is fed on."""
    plain = program.program if isinstance(program, CompiledProgram) else program
    chosen = optimizers or [op for block in plain.blocks for op in block.ops if role(op) & OpRole.Optimize]
    return plain.prune_with_input(_fed_names(feed), [*fetches, *chosen])


def _fed_names(feed: Any) -> list[str]:
    feeds = [feed] if isinstance(feed, Mapping) else feed or []
    return list(dict.fromkeys(name for one in feeds for name in one))


class PrunedPrograms:
    """The pruned copies of the programs that an executor runs; those of a compiled program share their variables."""

    def __init__(self) -> None:
        self._kept: WeakKeyDictionary[Runnable, dict[Any, Runnable]] = WeakKeyDictionary()

    def get(self, program: Runnable, key: tuple[Any, ...], make: Callable[[], Runnable]) -> Runnable:
        """The copy of this key, made when it is asked for first; a change of the program, at key[0], drops the others."""
        kept = self._kept.setdefault(program, {})
        if key not in kept:
            copy, first = make(), next(iter(kept.values()), None)
            if isinstance(copy, CompiledProgram) and isinstance(first, CompiledProgram):
                copy.share_from(first)
            self._kept[program] = {old: value for old, value in kept.items() if old[0] == key[0]} | {key: copy}
        return self._kept[program][key]


def cache_key(program: Runnable, feed: Any, fetches: Sequence[str], optimizers: Sequence[Operator]) -> tuple[Any, ...]:
    """What a pruned copy depends on."""
    plain = program.program if isinstance(program, CompiledProgram) else program
    return plain.mutation, tuple(_fed_names(feed)), tuple(fetches), tuple(map(id, optimizers))


def without_pruned(program: Runnable, feed: Any) -> Any:
    """The feed, without what the pruned program has no variable for."""
    plain = program.program if isinstance(program, CompiledProgram) else program
    known = plain.global_block().vars

    def left(one: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in one.items() if name in known}

    if feed is None:
        return None
    return left(feed) if isinstance(feed, Mapping) else [left(one) for one in feed]
