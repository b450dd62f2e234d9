"""Rewrites that promise equal bits, on random programs: loops, branches, operators in place, shared weights, training."""

import numpy as np
import pytest

from fluidtool.ir import Program
from fluidtool.passes.catalogue import INFERENCE_PASSES, InferencePass
from fluidtool.passes.verify import verify
from tests.support.random_programs import pick_from, random_program

EXACT = [known for known in INFERENCE_PASSES if known.exact]
KINDS = [{}, {"blocks": True}, {"feed_fetch": True}, {"trains": True}]


def known_faults(program: Program) -> set[tuple[str, str]]:
    unread = "FC103"  # what leads to nothing may now begin elsewhere
    return {(finding.code, finding.variable) for finding in verify(program) if finding.code != unread}


@pytest.mark.parametrize("rewrite", EXACT, ids=lambda known: known.name)
@pytest.mark.parametrize("seed", range(24))
def test_every_bit_stays(rewrite: InferencePass, seed: int) -> None:
    made = random_program(pick_from(seed), **KINDS[seed % len(KINDS)])
    before, faults, scope = made.run(), known_faults(made.program), made.scope()
    rewrite.run(made.program, scope, made.fetches)
    assert known_faults(made.program) <= faults
    for got, want in zip(made.run(scope=scope), before, strict=True):
        np.testing.assert_array_equal(got, want)
    assert not rewrite.run(made.program, scope, made.fetches).changed
