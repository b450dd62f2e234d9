"""`drop-identity`: operators that leave their input as it is go, and the numbers stay."""

import numpy as np

from fluidtool.ir import Program
from fluidtool.passes.inference.identities import drop_identity
from fluidtool.runtime import Executor, Scope


def program_with(scale: float, *, fetched: str = "z") -> Program:
    program = Program()
    block = program.global_block()
    for name in ("x", "y", "z"):
        block.create_var(name=name, shape=[-1, 3], dtype="float32")
    block.append_op(type="scale", inputs={"X": ["x"]}, outputs={"Out": ["y"]}, attrs={"scale": scale, "bias": 0.0})
    block.append_op(type="relu", inputs={"X": ["y"]}, outputs={"Out": ["z"]})
    return program


def run(program: Program, fetch: str) -> np.ndarray:
    x = np.array([[-1.0, 0.5, 2.0]], np.float32)
    return np.asarray(Executor().run(program, {"x": x}, [fetch], Scope())[0])


def test_a_scale_by_one_goes() -> None:
    program = program_with(1.0)
    before = run(program, "z")
    result = drop_identity(program, Scope())
    assert [op.type for op in program.global_block().ops] == ["relu"]
    assert [decision.variable for decision in result.done] == ["y"]
    assert "y" not in program.global_block().vars
    np.testing.assert_array_equal(run(program, "z"), before)


def test_another_scale_stays_and_is_no_candidate() -> None:
    program = program_with(2.0)
    assert drop_identity(program, Scope()).decisions == ()


def test_a_result_to_be_kept_stays() -> None:
    program = program_with(1.0)
    result = drop_identity(program, Scope(), keep=["y"])
    assert not result.changed
    assert [decision.reason for decision in result.left] == ["y is fetched or to be kept"]
