"""`fluidtool transpile --distribute`: the programs of every role in a folder, or the plan of them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

import fluidtool.distribute.roles  # noqa: F401  (imported before the conftest of this folder switches building off)
from fluidtool.ir import Program
from tests.cli.support import call, call_json, error_of, everything_below
from tests.support.golden import corpus

A, B = "127.0.0.1:6170", "127.0.0.1:6171"
SERVERS = ("--distribute", "--pservers", f"{A},{B}", "--trainers", "2")
ROLE_VARIABLES = ("PADDLE_TRAINING_ROLE", "TRAINING_ROLE", "PADDLE_TRAINER_IPS", "PADDLE_TRAINER_ENDPOINTS")


@pytest.fixture(autouse=True)
def no_role(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever runs the tests has no part in a job."""
    for name in ROLE_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def programs(tmp_path: Path) -> tuple[Any, ...]:
    """The arguments for a training program and its startup program."""
    source = corpus("dist") / "_sources" / "mlp_adam"
    for name in ("main.pb", "startup.pb"):
        (tmp_path / name).write_bytes((source / name).read_bytes())
    return ("transpile", tmp_path / "main.pb", "--startup", tmp_path / "startup.pb")


def types(path: Path) -> set[str]:
    program = Program.parse_from_string(path.read_bytes())
    return {op.type for block in program.blocks for op in block.ops}


def test_every_role_gets_its_programs_and_a_manifest_lists_them(programs: tuple[Any, ...], tmp_path: Path) -> None:
    out = tmp_path / "job"
    result = call(*programs, *SERVERS, "-o", out)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == f"programs of 4 roles saved to {out}\n"
    roles = ("trainer_0", "trainer_1", "pserver_0", "pserver_1")
    files = {f"{role}/{kind}.pb" for role in roles for kind in ("main", "startup")}
    assert everything_below(out) == {"manifest.json", *roles, *files}
    manifest = json.loads((out / "manifest.json").read_text())
    assert {key: manifest[key] for key in ("format", "mode", "sync", "pservers", "trainers")} == {
        "format": 1,
        "mode": "pserver",
        "sync": True,
        "pservers": [A, B],
        "trainers": 2,
    }
    assert [(role["role"], role["id"], role["endpoint"]) for role in manifest["roles"]] == [
        ("trainer", 0, None),
        ("trainer", 1, None),
        ("pserver", 0, A),
        ("pserver", 1, B),
    ]
    for role in manifest["roles"]:
        for kind in ("main", "startup"):
            data = (out / role[kind]["file"]).read_bytes()
            assert role[kind]["bytes"] == len(data)
            assert role[kind]["sha256"] == hashlib.sha256(data).hexdigest()
    assert {"send", "recv"} <= types(out / "trainer_1/main.pb")
    assert "adam" not in types(out / "trainer_1/main.pb")
    assert {"listen_and_serv", "adam"} <= types(out / "pserver_1/main.pb")


def test_the_inputs_stay_as_they_are(programs: tuple[Any, ...], tmp_path: Path) -> None:
    before = [path.read_bytes() for path in (programs[1], programs[3])]
    assert call(*programs, *SERVERS, "-o", tmp_path / "job").exit_code == 0
    assert [path.read_bytes() for path in (programs[1], programs[3])] == before


def test_the_same_command_writes_the_same_bytes(programs: tuple[Any, ...], tmp_path: Path) -> None:
    first = call_json(*programs, *SERVERS, "-o", tmp_path / "one")
    assert call_json(*programs, *SERVERS, "-o", tmp_path / "two") == first


@pytest.mark.parametrize(
    ("options", "roles"),
    [
        (("--trainer-id", "1"), ["trainer_1"]),
        (("--all",), ["pserver_0", "pserver_1", "trainer_0", "trainer_1"]),
    ],
)
def test_roles_are_chosen(
    programs: tuple[Any, ...], tmp_path: Path, options: tuple[str, ...], roles: list[str]
) -> None:
    assert call(*programs, *SERVERS, *options, "-o", tmp_path / "job").exit_code == 0
    assert sorted(path.name for path in (tmp_path / "job").iterdir() if path.is_dir()) == roles


@pytest.mark.parametrize(
    ("environment", "role"),
    [
        ({"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": "1"}, "trainer_1"),
        ({"TRAINING_ROLE": "PSERVER", "POD_IP": "127.0.0.1", "PADDLE_PORT": "6171"}, "pserver_1"),
    ],
)
def test_the_environment_gives_role_and_endpoints(
    programs: tuple[Any, ...], tmp_path: Path, environment: dict[str, str], role: str
) -> None:
    job = {"PADDLE_PSERVERS_IP_PORT_LIST": f"{A},{B}", "PADDLE_TRAINERS_NUM": "2"}
    result = call(*programs, "--distribute", "-o", tmp_path / "job", env=job | environment)
    assert result.exit_code == 0, result.stderr
    assert [path.name for path in (tmp_path / "job").iterdir() if path.is_dir()] == [role]


@pytest.mark.parametrize(("mode", "operator"), [("nccl2", "gen_nccl_id"), ("collective", "c_gen_nccl_id")])
def test_modes_without_servers(programs: tuple[Any, ...], tmp_path: Path, mode: str, operator: str) -> None:
    options = ("--distribute", "--mode", mode, "--trainers", f"{A},{B}", "-o", tmp_path / "job")
    assert call(*programs, *options).exit_code == 0
    for trainer in (0, 1):
        assert operator in types(tmp_path / f"job/trainer_{trainer}/startup.pb")


