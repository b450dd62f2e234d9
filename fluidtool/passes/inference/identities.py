"""Operators that leave their input as it is are taken out: `scale` by 1 plus 0, `assign`, a `concat` of one, …

What reads the result reads the source instead. Where the result itself is wanted (fetched, kept) and nobody else wants
the source, the operator that computes the source writes the result: Paddle 1.8 puts a `scale` by 1 in front of every
fetch, and so that one goes too.
"""

from __future__ import annotations

from collections.abc import Collection

from fluidtool.ir import Operator, Program
from fluidtool.ir.surgery import copy_operator
from fluidtool.passes.inference.rewriting import Edit, Site, Unfit, rewrite
from fluidtool.passes.result import PassResult
from fluidtool.proto.enums import VarType
from fluidtool.runtime.scope import Scope

NAME = "drop-identity"
SCRATCH = ("XShape", "Mask", "MidOut")


def drop_identity(program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """Take out operators that leave their input as it is (Paddle 1.8 identity_scale_op_clean_pass), in place.

    `scale` by 1 plus 0, `assign` of a tensor, `concat` and `sum` of one input, `transpose` to the same order (of what
    has no LoD, which does not pass), `expand` by ones, `pad` by nothing, `cast` to the same data type. Shapes that only
    a declaration states prove nothing.
    """
    return rewrite(NAME, rule, program, scope, keep, exact=True)


def rule(site: Site) -> Edit | None:
    """The edit for one operator."""
    return without(site, site.op.input("X")[0]) if is_identity(site) else None


def is_identity(site: Site) -> bool:
    """Whether an operator leaves its only input as it is."""
    op = site.op
    if len(op.input_arg_names) != 1 or len(op.input("X")) != 1:
        return False
    match op.type:
        case "scale":
            return float(op.get_attr("scale", 1.0)) == 1.0 and float(op.get_attr("bias", 0.0)) == 0.0
        case "assign":
            var = site.block.find_var_recursive(site.input("X"))
            return var is not None and var.type == VarType.LOD_TENSOR
        case "concat" | "sum" | "share_data":
            return True
        case "transpose" | "transpose2":
            axes = list(op.get_attr("axis", []))
            var = site.block.find_var_recursive(site.input("X"))
            return bool(axes) and axes == list(range(len(axes))) and var is not None and not var.lod_level
        case "expand":
            times = list(op.get_attr("expand_times", []))
            return bool(times) and all(time == 1 for time in times)
        case "pad":
            return not any(op.get_attr("paddings", [1]))
        case "cast":
            var = site.block.find_var_recursive(site.input("X"))
            wanted = op.get_attr("out_dtype")
            return var is not None and var.dtype == wanted == op.get_attr("in_dtype")
    return False


def without(site: Site, source: str) -> Edit:
    """The edit that takes out an operator whose result is its `source`; raises Unfit with the reason why not."""
    result = _only_result(site)
    if site.names.written[result] != 1 or source == result:
        raise Unfit(f"{result} is written more than once")
    if site.why_not_private(result):
        raise Unfit(site.why_not_private(result))
    readers = site.readers(result)
    if result in site.keep or not readers or any(reader.op.type == "fetch" for reader in readers):
        return _written_directly(site, source, result)
    if not site.holds_until(source, readers[-1].position):
        raise Unfit(f"{source} is written again before {result} is last read")
    return Edit(frozenset({site.position}), site.position, (), f"{result} is {source}", rename={result: source})


def _only_result(site: Site) -> str:
    """The result, once the other outputs are known to be unused."""
    found, scratch = site.op.output("Out"), [name for slot in SCRATCH for name in site.op.output(slot)]
    for name in scratch:
        if site.readers(name) or name in site.keep:
            raise Unfit(f"its other output {name} is used")
    if len(found) != 1 or len(site.op.output_arg_names) != 1 + len(scratch):
        raise Unfit("it has several results")
    return found[0]


def _written_directly(site: Site, source: str, result: str) -> Edit:
    """The edit by which the operator that computes `source` writes `result`."""
    producer = site.producer(source)
    if producer is None or producer.op.type == "feed":
        raise Unfit(f"{result} is fetched or to be kept, and {source} is a parameter or is fed")
    if producer.op.sub_blocks() or source in producer.op.input_arg_names or site.names.written[source] != 1:
        raise Unfit(
            f"{result} is fetched or to be kept, and {producer.op.type} computes {source} in place or in a block"
        )
    wanted = producer.why_wanted(source)
    if not wanted and any(reader.op.type == "fetch" for reader in producer.readers(source)):
        wanted = f"{source} is fetched"
    if wanted:
        raise Unfit(f"{result} is fetched or to be kept, and {wanted} too")
    writer = copy_operator(producer.op, site.block)
    _rename_output(writer, source, result)
    return Edit(
        frozenset({producer.position, site.position}),
        producer.position,
        (writer,),
        f"{producer.op.type} writes {result}",
        rename={source: result},
    )


def _rename_output(op: Operator, old: str, new: str) -> None:
    for slot, names in op.outputs.items():
        op.set_output(slot, [new if name == old else name for name in names])
