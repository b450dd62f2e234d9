"""layer_norm takes in the sum that it reads: `fuse-embedding-layer-norm` and `fuse-skip-layer-norm`.

    lookup_table + lookup_table (+ …) -> layer_norm    =>  fused_embedding_eltwise_layernorm
    elementwise_add -> layer_norm                      =>  skip_layernorm

Paddle 1.8.5 has both operators in its CUDA build only (embedding_eltwise_layernorm_fuse_pass.cc,
skip_layernorm_fuse_pass.cc).
"""

from __future__ import annotations

from collections.abc import Collection

from fluidtool.ir import Program
from fluidtool.passes.inference.match import Use
from fluidtool.passes.inference.matching import check_group, float_type, made_by, vector
from fluidtool.passes.inference.queries import rank
from fluidtool.passes.inference.rewriting import Edit, MatchContext, NoMatch, rewrite
from fluidtool.passes.result import PassResult
from fluidtool.runtime.scope import Scope

LOOK_UPS = ("lookup_table", "lookup_table_v2")
NO_PADDING = -1


def fuse_embedding_layer_norm(program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """Replace look-ups, their sum and `layer_norm` by `fused_embedding_eltwise_layernorm`, in place."""
    return rewrite("fuse-embedding-layer-norm", embedding_rule, program, scope, keep)


def fuse_skip_layer_norm(program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """Replace `elementwise_add` and `layer_norm` by `skip_layernorm`, in place."""
    return rewrite("fuse-skip-layer-norm", skip_rule, program, scope, keep)


def embedding_rule(match: MatchContext) -> Edit | None:
    """A layer_norm of a sum of looked-up rows."""
    if match.op.type != "layer_norm":
        return None
    adds: list[MatchContext] = []
    look_ups = _look_ups(match, match.input("X"), adds)
    if look_ups is None or len(look_ups) < 2:
        return None
    parameters = _parameters(match, 3)
    for look_up in look_ups:
        _check_look_up(look_up, look_ups[0])
    reads = [(look_up, look_up.input("Ids")) for look_up in look_ups]
    inputs = {
        "Ids": [look_up.input("Ids") for look_up in look_ups],
        "Embs": [look_up.input("W") for look_up in look_ups],
        **parameters,
    }
    reason = f"the sum of {len(look_ups)} lookups"
    return _edit(match, "fused_embedding_eltwise_layernorm", inputs, [*adds, *look_ups], reads, {}, reason)


def skip_rule(match: MatchContext) -> Edit | None:
    """A layer_norm of the sum of two values of one shape."""
    if match.op.type != "layer_norm":
        return None
    add = made_by(match, match.input("X"), "elementwise_add")
    if add is None:
        return None
    block, x, y = match.block, add.input("X"), add.input("Y")
    dimensions = rank(block, x)
    if block.var_recursive(x).shape != block.var_recursive(y).shape or dimensions < 2:
        raise NoMatch(f"{x} and {y} are not declared with one shape")
    parameters = _parameters(match, dimensions)
    inputs = {"X": [x], "Y": [y], **parameters}
    attrs = {"begin_norm_axis": dimensions - 1}
    return _edit(match, "skip_layernorm", inputs, [add], [(add, x), (add, y)], attrs, f"the sum of {x} and {y}")


def _look_ups(match: MatchContext, name: str, adds: list[MatchContext]) -> list[MatchContext] | None:
    """The look-ups that a tree of sums adds up, in order; None when it adds anything else."""
    found = made_by(match, name, *LOOK_UPS, "elementwise_add", "sum")
    if found is None:
        return None
    if found.op.type in LOOK_UPS:
        return [found]
    adds.append(found)
    total: list[MatchContext] = []
    for term in found.op.input_arg_names:
        below = _look_ups(found, term, adds)
        if below is None:
            return None
        total += below
    return total


def _check_look_up(match: MatchContext, first: MatchContext) -> None:
    op, block = match.op, match.block
    if int(op.get_attr("padding_idx", NO_PADDING)) != NO_PADDING:
        raise NoMatch("a lookup has a padding_idx")
    if op.get_attr("is_distributed", False) or op.get_attr("remote_prefetch", False):
        raise NoMatch("a table is distributed")
    if match.numbers(match.input("W")).shape[1:] != first.numbers(first.input("W")).shape[1:]:
        raise NoMatch("the tables have rows of different lengths")
    ids = block.var_recursive(match.input("Ids"))
    if ids.lod_level or rank(block, match.output("Out")) != 3:
        raise NoMatch(f"{ids.name} is not (batch, length) words")
    if ids.shape[:2] != block.var_recursive(first.input("Ids")).shape[:2]:
        raise NoMatch(f"{first.input('Ids')} and {ids.name} are not declared with the same batch and length")


def _parameters(match: MatchContext, dimensions: int) -> dict[str, list[str]]:
    """Scale and Bias of a layer_norm over the last dimension; raises NoMatch for others."""
    if not float_type(match, match.input("X")):
        raise NoMatch(f"{match.input('X')} is not declared float32 or float64")
    if int(match.op.get_attr("begin_norm_axis", 1)) != dimensions - 1:
        raise NoMatch("the layer_norm is not over the last dimension alone")
    if not match.input("Scale") or not match.input("Bias"):
        raise NoMatch("the layer_norm has no scale or no bias")
    for slot in ("Scale", "Bias"):
        vector(match, match.input(slot), -1, dimensions)
    return {"Scale": match.op.input("Scale"), "Bias": match.op.input("Bias")}


def _edit(
    match: MatchContext,
    kind: str,
    inputs: dict[str, list[str]],
    before: list[MatchContext],
    reads: list[Use],
    attrs: dict[str, int],
    reason: str,
) -> Edit:
    result = match.output("Y")
    removed = check_group([match, *before], [result], reads)
    epsilon = float(match.op.get_attr("epsilon", 1e-5))
    op = match.new_operator(kind, inputs, {"Out": [result]}, {"epsilon": epsilon, **attrs})
    return Edit(removed, match.position, (op,), reason)
