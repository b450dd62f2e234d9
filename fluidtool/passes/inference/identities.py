"""Operators that leave their input as it is are taken out: `scale` by 1 plus 0, `assign`, dropout that keeps everything."""

from __future__ import annotations

from collections.abc import Collection

from fluidtool.ir import Program
from fluidtool.passes.inference.rewriting import Edit, Site, rewrite
from fluidtool.passes.result import PassResult
from fluidtool.runtime.scope import Scope

NAME = "drop-identity"


def drop_identity(program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """Take out `scale` operators with scale 1 and bias 0 (Paddle 1.8 identity_scale_op_clean_pass), in place."""
    return rewrite(NAME, rule, program, scope, keep)


def rule(site: Site) -> Edit | str | None:
    """`scale` by one: what reads its output reads its input instead."""
    op = site.op
    if op.type != "scale" or float(op.get_attr("scale", 1.0)) != 1.0 or float(op.get_attr("bias", 0.0)) != 0.0:
        return None
    return without(site, site.input("X"), site.output("Out"))


def without(site: Site, source: str, result: str) -> Edit | str:
    """The edit that takes out an operator whose `result` is its `source`, or why that cannot be."""
    if site.op.inputs.get("ScaleTensor"):
        return "the factor is computed by the program"
    readers = site.readers(result)
    why = site.why_visible(result, -1) if any(reader.op.type == "fetch" for reader in readers) else ""
    if result in site.keep or why or not readers:
        return why or f"{result} is fetched or to be kept"
    if site.written[result] != 1 or source == result:
        return f"{result} is written more than once"
    last = readers[-1].position
    if not site.holds_until(source, last):
        return f"{source} is written again before {result} is last read"
    return Edit(frozenset({site.position}), site.position, (), f"{result} is {source}", rename={result: source})
