"""Programs that nobody means well with: every command answers with a result or with one clear error, never with exit code 70."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fluidtool.ir import Program
from fluidtool.proto import framework_pb2 as pb
from fluidtool.proto.enums import AttrType
from tests.cli.support import BIAS, DIGITS, WEIGHT, call, linear_program, write_model

FEED, MUL, SOFTMAX, FETCH = 0, 1, 4, 5  # operators of the linear program
Spoil = Callable[[Any], object]
CASES: dict[str, tuple[Spoil, int]] = {}


def case(exit_code: int) -> Callable[[Spoil], Spoil]:
    """A way to spoil the linear program, and the exit code of a run of it."""

    def register(spoil: Spoil) -> Spoil:
        CASES[spoil.__name__] = spoil, exit_code
        return spoil

    return register


def attribute(op: Any, name: str) -> Any:
    return next((attr for attr in op.attrs if attr.name == name), None) or op.attrs.add(name=name, type=pb.INT)


def variable(desc: Any, name: str) -> Any:
    return next(var for var in desc.blocks[0].vars if var.name == name).type.lod_tensor


@case(3)
def a_block_within_itself(desc: Any) -> None:
    inner = desc.blocks.add(idx=1, parent_idx=0)
    owner = inner.ops.add(type="while")
    owner.attrs.add(name="sub_block", type=pb.BLOCK, block_idx=1)
    desc.blocks[0].ops.add(type="while").attrs.add(name="sub_block", type=pb.BLOCK, block_idx=1)


@case(3)
def blocks_nested_200_deep(desc: Any) -> None:
    for index in range(1, 201):
        desc.blocks.add(idx=index, parent_idx=index - 1)
        owner = desc.blocks[index - 1].ops.add(type="conditional_block")
        owner.attrs.add(name="sub_block", type=pb.BLOCK, block_idx=index)


@case(2)
def a_feed_of_nothing(desc: Any) -> None:
    del desc.blocks[0].ops[FEED].outputs[:]


@case(2)
def a_fetch_of_nothing(desc: Any) -> None:
    del desc.blocks[0].ops[FETCH].inputs[0].arguments[:]


@case(2)
def a_column_that_is_a_list(desc: Any) -> None:
    attribute(desc.blocks[0].ops[FEED], "col").type = pb.SCALARS


@case(2)
def a_column_without_a_type(desc: Any) -> None:
    attribute(desc.blocks[0].ops[FEED], "col").ClearField("type")


@case(2)
def a_number_that_is_names(desc: Any) -> None:
    attribute(desc.blocks[0].ops[MUL], "y_num_col_dims").type = pb.VARS


@case(2)
def an_axis_that_is_text(desc: Any) -> None:
    attr = attribute(desc.blocks[0].ops[SOFTMAX], "axis")
    attr.type, attr.s = pb.STRING, b"last"


@case(3)
def a_call_stack_that_is_a_truth_value(desc: Any) -> None:
    attribute(desc.blocks[0].ops[MUL], "op_callstack").type = pb.BOOLEAN


@case(0)
def a_call_stack_that_is_not_utf_8(desc: Any) -> None:
    attr = attribute(desc.blocks[0].ops[MUL], "op_callstack")
    attr.type = pb.STRINGS
    attr.strings.append(b'  File "\xff\xfe.py", line 1, in \xc3')


@case(2)
def a_product_of_two_inputs(desc: Any) -> None:
    desc.blocks[0].ops[MUL].inputs[0].arguments.append("b")


@case(2)
def a_product_without_a_result(desc: Any) -> None:
    del desc.blocks[0].ops[MUL].outputs[0].arguments[:]


@case(3)
def an_input_of_70_dimensions(desc: Any) -> None:
    variable(desc, "x").tensor.dims.extend([1] * 70)


@case(3)
def sequences_of_2_billion_levels(desc: Any) -> None:
    variable(desc, "x").lod_level = 2**31 - 1


@case(2)
def an_input_beyond_every_memory(desc: Any) -> None:
    dims = variable(desc, "x").tensor.dims
    del dims[:]
    dims.extend([2**62, 2**62])


@case(3)
def a_parameter_beyond_every_memory(desc: Any) -> None:
    variable(desc, "w").tensor.dims.extend([2**62])


@case(2)
def a_constant_beyond_every_memory(desc: Any) -> None:
    op = pb.OpDesc(type="fill_constant")
    op.outputs.add(parameter="Out").arguments.append("x")
    op.attrs.add(name="shape", type=int(AttrType.LONGS)).longs.extend([2**50, 2**50])
    desc.blocks[0].ops[FEED].CopyFrom(op)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder for each case, with parameters."""
    folders = {}
    for name, (spoil, _) in CASES.items():
        folder = write_model(tmp_path_factory.mktemp("hostile") / name, linear_program(), w=WEIGHT, b=BIAS)
        desc = pb.ProgramDesc.FromString((folder / "__model__").read_bytes())
        spoil(desc)
        (folder / "__model__").write_bytes(desc.SerializePartialToString())
        folders[name] = folder
    return folders


COMMANDS: dict[str, tuple[str, ...]] = {
    "inspect": ("inspect",),
    "details": ("inspect", "--with-details"),
    "json": ("inspect", "--with-details", "--json"),
    "text": ("inspect", "--format", "text"),
    "plan": ("inspect", "--plan"),
    "check": ("check",),
    "security": ("check", "--security"),
    "sarif": ("check", "--format", "sarif"),
    "junit": ("check", "--format", "junit"),
    "github": ("check", "--format", "github"),
    "transpile": ("transpile", "--all-inference", "--memory-optimize"),
    "prune": ("prune", "--targets", "sum", "-o", "out"),
    "reshape": ("reshape", "x:[5,4]", "-o", "out"),
    "convert": ("convert", "-o", "out.onnx"),
    "layout": ("convert", "--to", "combined", "-o", "layout"),
    "page": ("view", "-o", "graph.html"),
    "picture": ("view", "-o", "graph.svg", "--fold", "always"),
    "dot": ("view", "-o", "graph.dot"),
    "profile": ("profile", "--random", "--repeat", "1"),
    "ops": ("ops", "--coverage"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_answers(
    command: str, name: str, models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = COMMANDS[command]
    at = len(words) if command == "ops" else 1
    result = call(*words[:at], models[name], *words[at:])
    assert result.exit_code in (0, 1, 2, 3, *((4,) if command in ("convert", "reshape") else ())), result.stderr
    assert "internal error" not in result.stderr and "fault of the pass" not in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("engine", ["auto", "numpy"])
def test_a_run_ends_as_documented(engine: str, name: str, models: dict[str, Path]) -> None:
    result = call("run", models[name], "--random", "--engine", engine)
    assert result.exit_code == CASES[name][1], result.stderr


@pytest.mark.parametrize("name", CASES)
def test_diff_shows_what_it_can(name: str, models: dict[str, Path]) -> None:
    result = call("diff", models[name], DIGITS)
    assert result.exit_code in (1, 3), result.stderr


def test_the_cases_spoil_a_sound_program() -> None:
    types = [op.type for op in linear_program().global_block().ops]
    assert [types[at] for at in (FEED, MUL, SOFTMAX, FETCH)] == ["feed", "mul", "softmax", "fetch"]
    assert isinstance(linear_program(), Program)
