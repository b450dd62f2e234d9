"""Operators that leave their input as it is are taken out: `scale` by 1 plus 0, `assign`, a `concat` of one, …

What reads the result reads the source instead. Where the result itself is wanted (fetched, kept) and nobody else wants
the source, the operator that computes the source writes the result: Paddle 1.8 puts a `scale` by 1 in front of every
fetch, and so that one goes too.
"""

from __future__ import annotations

from collections.abc import Collection

from fluidtool.ir import Operator, Program
from fluidtool.ir.surgery import copy_operator
from fluidtool.passes.inference.rewriting import Edit, MatchContext, NoMatch, rewrite
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


def rule(match: MatchContext) -> Edit | None:
    """The edit for one operator."""
    return without(match, match.op.input("X")[0]) if is_identity(match) else None


def is_identity(match: MatchContext) -> bool:
    """Whether an operator leaves its only input as it is."""
    op = match.op
    if len(op.input_arg_names) != 1 or len(op.input("X")) != 1:
        return False
    match op.type:
        case "scale":
            return float(op.get_attr("scale", 1.0)) == 1.0 and float(op.get_attr("bias", 0.0)) == 0.0
        case "assign":
            var = match.block.find_var_recursive(match.input("X"))
            return var is not None and var.type == VarType.LOD_TENSOR
        case "concat" | "sum" | "share_data":
            return True
        case "transpose" | "transpose2":
            axes = list(op.get_attr("axis", []))
            var = match.block.find_var_recursive(match.input("X"))
            return bool(axes) and axes == list(range(len(axes))) and var is not None and not var.lod_level
        case "expand":
            times = list(op.get_attr("expand_times", []))
            return bool(times) and all(time == 1 for time in times)
        case "pad":
            return not any(op.get_attr("paddings", [1]))
        case "cast":
            var = match.block.find_var_recursive(match.input("X"))
            wanted = op.get_attr("out_dtype")
            return var is not None and var.dtype == wanted == op.get_attr("in_dtype")
    return False


def without(match: MatchContext, source: str) -> Edit:
    """The edit that takes out an operator whose result is its `source`; raises NoMatch with the reason why not."""
    result = _only_result(match)
    if match.names.written[result] != 1 or source == result:
        raise NoMatch(f"{result} is written more than once")
    if match.why_not_private(result):
        raise NoMatch(match.why_not_private(result))
    readers = match.readers(result)
    if result in match.keep or not readers or any(reader.op.type == "fetch" for reader in readers):
        return _written_directly(match, source, result)
    if not match.holds_until(source, readers[-1].position):
        raise NoMatch(f"{source} is written again before {result} is last read")
    return Edit(frozenset({match.position}), match.position, (), f"{result} is {source}", rename={result: source})


def _only_result(match: MatchContext) -> str:
    """The result, once the other outputs are known to be unused."""
    found, scratch = match.op.output("Out"), [name for slot in SCRATCH for name in match.op.output(slot)]
    for name in scratch:
        if match.readers(name) or name in match.keep:
            raise NoMatch(f"its other output {name} is used")
    if len(found) != 1 or len(match.op.output_arg_names) != 1 + len(scratch):
        raise NoMatch("it has several results")
    return found[0]


def _written_directly(match: MatchContext, source: str, result: str) -> Edit:
    """The edit by which the operator that computes `source` writes `result`."""
    producer = match.producer(source)
    if producer is None or producer.op.type == "feed":
        raise NoMatch(f"{result} is fetched or must be kept, and {source} is a parameter or is fed")
    if producer.op.sub_blocks() or source in producer.op.input_arg_names or match.names.written[source] != 1:
        raise NoMatch(
            f"{result} is fetched or must be kept, and {producer.op.type} computes {source} in place or in a block"
        )
    wanted = producer.why_wanted(source)
    if not wanted and any(reader.op.type == "fetch" for reader in producer.readers(source)):
        wanted = f"{source} is fetched"
    if wanted:
        raise NoMatch(f"{result} is fetched or must be kept, and {wanted} too")
    writer = copy_operator(producer.op, match.block)
    _rename_output(writer, source, result)
    return Edit(
        frozenset({producer.position, match.position}),
        producer.position,
        (writer,),
        f"{producer.op.type} writes {result}",
        rename={source: result},
    )


def _rename_output(op: Operator, old: str, new: str) -> None:
    for slot, names in op.outputs.items():
        op.set_output(slot, [new if name == old else name for name in names])
