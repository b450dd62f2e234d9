"""Which server gets which shard."""

from __future__ import annotations

import subprocess
import sys
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluidtool.distribute.dispatchers import HashName, PSDispatcher, RoundRobin
from fluidtool.distribute.planning import make_plan
from fluidtool.distribute.settings import Settings
from fluidtool.distribute.sharding import Shard
from fluidtool.errors import ArgumentTypeError, UnsupportedOperatorError, UsageError
from fluidtool.proto.enums import VarType
from tests.distribute.support import A, B, C, built, mlp
from tests.support.checkout import child_environment

SERVERS = [A, B, C]


def shard(parameter: str, index: int, suffix: str = "") -> Shard:
    return Shard(f"{parameter}{suffix}.block{index}", parameter, index, 0, (1,), VarType.FP32, VarType.LOD_TENSOR)


def test_round_robin_goes_on_over_calls_and_begins_anew_after_reset() -> None:
    rule = RoundRobin(SERVERS)
    assert rule.dispatch(["a", "b"]) == [A, B]
    assert rule.dispatch(["c", "d"]) == [C, A]
    rule.reset()
    assert rule.dispatch(["a"]) == [A]


def test_hash_name_takes_the_crc_of_a_name() -> None:
    assert HashName(SERVERS).dispatch(["fc_0.w_0"]) == [SERVERS[crc32(b"fc_0.w_0") % 3]]


@given(st.text(min_size=1, max_size=20), st.integers(1, 9))
def test_hash_name_puts_the_shards_of_a_parameter_on_different_servers(name: str, servers: int) -> None:
    endpoints = [f"h:{port}" for port in range(1, servers + 1)]
    found = HashName(endpoints).dispatch([shard(name, index) for index in range(servers)])
    assert sorted(found) == sorted(endpoints)


def test_hash_name_sends_a_gradient_to_where_its_parameter_is() -> None:
    rule = HashName(SERVERS)
    assert rule.dispatch([shard("w", 1, "@GRAD")]) == rule.dispatch([shard("w", 1)])


def test_hash_name_agrees_between_processes() -> None:
    code = (
        f"from fluidtool.distribute.dispatchers import HashName; print(HashName({SERVERS}).dispatch(['fc_0.w_0', 'é']))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=child_environment(PYTHONHASHSEED=seed),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert found == {f"{HashName(SERVERS).dispatch(['fc_0.w_0', 'é'])}\n"}


def test_a_rule_of_ones_own_decides() -> None:
    class Last(PSDispatcher):
        def dispatch(self, varlist):
            return [self.eps[-1] for _ in varlist]

    plan = make_plan(*built(mlp), Settings(0, 1, (A, B), slice_variables=False, dispatcher=Last))
    assert {placement.endpoint for placement in plan.placements()} == {B}


def test_a_rule_that_answers_something_else_is_refused() -> None:
    class Elsewhere(PSDispatcher):
        def dispatch(self, varlist):
            return ["10.0.0.1:1" for _ in varlist]

    with pytest.raises(UsageError, match=r"Elsewhere\.dispatch returned .*expected one of 127\.0\.0\.1:6170"):
        make_plan(*built(mlp), Settings(0, 1, (A, B), dispatcher=Elsewhere))


def test_a_rule_without_dispatch_says_what_is_missing() -> None:
    class Empty(PSDispatcher):
        pass

    with pytest.raises(UnsupportedOperatorError, match=r"Empty has no dispatch\(varlist\)"):
        Empty([A]).dispatch([])


def test_a_rule_that_parts_gradients_from_parameters_is_warned_of() -> None:
    class ByLength(PSDispatcher):
        def dispatch(self, varlist):
            return [self.eps[len(var.name) % len(self.eps)] for var in varlist]

    with pytest.warns(UserWarning, match=r"sends the gradient of .* its parameter is elsewhere; use RoundRobin"):
        make_plan(*built(mlp), Settings(0, 1, (A, B), dispatcher=ByLength))


def test_a_rule_that_piles_up_shards_is_warned_of() -> None:
    class First(PSDispatcher):
        def dispatch(self, varlist):
            return [self.eps[0] for _ in varlist]

    with pytest.warns(UserWarning, match=r"several shards of fc_0\.w_0 on one server, which trains only the first"):
        make_plan(*built(mlp), Settings(0, 1, (A, B), dispatcher=First))


@pytest.mark.parametrize("wrong", ["RoundRobin", PSDispatcher, dict, RoundRobin([A])])
def test_what_is_no_rule_is_refused(wrong: object) -> None:
    with pytest.raises(ArgumentTypeError, match=r"split_method takes RoundRobin, HashName or another class"):
        Settings(0, 1, (A,), dispatcher=wrong)  # type: ignore[arg-type]
