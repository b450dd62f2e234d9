"""Training programs that real Paddle 1.8.5 built follow its trajectory: losses, learning rates, gradients, final values.
So do the same networks built by our layers, which are the same programs.

`nudge_*` of a case tells how far a change of 1e-6 at the start moves the result in real Paddle; twenty times that is allowed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.ir import Program
from fluidtool.ir.roles import NAMESCOPE_ATTR
from fluidtool.tensor import LoDTensor
from tests.networks.dump import forget_name_scopes, networks
from tests.support.golden import corpus, names_in, read_arrays, read_json
from tests.support.program_diff import differences


def batch(spec: dict[str, Any], stream: dict[str, Any], step: int) -> dict[str, Any]:
    feed = {}
    for index, entry in enumerate(spec["feeds"]):
        key = f"step{step}_feed{index}"
        feed[entry["name"]] = LoDTensor(stream[key])
        feed[entry["name"]].set_lod([stream[f"{key}_lod{level}"].tolist() for level in range(entry["lod_level"])])
    return feed


def serialized(folder: Path) -> list[Program]:
    """The main and the startup program that real Paddle built."""
    return [Program.parse_from_string((folder / f"{which}.pb").read_bytes()) for which in ("main", "startup")]


def built(case: str) -> list[Program]:
    """The main and the startup program that our layers build."""
    forget_name_scopes(fluid)
    main, startup = Program(), Program()
    main.random_seed = startup.random_seed = 5
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        networks("training")[case](fluid)
    return [main, startup]


def begin(folder: Path, main: Program, startup: Program) -> tuple[fluid.Executor, fluid.Scope]:
    """A scope with the state that the case starts from."""
    executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    saved = {file.name for file in (folder / "init").iterdir()}
    with fluid.scope_guard(scope):
        executor.run(startup)
        fluid.io.load_vars(executor, str(folder / "init"), main, predicate=lambda var: var.name in saved)
    return executor, scope


@pytest.mark.parametrize("case", names_in("train"))
def test_our_layers_build_the_program_of_real_paddle(case: str) -> None:
    """Name scopes are numbered within a process, so that their numbers say nothing."""
    for mine, other in zip(built(case), serialized(corpus("train") / case), strict=True):
        assert list(differences(without_scope_numbers(mine), without_scope_numbers(other))) == []


def without_scope_numbers(program: Program) -> Program:
    program = Program.parse_from_string(program.serialize_to_string())
    for op in (op for block in program.blocks for op in block.ops if op.has_attr(NAMESCOPE_ATTR)):
        op.set_attr(NAMESCOPE_ATTR, re.sub(r"_\d+/", "/", op.attr(NAMESCOPE_ATTR)))
    return program


@pytest.mark.parametrize("source", ["serialized", "built"])
@pytest.mark.parametrize("case", names_in("train"))
def test_training_follows_real_paddle(case: str, source: str) -> None:
    folder = corpus("train") / case
    spec = read_json(folder / "case.json")
    stream, expect = read_arrays(folder / "stream.npz"), read_arrays(folder / "expect.npz")
    main, startup = serialized(folder) if source == "serialized" else built(case)
    executor, scope = begin(folder, main, startup)

    losses, rates = [], []
    for step in range(spec["steps"]):
        loss, rate = executor.run(main, batch(spec, stream, step), [spec["loss"], spec["lr"]], scope=scope)
        losses.append(np.ravel(loss)[0])
        rates.append(np.ravel(rate)[0])

    slack = 20 * float(np.max(expect.get("nudge_loss", 0)))
    np.testing.assert_allclose(rates, expect["lr"][: len(rates)], rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(losses, expect["loss"][: len(losses)], rtol=1e-4, atol=1e-6 + slack)
    moves = expect.get("nudge_move", np.zeros(len(spec["final"])))
    for index, name in enumerate(spec["final"]):
        var = scope.find_var(name)
        assert var is not None, name
        atol = 1e-6 + 20 * float(moves[index])
        np.testing.assert_allclose(
            var.get_tensor().numpy(), expect[f"final_{index}"], rtol=1e-4, atol=atol, err_msg=name
        )


@pytest.mark.parametrize("case", names_in("train"))
def test_gradients_of_the_first_step_are_real_paddles(case: str) -> None:
    folder = corpus("train") / case
    spec = read_json(folder / "case.json")
    stream, expect = read_arrays(folder / "stream.npz"), read_arrays(folder / "expect.npz")
    if not spec.get("grad0"):
        assert spec["sparse_grads"], "a case without dense gradients has sparse ones"
        return
    main, startup = serialized(folder)
    executor, scope = begin(folder, main, startup)
    gradients = executor.run(main, batch(spec, stream, 0), spec["grad0"], scope=scope)
    for index, (name, gradient) in enumerate(zip(spec["grad0"], gradients, strict=True)):
        want = expect[f"grad0_{index}"]
        atol = 1e-4 * float(np.abs(want).max(initial=0)) + 1e-7
        np.testing.assert_allclose(gradient, want, rtol=1e-3, atol=atol, err_msg=name)
