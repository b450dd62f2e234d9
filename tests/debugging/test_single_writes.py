"""Every value of a tensor gets a name of its own, and the program computes the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fluidtool.debugging.single_writes import with_single_writes
from fluidtool.ir import Program
from fluidtool.model import load
from fluidtool.workflows.transpile import transpile
from tests.cli.support import linear_model, linear_program
from tests.support.checkout import ROOT


def written(program: Program) -> list[str]:
    return [
        name for op in program.global_block().ops for name in op.output_arg_names if op.type not in ("feed", "fetch")
    ]


def test_a_program_without_overwritten_tensors_stays_itself() -> None:
    program = linear_program()
    assert with_single_writes(program) is program


def test_all_but_the_last_value_get_another_name(tmp_path: Path) -> None:
    folder = linear_model(tmp_path / "model", in_place=True)
    model = load(folder)
    assert written(model.program) == ["product", "sum", "sum", "probability"]
    single = with_single_writes(model.program)
    assert written(single) == ["product", "sum@1", "sum", "probability"]
    assert written(model.program).count("sum") == 2  # the program itself stays as it is
    x = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)
    expected = model.run({"x": x})["probability"].numpy()
    model.program = single
    assert np.array_equal(model.run({"x": x})["probability"].numpy(), expected)


def test_a_fed_tensor_that_is_overwritten_keeps_its_name() -> None:
    program = Program()
    block = program.global_block()
    block.create_var(name="x", shape=[-1, 4], dtype="float32")
    for _ in range(2):
        block.append_op(type="relu", inputs={"X": ["x"]}, outputs={"Out": ["x"]})
    assert with_single_writes(program) is program


def test_names_from_before_memory_optimize_are_restored(tmp_path: Path) -> None:
    transpile(ROOT / "samples/digits", ["memory-optimize"], output=tmp_path / "small")
    original = set(written(load(ROOT / "samples/digits").program))
    shared = load(tmp_path / "small").program
    assert set(written(shared)) < original
    assert set(written(with_single_writes(shared))) == original
