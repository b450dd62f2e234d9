"""From layers to the programs of every role, everything is as real Paddle 1.8.5 makes it (tests/golden/distributed.tar.xz).

Repack with real Paddle's interpreter:
    PYTHONHASHSEED=0 PYTHON tests/distribute/dump.py paddle.fluid tests/golden/distributed.tar.xz
"""

from __future__ import annotations

import tarfile
from functools import cache

import pytest

import fluidtool.fluid as fluid
from fluidtool.ir import Program
from tests.distribute.dump import roles
from tests.distribute.golden import program_differences
from tests.distribute.networks import JOBS
from tests.networks.dump import forget_name_scopes
from tests.support.golden import ARCHIVES


@cache
def theirs() -> dict[str, dict[str, bytes]]:
    """{job: {role: program}} of real Paddle."""
    found: dict[str, dict[str, bytes]] = {}
    with tarfile.open(ARCHIVES / "distributed.tar.xz") as archive:
        for member in archive:
            job, _, role = member.name.removesuffix(".pb").partition("/")
            file = archive.extractfile(member)
            assert file is not None
            found.setdefault(job, {})[role] = file.read()
    return found


@pytest.mark.filterwarnings("ignore:pserver .* has no optimize block")  # one job has more servers than shards
@pytest.mark.parametrize("name", sorted(JOBS))
def test_programs_from_layers_are_those_of_real_paddle(name: str) -> None:
    forget_name_scopes(fluid)
    _, _, arguments, config = JOBS[name]
    made = roles(fluid, *JOBS[name])
    assert set(made) == set(theirs()[name])
    args = {"mode": config.get("mode", "pserver"), "sync_mode": arguments["sync"], "config": config, **arguments}
    found = [
        f"{role}: {line}"
        for role, program in made.items()
        for line in program_differences(program, Program.parse_from_string(theirs()[name][role]), args)
    ]
    assert found == [], "\n" + "\n".join(found[:12])
