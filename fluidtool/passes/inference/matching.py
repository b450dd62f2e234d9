"""What rules ask that replace a group of operators by one: where values come from, and whether the group can go."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from typing import Any

import numpy as np

from fluidtool.ir.operator import EMPTY
from fluidtool.passes.inference.match import Use
from fluidtool.passes.inference.rewriting import MatchContext, NoMatch
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text


def made_by(match: MatchContext, name: str, *types: str) -> MatchContext | None:
    """The operator of one of these types that wrote the value of `name` which `match` reads; None for anything else."""
    if name not in match.flow.reads[match.position]:
        return None
    found = match.producer(name)
    return found if found is not None and found.op.type in types else None


def only_reader(match: MatchContext, name: str, *types: str) -> MatchContext | None:
    """The one operator that reads what `match` writes to `name`, when it is of one of these types."""
    found = match.readers(name)
    return found[0] if len(found) == 1 and found[0].op.type in types else None


def same_value(left: MatchContext, left_name: str, right: MatchContext, right_name: str) -> bool:
    """Whether two operators of a block read the same version of the same name."""
    reads, others = left.flow.reads[left.position], right.flow.reads[right.position]
    return reads.get(left_name) is not None and reads[left_name] == others.get(right_name)


def check_group(parts: Iterable[MatchContext], results: Collection[str], inputs: Iterable[Use]) -> frozenset[int]:
    """The positions of a group of operators that may be replaced by one at the place of the last.

    Raises NoMatch when a result within, other than `results` of the last, is seen outside, or when one of `inputs` (an
    operator and a name that it reads) is written again before the last operator.
    """
    matches = {match.position: match for match in parts}
    last = max(matches)
    for position, match in matches.items():
        for name in match.op.output_arg_names:
            if name == EMPTY or (position == last and name in results):
                continue
            why = why_seen(match, name, matches)
            if why:
                raise NoMatch(why)
    for match, name in inputs:
        if not match.is_constant(name) and not _holds(match, name, last, set(matches)):
            raise NoMatch(f"{name} is written again before the last operator of the group")
    return frozenset(matches)


def why_seen(match: MatchContext, name: str, inside: Container[int]) -> str:
    """Why what `match` writes to `name` is wanted by others than the operators `inside`; empty when it is not."""
    others = {match.block.ops[i].type for i in match.flow.consumers(match.position, name) if i not in inside}
    if others:
        return f"{name} is also {'fetched' if others == {'fetch'} else 'read by ' + ', '.join(sorted(others))}"
    return match.why_wanted(name)


def _holds(match: MatchContext, name: str, last: int, group: set[int]) -> bool:
    return group.issuperset(match.flow.writes_between(match.position, last, name))


def scalar(match: MatchContext, name: str) -> float | None:
    """The number that a constant of one element holds: a parameter or a `fill_constant`; None for anything else."""
    source = made_by(match, name, "fill_constant")
    if source is not None:
        plain = not any(source.op.inputs.get(slot) for slot in ("ValueTensor", "ShapeTensor", "ShapeTensorList"))
        one = all(size == 1 for size in source.op.get_attr("shape", []))
        text = source.op.get_attr("str_value", "")
        return float(text or source.op.get_attr("value", 0.0)) if plain and one else None
    if name in match.flow.reads[match.position] and match.is_constant(name):
        array = match.numbers(name)
        return float(array.reshape(-1)[0]) if array.size == 1 else None
    return None


def vector(match: MatchContext, name: str, axis: int, rank: int) -> np.ndarray[Any, Any]:
    """A constant with one number for each position of the last of `rank` dimensions, as `axis` broadcasts it.

    Raises NoMatch for anything else.
    """
    values = match.numbers(name)
    if values.ndim != 1 or axis not in (-1, rank - 1):
        raise NoMatch(
            f"{name} of shape {shape_text(values.shape)} is not one number for each position of the last dimension"
        )
    return values


def float_type(match: MatchContext, name: str) -> bool:
    """Whether a name is declared float32 or float64, which every fused operator computes with."""
    var = match.block.find_var_recursive(name)
    return var is not None and var.dtype in (VarType.FP32, VarType.FP64)
