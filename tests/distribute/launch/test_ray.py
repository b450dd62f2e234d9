"""The Ray engine on a local Ray: an actor that is killed on the way comes back, and the result is that of one process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from fluidtool.distribute.launch.blueprint import draw
from fluidtool.distribute.launch.hosts import token_for
from tests.cli.support import call, error_of
from tests.distribute.launch.jobs import alone, parameters_of, transpile, write_data, write_programs
from tests.distribute.launch.test_whole_jobs import agree, training, wait_for
from tests.support.checkout import child_environment

needs_ray = pytest.mark.skipif(
    find_spec("ray") is None, reason="Ray is not installed here: pip install 'fluidtool[ray]' (350 MB)"
)


@needs_ray
def test_a_killed_actor_comes_back_from_its_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="parameter servers talk by gRPC: pip install 'fluidtool[dist]'")
    programs, kept = write_programs(tmp_path), tmp_path / "kept"
    job = transpile(programs, "--pservers", "127.0.0.1:6174", "--trainers", "2")
    options = ["--checkpoint", str(kept), "--checkpoint-every", "4", "--restarts", "2", "--json"]
    words = ["launch", "--engine", "ray", *options, str(job), *training(write_data(tmp_path), tmp_path / "saved", 4)]
    said = tmp_path / "said.txt"
    with (
        said.open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "fluidtool", *words],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=child_environment(),
        ) as running,
    ):
        assert running.stdout is not None
        first = running.stdout.readline()
        assert first, said.read_text()
        start = json.loads(first)
        role = start["processes"]["trainer_1"]
        actor = int(Path(f"/proc/{role}/stat").read_text().rpartition(")")[2].split()[1])
        for name in start["processes"]:
            wait_for(kept, name, 4)
        os.kill(actor, signal.SIGKILL)
        written, _ = running.communicate(timeout=300)
    lines = [json.loads(line) for line in written.splitlines()]
    assert running.returncode == 0, said.read_text()
    restarts = [line["text"] for line in lines if line["event"] == "restart"]
    assert restarts == ["trainer_1 was killed by SIGKILL; restart 1 of 2"]
    again = next(line for line in lines if line["event"] == "start")
    assert again["step"] is not None and again["step"] >= 4 and again["processes"].keys() == start["processes"].keys()
    agree(parameters_of(programs, tmp_path / "saved"), alone(programs, 2, 4))


def test_without_ray_the_way_to_install_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    (tmp_path / "script.py").write_text("")
    result = call("launch", "--engine", "ray", tmp_path / "script.py")
    assert "the engine ray needs Ray; install it with: pip install 'fluidtool[ray,dist]'" in error_of(result)


class RayError(Exception):
    """The root of Ray's own errors."""


@pytest.mark.parametrize("error", [ConnectionError, RuntimeError, RayError])
@pytest.mark.parametrize("address", ["auto", "ray://head:10001"])
def test_where_a_cluster_is_not_reached_the_token_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, error: type[Exception]
) -> None:
    def init(**options: object) -> None:
        raise error("nobody lets me in")

    ray = SimpleNamespace(init=init, exceptions=SimpleNamespace(RayError=RayError))
    monkeypatch.setitem(sys.modules, "ray", ray)
    (tmp_path / "script.py").write_text("")
    said = error_of(call("launch", "--engine", "ray", "--ray-address", address, tmp_path / "script.py"))
    assert f"Ray at {address} cannot be used: nobody lets me in" in said
    assert "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to that token" in said


def test_endpoints_are_not_the_user_s(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("")
    result = call("launch", "--engine", "ray", "--pservers", "127.0.0.1:6174", tmp_path / "script.py")
    assert "with the engine ray roles choose their endpoints themselves; give the numbers" in error_of(result)


def test_what_an_actor_is_made_from_is_small(tmp_path: Path) -> None:
    import pickle

    (tmp_path / "script.py").write_text("")
    assert len(pickle.dumps(draw(tmp_path / "script.py", servers="2", trainers="100"))) < 10_000


@pytest.mark.parametrize(
    ("endpoints", "environment", "made"),
    [
        (["127.0.0.1:1"], {}, False),
        (["10.0.0.1:1", "10.0.0.2:1"], {}, True),
        (["10.0.0.1:1"], {"FLUIDTOOL_TOKEN": "given by the user"}, False),
        (["10.0.0.1:1"], {"FLUIDTOOL_INSECURE": "1"}, False),
    ],
)
def test_servers_that_other_machines_reach_get_a_token(
    endpoints: list[str], environment: dict[str, str], made: bool
) -> None:
    assert bool(token_for(endpoints, environment)) is made
