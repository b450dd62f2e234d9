"""`fuse-seqpool-concat`: sequences pooled one by one and put side by side are pooled by one operator.

    n times sequence_pool (-> cvm), concat    =>  fusion_seqpool_concat | fusion_seqpool_cvm_concat, transpose

The fused operators give their result a LoD of one row per sequence, which `concat` does not; a transpose to the same
order, through which no LoD passes, takes it away again: nobody can tell the difference.
"""

from __future__ import annotations

from collections.abc import Collection

from fluidtool.ir import Program
from fluidtool.passes.inference.matching import check_group, float_type, made_by
from fluidtool.passes.inference.queries import rank
from fluidtool.passes.inference.rewriting import Edit, MatchContext, NewVariable, NoMatch, rewrite
from fluidtool.passes.result import PassResult
from fluidtool.runtime.scope import Scope

NAME = "fuse-seqpool-concat"
POOL_TYPES = ("SUM", "AVERAGE", "SQRT")


def fuse_seqpool_concat(program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """Pool several sequences by one operator, in place (Paddle 1.8.5 seqpool_concat_fuse_pass.cc, seqpool_cvm_…)."""
    return rewrite(NAME, rule, program, scope, keep)


def rule(match: MatchContext) -> Edit | None:
    """A concat of pooled sequences."""
    if match.op.type != "concat" or not match.op.input("X"):
        return None
    terms = [made_by(match, name, "sequence_pool", "cvm") for name in match.op.input("X")]
    if any(term is None for term in terms):
        return None
    found = [term for term in terms if term is not None]
    normalized = [term for term in found if term.op.type == "cvm"]
    if normalized and len(normalized) != len(found):
        raise NoMatch("only some of the pooled sequences go through cvm")
    pools = [_pool(term) for term in found]
    _check(match, pools)
    inputs = {"X": [pool.input("X") for pool in pools]}
    attrs = {"pooltype": pools[0].op.get_attr("pooltype", "AVERAGE"), "axis": 1}
    reads = [(pool, pool.input("X")) for pool in pools]
    kind = "fusion_seqpool_concat"
    if normalized:
        kind, attrs["use_cvm"] = "fusion_seqpool_cvm_concat", True
        inputs["CVM"] = [_clicks(normalized)]
        reads += [(term, term.input("CVM")) for term in normalized]
    result = match.output("Out")
    removed = check_group({part.position: part for part in (*pools, *normalized, match)}.values(), [result], reads)
    joined = match.fresh_name(f"{result}.pooled")
    fused = match.new_operator(kind, inputs, {"Out": [joined]}, attrs)
    plain = match.new_operator("transpose", {"X": [joined]}, {"Out": [result]}, {"axis": [0, 1]})
    variables = (NewVariable(joined, result, lod_level=1),)
    return Edit(removed, match.position, (fused, plain), f"{len(pools)} pooled sequences", variables=variables)


def _pool(term: MatchContext) -> MatchContext:
    if term.op.type == "sequence_pool":
        return term
    if not term.op.get_attr("use_cvm", True):
        raise NoMatch("the cvm drops show and click (use_cvm is False)")
    pool = made_by(term, term.input("X"), "sequence_pool")
    if pool is None:
        raise NoMatch(f"{term.input('X')} is not a pooled sequence")
    return pool


def _clicks(normalized: list[MatchContext]) -> str:
    names = {term.input("CVM") for term in normalized}
    if len(names) != 1:
        raise NoMatch(f"the cvm operators read different clicks: {', '.join(sorted(names))}")
    return names.pop()


def _check(match: MatchContext, pools: list[MatchContext]) -> None:
    """Raise NoMatch unless matrices of one width and one level of sequences are pooled in one way."""
    if int(match.op.get_attr("axis", 0)) not in (1, -1) or match.op.inputs.get("AxisTensor"):
        raise NoMatch("the pooled sequences are not concatenated side by side (axis 1)")
    kinds = {str(pool.op.get_attr("pooltype", "AVERAGE")) for pool in pools}
    if len(kinds) != 1 or not kinds <= set(POOL_TYPES):
        raise NoMatch(
            f"the sequences are pooled by {', '.join(sorted(kinds))}, not all by one of {', '.join(POOL_TYPES)}"
        )
    if len(pools) < 2:
        raise NoMatch("there is only one pooled sequence")
    first = match.block.var_recursive(pools[0].input("X"))
    for pool in pools:
        name = pool.input("X")
        var = match.block.var_recursive(name)
        if float(pool.op.get_attr("pad_value", 0.0)) != 0.0:
            raise NoMatch(f"empty sequences of {name} give {pool.op.attr('pad_value')}, not 0")
        if not float_type(match, name) or var.dtype != first.dtype:
            raise NoMatch(f"{name} is not declared float32 or float64 like the others")
        if var.lod_level != 1 or rank(match.block, name) != 2:
            raise NoMatch(f"{name} is not declared as rows of one level of sequences")
        if var.shape[1] != first.shape[1] or var.shape[1] < 1:
            raise NoMatch(f"{first.name} and {name} are not declared with rows of one width")
