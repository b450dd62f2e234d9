"""What rules ask that replace a group of operators by one: where values come from, and whether the group can go."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from typing import Any

import numpy as np

from fluidtool.ir.dataflow import EMPTY
from fluidtool.passes.inference.rewriting import Site, Unfit
from fluidtool.proto.enums import VarType


def made_by(site: Site, name: str, *types: str) -> Site | None:
    """The operator of one of these types that wrote the value of `name` which `site` reads; None for anything else."""
    if name not in site.flow.reads[site.position]:
        return None
    found = site.producer(name)
    return found if found is not None and found.op.type in types else None


def only_reader(site: Site, name: str, *types: str) -> Site | None:
    """The one operator that reads what `site` writes to `name`, when it is of one of these types."""
    found = site.readers(name)
    return found[0] if len(found) == 1 and found[0].op.type in types else None


def same_value(left: Site, left_name: str, right: Site, right_name: str) -> bool:
    """Whether two operators of a block read the same version of the same name."""
    reads, others = left.flow.reads[left.position], right.flow.reads[right.position]
    return reads.get(left_name) is not None and reads[left_name] == others.get(right_name)


def check_group(parts: Iterable[Site], results: Collection[str], inputs: Iterable[tuple[Site, str]]) -> frozenset[int]:
    """The positions of a group of operators that may be replaced by one at the place of the last.

    Raises Unfit when a result within, other than `results` of the last, is seen outside, or when one of `inputs` (an
    operator and a name that it reads) is written again before the last operator.
    """
    sites = {site.position: site for site in parts}
    last = max(sites)
    for position, site in sites.items():
        for name in site.op.output_arg_names:
            if name == EMPTY or (position == last and name in results):
                continue
            why = why_seen(site, name, sites)
            if why:
                raise Unfit(why)
    for site, name in inputs:
        if not site.is_constant(name) and not _holds(site, name, last, set(sites)):
            raise Unfit(f"{name} is written again before the last operator of the group")
    return frozenset(sites)


def why_seen(site: Site, name: str, inside: Container[int]) -> str:
    """Why what `site` writes to `name` is wanted by others than the operators `inside`; empty when it is not."""
    others = {site.block.ops[i].type for i in site.flow.consumers(site.position, name) if i not in inside}
    if others:
        return f"{name} is also {'fetched' if others == {'fetch'} else 'read by ' + ', '.join(sorted(others))}"
    return site.why_wanted(name)


def _holds(site: Site, name: str, last: int, group: set[int]) -> bool:
    return group.issuperset(site.flow.writes_between(site.position, last, name))


def scalar(site: Site, name: str) -> float | None:
    """The number that a constant of one element holds: a parameter or a `fill_constant`; None for anything else."""
    source = made_by(site, name, "fill_constant")
    if source is not None:
        plain = not any(source.op.inputs.get(slot) for slot in ("ValueTensor", "ShapeTensor", "ShapeTensorList"))
        one = all(size == 1 for size in source.op.get_attr("shape", []))
        text = source.op.get_attr("str_value", "")
        return float(text or source.op.get_attr("value", 0.0)) if plain and one else None
    if name in site.flow.reads[site.position] and site.is_constant(name):
        array = site.numbers(name)
        return float(array.reshape(-1)[0]) if array.size == 1 else None
    return None


def vector(site: Site, name: str, axis: int, rank: int) -> np.ndarray[Any, Any]:
    """A constant with one number for each position of the last of `rank` dimensions, as `axis` broadcasts it.

    Raises Unfit for anything else.
    """
    values = site.numbers(name)
    if values.ndim != 1 or axis not in (-1, rank - 1):
        raise Unfit(f"{name} of shape {list(values.shape)} is not one number for each position of the last dimension")
    return values


def float_type(site: Site, name: str) -> bool:
    """Whether a name is declared float32 or float64, which every fused operator computes with."""
    var = site.block.find_var_recursive(name)
    return var is not None and var.dtype in (VarType.FP32, VarType.FP64)
