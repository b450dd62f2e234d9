"""Which variables are fetched: names, patterns, or all that is computed."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from fluidtool.errors import LIST_VARIABLES, FetchError, Hint, Location, UsageError
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass
from fluidtool.workflows.names import did_you_mean

if TYPE_CHECKING:
    from fluidtool.ir import Program
    from fluidtool.model import Model

BOTH = Hint("give everything=True or fetch=", "give --fetch-all or --fetch")
VALUES = frozenset({VarType.LOD_TENSOR, VarType.SELECTED_ROWS, VarType.LOD_TENSOR_ARRAY})


@dataclass(frozen=True, slots=True)
class Fetches:
    """What to fetch; the `optional` names come from a pattern and may turn out to have no value."""

    names: tuple[str, ...]
    optional: frozenset[str] = frozenset()


def chosen(model: Model, patterns: Sequence[str], everything: bool = False) -> Fetches:
    """Names as they are, patterns in the order of computation, no name twice; without any the model's outputs."""
    if everything and patterns:
        raise UsageError("both everything and single variables are to be fetched", hint=BOTH)
    names: dict[str, bool] = {}
    if everything:
        names = dict.fromkeys(computed_names(model.program), True)
    elif not patterns:
        names = dict.fromkeys(model.fetches, False)
    for pattern in patterns:
        if model.program.global_block().has_var(pattern):
            names[pattern] = False
        else:
            for name in _matching(model, pattern):
                names.setdefault(name, True)
    if not names:
        hint = Hint("name variables to compute: fetch=[NAME]", "name variables to compute with --fetch NAME")
        raise UsageError("the model has no outputs", hint=hint)
    return Fetches(tuple(names), frozenset(name for name, optional in names.items() if optional))


def _matching(model: Model, pattern: str) -> list[str]:
    computed, block = computed_names(model.program), model.program.global_block()
    if is_pattern(pattern):
        found = matching(model.program, pattern)
        if found:
            return found
        raise FetchError(f"cannot fetch {pattern}: no computed variable matches the pattern")
    inner = next((other.idx for other in model.program.blocks[1:] if other.has_var(pattern)), None)
    if inner is not None:
        raise FetchError(
            f"cannot fetch {pattern}: it is a variable of block {inner}, which exists only during one iteration of a "
            f"loop or branch",
            hint="fetch the loop's result in block 0",
            location=Location(block=inner, variable=pattern),
        )
    hint = did_you_mean(pattern, [*computed, *block.vars]) or LIST_VARIABLES
    text = f"cannot fetch {pattern}: the program has no such variable"
    raise FetchError(text, hint=hint, location=Location(variable=pattern))


def is_pattern(name: str) -> bool:
    """Whether a name has one of the signs of a pattern: *, ?, [."""
    return bool(set(name) & set("*?["))


def matching(program: Program, pattern: str) -> list[str]:
    """The computed variables whose names match, in order of computation."""
    return [name for name in computed_names(program) if fnmatchcase(name, pattern)]


def computed_names(program: Program) -> list[str]:
    """The variables of block 0 that its operators compute, in order, parameters left out."""
    block = program.global_block()
    names: dict[str, None] = {}
    for op in block.ops:
        for name in () if op.type == "feed" else op.output_arg_names:
            var = block.vars.get(name)
            if var is not None and not var.persistable and var.type in VALUES:
                names[name] = None
    return list(names)
