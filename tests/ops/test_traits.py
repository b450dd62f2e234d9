"""Traits: declared where the operator is, and known by type without importing it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from fluidtool.ops.context import OpContext
from fluidtool.ops.index import TRAITS
from fluidtool.ops.registry import all_ops, op, traits_of
from fluidtool.ops.traits import NO_TRAITS, Traits
from tests.support.checkout import child_environment

ASK = """
import sys
from fluidtool.ops.registry import traits_of
traits = traits_of("adam"), traits_of("conv2d"), traits_of("nce")
print(traits[0].sharded, traits[2].table, *(name for name in sys.modules if name.startswith("fluidtool.ops.")))
"""


def test_the_index_has_what_the_operators_declare() -> None:
    assert {type: info.traits for type, info in all_ops().items() if info.traits != NO_TRAITS} == TRAITS


def test_asking_for_traits_imports_no_operator() -> None:
    asked = subprocess.run(
        [sys.executable, "-c", ASK], capture_output=True, text=True, check=True, env=child_environment()
    )
    sharded, _, imported = asked.stdout.partition(" Weight ")
    assert sharded == "('Moment1', 'Moment2')"
    assert not {name.split(".")[2] for name in imported.split()} & {"optimizers", "nn", "embedding"}


@pytest.mark.parametrize("type", ["relu", "run_program", "of_tomorrow"])
def test_operators_without_traits_have_the_defaults(type: str) -> None:
    assert traits_of(type) == NO_TRAITS


@pytest.mark.parametrize(
    "traits",
    [Traits(table="Y"), Traits(lod_branch="Y"), Traits(sharded=("X", "Y")), Traits(sharded=(), sharded_if=("a", "Y"))],
)
def test_traits_name_inputs_that_the_operator_has(traits: Traits) -> None:
    with pytest.raises(ValueError, match=r"its traits name inputs \['Y'\] that it does not have"):

        @op("with_traits", inputs="X", outputs="Out", traits=traits)
        def kernel(ctx: OpContext, X: Any) -> Any: ...

    assert traits_of("with_traits") == NO_TRAITS


def test_what_is_declared_is_what_is_not_the_default() -> None:
    assert Traits(gradient_scope=False, table="W", sharded=()).declared() == {
        "gradient_scope": False,
        "sharded": (),
        "table": "W",
    }
