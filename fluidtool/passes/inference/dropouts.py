"""`drop-dropout`: dropout, which drops nothing in inference, goes."""

from __future__ import annotations

from collections.abc import Collection

from fluidtool.ir import Program
from fluidtool.passes.inference.identities import without
from fluidtool.passes.inference.rewriting import Edit, MatchContext, NoMatch, rewrite
from fluidtool.passes.result import PassResult
from fluidtool.runtime.scope import Scope

NAME = "drop-dropout"


def drop_dropout(program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """Take out dropout under is_test, in place (Paddle 1.8.5 simplify_with_basic_ops_pass.cc).

    `upscale_in_train` leaves its input as it is; `downgrade_in_infer` becomes a `scale` by 1 - dropout_prob.
    """
    return rewrite(NAME, rule, program, scope, keep, exact=True)


def rule(match: MatchContext) -> Edit | None:
    """The edit for one dropout; raises NoMatch with the reason why not."""
    op = match.op
    if op.type not in ("dropout", "dropout_nd"):
        return None
    if not op.get_attr("is_test", False):
        raise NoMatch("it drops (is_test is not set); clone(for_test=True) makes an inference program")
    for name in op.output("Mask"):
        if match.readers(name) or name in match.keep:
            raise NoMatch(f"its output Mask ({name}) is used")
    if op.get_attr("dropout_implementation", "downgrade_in_infer") == "upscale_in_train":
        return without(match, match.input("X"))
    factor = 1.0 - float(op.get_attr("dropout_prob", 0.5))
    attrs = {"scale": factor, "bias": 0.0, "bias_after_scale": True}
    scale = match.new_operator("scale", {"X": op.input("X")}, {"Out": op.output("Out")}, attrs)
    return Edit(frozenset({match.position}), match.position, (scale,), f"a scale by {factor:g}")
