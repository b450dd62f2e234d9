"""The plan: every shard has a place, and it can be looked at."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fluidtool.fluid as fluid
from fluidtool.distribute.dispatchers import HashName, RoundRobin
from fluidtool.distribute.overview import balance, plan_data, plan_text, server_bytes
from fluidtool.distribute.plan import DistributePlan
from fluidtool.distribute.planning import make_plan
from fluidtool.distribute.settings import DistributedMode, Settings
from tests.distribute.support import A, B, Programs, as_bytes, built, embeddings, mlp


@cache
def small() -> Programs:
    """A job of two layers; planning changes nothing."""
    return built(mlp)


def plan_of(programs: Programs | None = None, **options: object) -> DistributePlan:
    given: dict[str, object] = {"trainer_id": 0, "trainers": 2, "servers": (A, B)} | options
    return make_plan(*(programs or small()), Settings(**given))  # type: ignore[arg-type]


def test_planning_changes_nothing() -> None:
    programs = built(mlp)
    before = as_bytes(programs)
    plan_of(programs)
    assert as_bytes(programs) == before


def test_shards_go_round_in_the_order_of_the_optimizer() -> None:
    found = [(placement.parameter.name, placement.endpoint) for placement in plan_of().placements()]
    assert found == [
        ("fc_0.b_0", A),
        ("fc_0.w_0.block0", B),
        ("fc_0.w_0.block1", A),
        ("fc_1.b_0", B),
        ("fc_1.w_0", A),
    ]


@settings(max_examples=25, deadline=None)
@given(
    servers=st.integers(1, 6),
    trainers=st.integers(1, 4),
    sync=st.booleans(),
    slices=st.booleans(),
    dispatcher=st.sampled_from([RoundRobin, HashName]),
    size=st.sampled_from([8192, 10000, 20000, 10**6]),
)
def test_every_row_of_every_parameter_lives_on_exactly_one_server(
    servers: int, trainers: int, sync: bool, slices: bool, dispatcher: type, size: int
) -> None:
    endpoints = tuple(f"h:{port}" for port in range(1, servers + 1))
    plan = make_plan(
        *small(), Settings(0, trainers, endpoints, sync, slices, min_block_size=size, dispatcher=dispatcher)
    )
    rows: Counter[str] = Counter()
    for endpoint in endpoints:
        for placement in plan.placements_on(endpoint):
            rows[placement.parameter.parameter] += placement.parameter.shape[0]
            assert placement.target == endpoint
    block = small()[0].global_block()
    assert rows == {p.name: p.shape[0] for p in block.all_parameters()}


def test_gradients_carry_the_trainers_number_only_where_servers_wait_for_all() -> None:
    def names(**options: object) -> set[str]:
        return {placement.gradient.name.rpartition("@GRAD")[2] for placement in plan_of(**options).placements()}

    assert names(trainer_id=1) == {".trainer_1", ".block0.trainer_1", ".block1.trainer_1"}
    assert names(sync=False) == {"", ".block0", ".block1"}
    assert names(trainers=1) == {"", ".block0", ".block1"}


def test_whole_variables_are_shuffled_by_the_programs_seed() -> None:
    def order(seed: int) -> list[str]:
        main, startup = built(mlp)
        main.random_seed = seed
        return [placement.parameter.name for placement in plan_of((main, startup), slice_variables=False).placements()]

    assert order(3) == order(3)
    assert sorted(order(3)) == sorted(order(4))
    assert order(3) != order(4)


def test_the_mode_of_servers_follows_the_trainers() -> None:
    def mode(**options: object) -> DistributedMode:
        return Settings(0, 2, (A,), **options).distributed_mode  # type: ignore[arg-type]

    assert mode() == DistributedMode.SYNC
    assert mode(sync=False) == DistributedMode.HALF_ASYNC
    assert mode(sync=False, runtime_split=True) == DistributedMode.ASYNC
    assert mode(sync=False, completely_not_async=True) == DistributedMode.SYNC
    assert mode(sync=False, geo=True) == DistributedMode.GEO


def test_frozen_parameters_stay_with_the_trainer() -> None:
    def network() -> object:
        x = fluid.layers.data("x", [4])
        fixed = fluid.layers.fc(x, 3, param_attr=fluid.ParamAttr(name="frozen", trainable=False), bias_attr=False)
        return fluid.layers.mean(fluid.layers.fc(fixed, 2))

    plan = plan_of(built(network))
    assert plan.parameter("frozen") is None
    assert {p.name for p in plan.parameters} == {"fc_1.w_0", "fc_1.b_0"}


def test_sparse_tables_are_looked_up_on_the_servers() -> None:
    plan = plan_of(built(embeddings))
    assert {p.name for p in plan.parameters if p.remote} == {"emb"}
    assert plan.sparse_tables == ("emb",)


def test_a_distributed_table_is_no_parameter_of_the_plan() -> None:
    plan = plan_of(built(lambda: embeddings(is_distributed=True, is_sparse=False)))
    assert plan.table is not None
    assert plan.table.sends == ("emb@GRAD.trainer_0.pserver_0", "emb@GRAD.trainer_0.pserver_1")
    assert plan.parameter("emb") is None


def test_bytes_and_balance() -> None:
    plan = plan_of()
    sizes = server_bytes(plan)
    assert sizes == {A: 4 * (200 + 10000 + 2000), B: 4 * (10000 + 10)}
    assert balance(plan) == pytest.approx(2 * 12200 / (12200 + 10010))


def test_the_plan_as_data_survives_json() -> None:
    data = json.loads(json.dumps(plan_data(plan_of())))
    assert data["servers"][0] == {"endpoint": A, "shards": 3, "bytes": 48800}
    weight = next(entry for entry in data["parameters"] if entry["name"] == "fc_0.w_0")
    assert weight["shards"][1] == {
        "name": "fc_0.w_0.block1",
        "shape": [50, 200],
        "offset": 10000,
        "bytes": 40000,
        "endpoint": A,
    }


def test_the_plan_as_text() -> None:
    lines = plan_text(plan_of()).splitlines()
    assert lines[0] == "sync, 2 trainers, RoundRobin, balance 1.10"
    assert lines[2] == "127.0.0.1:6170  3 shards  48800 B"
    assert "fc_0.w_0.block1  float32 (50, 200)  40000 B  127.0.0.1:6170" in lines
