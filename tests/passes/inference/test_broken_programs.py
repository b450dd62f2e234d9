"""Rewrites of programs that lack slots, attributes, declarations and parameters: they leave what they cannot read."""

from __future__ import annotations

import random

import pytest

from fluidtool.ir import Program
from fluidtool.passes.catalogue import INFERENCE_PASSES
from fluidtool.runtime import Scope
from tests.support.random_programs import pick_from, random_program


def break_somewhere(program: Program, scope: Scope, chance: random.Random) -> None:
    """Take a slot, an attribute, a declaration or a parameter away, or mix names up."""
    ops = [op for block in program.blocks for op in block.ops]
    op, block = chance.choice(ops), program.global_block()
    match chance.randrange(6):
        case 0 if op.inputs:
            op.inputs.pop(chance.choice(op.input_names))
        case 1 if op.inputs:
            op.set_input(chance.choice(op.input_names), [])
        case 2 if op.outputs:
            op.outputs.pop(chance.choice(op.output_names))
        case 3 if op.attr_names:
            op.remove_attr(chance.choice(op.attr_names))
        case 4 if op.inputs:
            op.set_input(chance.choice(op.input_names), [chance.choice(list(block.vars))])
        case _:
            name = chance.choice(list(block.vars))
            scope.erase([name])
            if chance.random() < 0.5:
                block.remove_var(name)


@pytest.mark.parametrize("seed", range(60))
def test_nothing_is_raised(seed: int) -> None:
    made, chance = random_program(pick_from(seed), largest=20, blocks=bool(seed % 2)), random.Random(seed)
    scope = made.scope()
    for _ in range(chance.randint(1, 6)):
        break_somewhere(made.program, scope, chance)
    for known in INFERENCE_PASSES:
        known.run(made.program, scope, made.fetches)