def test_asynchronous_trainers_have_no_barrier(programs: tuple[Any, ...], tmp_path: Path) -> None:
    assert call(*programs, *SERVERS, "--async", "-o", tmp_path / "job").exit_code == 0
    assert "send_barrier" not in types(tmp_path / "job/trainer_0/main.pb")


# ---------------------------------------------------------------- the plan
def test_the_plan_shows_what_lives_where_and_writes_nothing(programs: tuple[Any, ...], tmp_path: Path) -> None:
    before = everything_below(tmp_path)
    result = call(*programs, *SERVERS, "--plan")
    assert result.exit_code == 0, result.stderr
    lines = [line.split() for line in result.stdout.splitlines()]
    assert [A, "4", "130", "KiB", "49.8", "%"] in lines
    assert ["fc_0.w_0.block1", "float32", "(65,", "300)", "76.2", "KiB", A] in lines
    assert everything_below(tmp_path) == before


def test_the_plan_for_programs(programs: tuple[Any, ...]) -> None:
    plan = call_json(*programs, *SERVERS, "--plan", "--no-slice", "--split-method", "HashName")
    assert (plan["split_method"], plan["slice_variables"]) == ("HashName", False)
    assert all(len(parameter["shards"]) == 1 for parameter in plan["parameters"])
    assert sum(server["shards"] for server in plan["servers"]) == len(plan["parameters"])


def test_the_least_size_of_a_shard(programs: tuple[Any, ...]) -> None:
    plan = call_json(*programs, *SERVERS, "--plan", "--min-block-size", "30000")
    assert [len(parameter["shards"]) for parameter in plan["parameters"]] == [1] * len(plan["parameters"])


# ---------------------------------------------------------------- faults
def test_a_folder_that_is_there_is_replaced_only_with_force(programs: tuple[Any, ...], tmp_path: Path) -> None:
    out = tmp_path / "job"
    out.mkdir()
    (out / "mine.txt").write_text("keep")
    assert "already exists" in error_of(call(*programs, *SERVERS, "-o", out))
    assert everything_below(out) == {"mine.txt"}
    assert call(*programs, *SERVERS, "-o", out, "--force").exit_code == 0
    assert "manifest.json" in everything_below(out)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--distribute", "--trainers", "2"), "give the parameter servers, --pservers HOST:PORT"),
        (("--distribute", "--pservers", A), "nothing says the number of the trainers; give --trainers"),
        (
            ("--distribute", "--pservers", "here", "--trainers", "2"),
            "pservers must list host:port, such as 127.0.0.1:6174,127.0.0.1:6175, found 'here'",
        ),
        (("--distribute", "--pservers", f"{A},{A}", "--trainers", "2"), f"pservers names {A} twice"),
        (("--distribute", "--pservers", A, "--trainers", "0"), "trainers must be at least 1, found 0"),
        (
            ("--distribute", "--pservers", A, "--trainers", f"{A},{B}"),
            "with parameter servers, trainers must be a number",
        ),
        ((*SERVERS, "--trainer-id", "2"), "trainer_id must be between 0 and 1 for 2 trainers, found 2"),
        ((*SERVERS, "--trainer-id", "1", "--all"), "all roles and a single trainer contradict each other"),
        (
            (*SERVERS, "--min-block-size", "10"),
            "min_block_size must be a number of elements of at least 8192, found 10",
        ),
        (("--distribute", "--mode", "nccl2"), "nothing says the endpoints of the trainers; give --trainers"),
        (("--distribute", "--mode", "collective", "--trainers", A), "invalid trainer number in distributed: 1"),
    ],
)
def test_what_cannot_work_leaves_nothing(
    programs: tuple[Any, ...], tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    before = everything_below(tmp_path)
    assert message in error_of(call(*programs, *options, "-o", tmp_path / "job"))
    assert everything_below(tmp_path) == before


def test_without_an_output_there_is_only_the_plan(programs: tuple[Any, ...]) -> None:
    assert "give -o DIR, or --plan to only show the plan" in error_of(call(*programs, *SERVERS))


def test_modes_without_servers_have_no_plan(programs: tuple[Any, ...]) -> None:
    options = ("--distribute", "--mode", "nccl2", "--trainers", f"{A},{B}", "--plan")
    assert "a plan shows how shards are placed on parameter servers; nccl2 mode has none" in error_of(
        call(*programs, *options)
    )


def test_a_startup_program_that_is_not_there(programs: tuple[Any, ...], tmp_path: Path) -> None:
    missing = tmp_path / "none.pb"
    result = call("transpile", programs[1], "--startup", missing, *SERVERS, "--plan")
    assert "none.pb" in error_of(result)


def test_the_program_may_be_that_of_a_folder(programs: tuple[Any, ...], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    programs[1].rename(folder / "__model__")
    assert call("transpile", folder, *programs[2:], *SERVERS, "--plan").exit_code == 0


def test_a_transpiled_program_is_not_transpiled_again(programs: tuple[Any, ...], tmp_path: Path) -> None:
    assert call(*programs, *SERVERS, "-o", tmp_path / "job").exit_code == 0
    trainer = tmp_path / "job/trainer_0"
    result = call("transpile", trainer / "main.pb", "--startup", trainer / "startup.pb", *SERVERS, "--plan")
    assert "has already been transpiled" in error_of(result)
