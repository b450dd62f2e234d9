"""`compare --paddle`: our values beside those of real Paddle, operator by operator.

FLUIDTOOL_PADDLE_PYTHON names the interpreter of a Paddle 1.8.5, FLUIDTOOL_PADDLE2_PYTHON that of a 2.6.2; without them these tests
are reported as not run.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import numpy as np
import pytest

import fluidtool
from fluidtool.io.parameters import write_separate
from fluidtool.tensor import LoDTensor
from fluidtool.workflows.compare import compare
from fluidtool.workflows.inputs import Inputs
from tests.cli.support import DIGITS, PAIR, TOPICS, call, copy_of
from tests.support.golden import corpus

INPUTS = {
    DIGITS: Inputs(feeds=[str(DIGITS / "x.npy")]),
    TOPICS: Inputs(feeds=[str(TOPICS / "feed.npz")], lods=[str(TOPICS / "lod.json")]),
    PAIR: Inputs(feeds=[str(PAIR.parent / "x.npy")]),
}


@pytest.fixture(scope="module", params=["FLUIDTOOL_PADDLE_PYTHON", "FLUIDTOOL_PADDLE2_PYTHON"])
def paddle(request: pytest.FixtureRequest) -> str:
    interpreter = os.environ.get(request.param)
    if not interpreter:
        pytest.skip(f"not run: {request.param} does not name the interpreter of a real Paddle")
    return interpreter


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.name)
def test_every_value_is_that_of_real_paddle(paddle: str, path: Path) -> None:
    result = compare(fluidtool.load(path, engine="numpy"), None, INPUTS[path], paddle=paddle)
    assert result.equal and result.right.startswith("Paddle ") and not result.pairs.unpaired
    assert max(each.relative for each in result.pairs.values) < 1e-5


def test_values_within_loops_are_compared(paddle: str) -> None:
    result = compare(fluidtool.load(corpus("models") / "seq2seq_beam/combined", engine="numpy"), None, paddle=paddle)
    within = [each for each in result.pairs.values if each.place is not None and each.place.block]
    assert len(within) > 10
    # A truth value is of no dimensions in Paddle 2.6.
    assert {each.comparison.fault for each in result.differing} <= {"has shape (), expected (1,)"}


def test_a_wrong_weight_is_narrowed_to_its_operator(paddle: str, tmp_path: Path) -> None:
    folder = copy_of(DIGITS, tmp_path / "wrong")
    weight = fluidtool.load(folder).files.parameters["conv2d_1.w_0"].numpy().copy()
    weight.flat[3] += 0.5
    write_separate(folder, {"conv2d_1.w_0": LoDTensor(weight)})
    models = (fluidtool.load(each, engine="numpy") for each in (DIGITS, folder))
    result = compare(*models, INPUTS[DIGITS], paddle=paddle, bisect=tmp_path / "part")
    assert result.part is not None and (result.part.name, result.part.operators) == ("conv2d_1.tmp_0", 1)
    assert call(*shlex.split(result.part.command)[1:]).exit_code == 1


def test_an_operator_that_paddle_lacks_is_named(paddle: str, tmp_path: Path) -> None:
    program = fluidtool.load(DIGITS).program
    next(op for op in program.global_block().ops if op.type == "scale").type = "no_such_operator"
    folder = copy_of(DIGITS, tmp_path / "model")
    (folder / "__model__").write_bytes(program.serialize_to_string())
    np.save(tmp_path / "values.npy", np.zeros((1, 10), "float32"))
    result = call("compare", DIGITS, folder, "--paddle", paddle, "--feed", DIGITS / "x.npy")
    assert result.exit_code != 0 and "no_such_operator" in result.stderr
