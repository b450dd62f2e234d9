"""`fuse-seqexpand-concat-fc`: rows beside what belongs to their whole sequence, through a fully connected layer.

    concat of x0 and sequence_expand(xi, x0) -> mul (-> elementwise_add) (-> relu | sigmoid | tanh)
        =>  fusion_seqexpand_concat_fc

What belongs to a sequence is multiplied once, not once for each row. Paddle 1.8.5 wants every xi to have a LoD of one
row for each sequence; here it has none, as sequence_expand has it, so that the result runs here only.
"""

from __future__ import annotations

from collections.abc import Collection

from fluidtool.ir import Program
from fluidtool.passes.inference.match import Use
from fluidtool.passes.inference.matching import (
    check_group,
    float_type,
    made_by,
    only_reader,
    same_value,
    vector,
    why_seen,
)
from fluidtool.passes.inference.queries import rank
from fluidtool.passes.inference.rewriting import Edit, MatchContext, NewVariable, NoMatch, rewrite
from fluidtool.passes.result import PassResult
from fluidtool.runtime.scope import Scope

NAME = "fuse-seqexpand-concat-fc"
ACTIVATIONS = ("relu", "sigmoid", "tanh")


def fuse_seqexpand_concat_fc(program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """Replace the operators by `fusion_seqexpand_concat_fc`, in place (Paddle 1.8.5 seq_concat_fc_fuse_pass.cc)."""
    return rewrite(NAME, rule, program, scope, keep)


def rule(match: MatchContext) -> Edit | None:
    """A product whose input is rows beside expanded ones."""
    concat = made_by(match, match.input("X"), "concat") if match.op.type == "mul" else None
    if concat is None or len(concat.op.input("X")) < 2:
        return None
    rows, *others = concat.op.input("X")
    expands = [made_by(concat, name, "sequence_expand") for name in others]
    found = [expand for expand in expands if expand is not None]
    if len(found) != len(expands):
        return None
    _check(match, concat, rows, found)
    last, bias = _with_bias(match)
    last, activation = _with_activation(last)
    result = last.output("Out")
    steps = {part.position: part for part in (concat, *found, match, bias or match, last)}
    reads = [(concat, rows), *((expand, expand.input("X")) for expand in found)]
    removed = check_group(steps.values(), [result], reads)
    scratch = last.fresh_name(f"{result}.fcout")
    op = last.new_operator(
        "fusion_seqexpand_concat_fc",
        {
            "X": [rows, *(expand.input("X") for expand in found)],
            "FCWeight": [match.input("Y")],
            "FCBias": [bias.input("Y")] if bias is not None else [],
        },
        {"Out": [result], "FCOut": [scratch]},
        {"fc_activation": activation},
    )
    variables = (NewVariable(scratch, result, (-1, -1), 0),)
    return Edit(removed, last.position, (op,), f"{rows} beside {len(found)} expanded", variables=variables)


def _check(match: MatchContext, concat: MatchContext, rows: str, expands: list[MatchContext]) -> None:
    """Raise NoMatch unless matrices are put side by side and multiplied with one."""
    block = match.block
    if int(concat.op.get_attr("axis", 0)) not in (1, -1) or concat.op.inputs.get("AxisTensor"):
        raise NoMatch("the rows are not concatenated side by side (axis 1)")
    plain = all(int(match.op.get_attr(name, 1)) == 1 for name in ("x_num_col_dims", "y_num_col_dims"))
    if not plain or match.numbers(match.input("Y")).ndim != 2:
        raise NoMatch(f"{match.input('Y')} is not a matrix")
    if not float_type(match, rows) or rank(block, rows) != 2 or block.var_recursive(rows).lod_level != 1:
        raise NoMatch(f"{rows} is not declared as rows of one level of sequences, float32 or float64")
    for expand in expands:
        name = expand.input("X")
        if not same_value(expand, expand.input("Y"), concat, rows):
            raise NoMatch(f"{name} is expanded to the sequences of {expand.input('Y')}, not of {rows}")
        var = block.var_recursive(name)
        if var.lod_level or rank(block, name) != 2 or var.dtype != block.var_recursive(rows).dtype:
            raise NoMatch(f"{name} is not declared as one row per sequence")


def _with_bias(match: MatchContext) -> tuple[MatchContext, MatchContext | None]:
    """The sum with a bias that alone reads the product, if there is one."""
    add = _follower(match, "elementwise_add")
    if add is None or add.input("X") != match.output("Out"):
        return match, None
    try:
        values = vector(add, add.input("Y"), int(add.op.get_attr("axis", -1)), 2)
    except NoMatch:
        return match, None
    return (add, add) if values.size == match.numbers(match.input("Y")).shape[1] else (match, None)


def _with_activation(match: MatchContext) -> Use:
    after = _follower(match, *ACTIVATIONS)
    return (match, "identity") if after is None else (after, after.op.type)


def _follower(match: MatchContext, *types: str) -> MatchContext | None:
    """The one operator of these types that reads the result, when nothing else does."""
    result = match.output("Out")
    after = only_reader(match, result, *types)
    return None if after is None or why_seen(match, result, {after.position}) else after
