"""`fuse-seqpool-concat`: sequences pooled one by one and put side by side are pooled by one operator.

    n times sequence_pool (-> cvm), concat    =>  fusion_seqpool_concat | fusion_seqpool_cvm_concat, transpose

The fused operators give their result a LoD of one row per sequence, which `concat` does not; a transpose to the same
order, through which no LoD passes, takes it away again: nobody can tell the difference.
"""

from __future__ import annotations

from collections.abc import Collection

from fluidtool.ir import Program
from fluidtool.passes.inference.facts import rank
from fluidtool.passes.inference.matching import check_group, float_type, made_by
from fluidtool.passes.inference.rewriting import Edit, NewVariable, Site, Unfit, rewrite
from fluidtool.passes.result import PassResult
from fluidtool.runtime.scope import Scope

NAME = "fuse-seqpool-concat"
POOL_TYPES = ("SUM", "AVERAGE", "SQRT")


def fuse_seqpool_concat(program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """Pool several sequences by one operator, in place (Paddle 1.8.5 seqpool_concat_fuse_pass.cc, seqpool_cvm_…)."""
    return rewrite(NAME, rule, program, scope, keep)


def rule(site: Site) -> Edit | None:
    """A concat of pooled sequences."""
    if site.op.type != "concat" or not site.op.input("X"):
        return None
    terms = [made_by(site, name, "sequence_pool", "cvm") for name in site.op.input("X")]
    if any(term is None for term in terms):
        return None
    found = [term for term in terms if term is not None]
    normalised = [term for term in found if term.op.type == "cvm"]
    if normalised and len(normalised) != len(found):
        raise Unfit("only some of the pooled sequences go through cvm")
    pools = [_pool(term) for term in found]
    _check(site, pools)
    inputs = {"X": [pool.input("X") for pool in pools]}
    attrs = {"pooltype": pools[0].op.get_attr("pooltype", "AVERAGE"), "axis": 1}
    reads = [(pool, pool.input("X")) for pool in pools]
    kind = "fusion_seqpool_concat"
    if normalised:
        kind, attrs["use_cvm"] = "fusion_seqpool_cvm_concat", True
        inputs["CVM"] = [_clicks(normalised)]
        reads += [(term, term.input("CVM")) for term in normalised]
    result = site.output("Out")
    removed = check_group({part.position: part for part in (*pools, *normalised, site)}.values(), [result], reads)
    joined = site.fresh_name(f"{result}.pooled")
    fused = site.new_operator(kind, inputs, {"Out": [joined]}, attrs)
    plain = site.new_operator("transpose", {"X": [joined]}, {"Out": [result]}, {"axis": [0, 1]})
    variables = (NewVariable(joined, result, lod_level=1),)
    return Edit(removed, site.position, (fused, plain), f"{len(pools)} pooled sequences", variables=variables)


def _pool(term: Site) -> Site:
    if term.op.type == "sequence_pool":
        return term
    if not term.op.get_attr("use_cvm", True):
        raise Unfit("the cvm leaves show and click out (use_cvm is False)")
    pool = made_by(term, term.input("X"), "sequence_pool")
    if pool is None:
        raise Unfit(f"{term.input('X')} is no pooled sequence")
    return pool


def _clicks(normalised: list[Site]) -> str:
    names = {term.input("CVM") for term in normalised}
    if len(names) != 1:
        raise Unfit(f"the cvm operators read different clicks: {', '.join(sorted(names))}")
    return names.pop()


def _check(site: Site, pools: list[Site]) -> None:
    """Raise Unfit unless matrices of one width and one level of sequences are pooled in one way."""
    if int(site.op.get_attr("axis", 0)) not in (1, -1) or site.op.inputs.get("AxisTensor"):
        raise Unfit("the pooled sequences are not put side by side (axis 1)")
    kinds = {str(pool.op.get_attr("pooltype", "AVERAGE")) for pool in pools}
    if len(kinds) != 1 or not kinds <= set(POOL_TYPES):
        raise Unfit(
            f"the sequences are pooled by {', '.join(sorted(kinds))}, not all by one of {', '.join(POOL_TYPES)}"
        )
    if len(pools) < 2:
        raise Unfit("there is one pooled sequence only")
    first = site.block.var_recursive(pools[0].input("X"))
    for pool in pools:
        name = pool.input("X")
        var = site.block.var_recursive(name)
        if float(pool.op.get_attr("pad_value", 0.0)) != 0.0:
            raise Unfit(f"empty sequences of {name} give {pool.op.attr('pad_value')}, not 0")
        if not float_type(site, name) or var.dtype != first.dtype:
            raise Unfit(f"{name} is not declared float32 or float64 like the others")
        if var.lod_level != 1 or rank(site.block, name) != 2:
            raise Unfit(f"{name} is not declared as rows of one level of sequences")
        if var.shape[1] != first.shape[1] or var.shape[1] < 1:
            raise Unfit(f"{first.name} and {name} are not declared with rows of one width")
