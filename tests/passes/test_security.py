"""What a program could do is read off it, without running anything."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluidtool.errors import PolicyError
from fluidtool.io.layout import open_model
from fluidtool.ir import Program
from fluidtool.ops.registry import all_ops
from fluidtool.passes.security import DISTRIBUTED, READS, STAY_HERE, WRITES, capabilities, declared_memory, not_allowed
from fluidtool.passes.verify import verify_model
from fluidtool.proto.enums import AttrType, VarType
from fluidtool.runtime import Executor, Policy, Scope
from tests.cli.support import BIAS, DIGITS, ROOT, SAMPLES, WEIGHT, call, call_json, linear_program, write_model


def program_with(op_type: str, **attrs: Any) -> Program:
    """The linear program, which then does something else with its product."""
    program = linear_program()
    block = program.global_block()
    block.insert_op(2, type=op_type, inputs={"X": ["product"]}, outputs={}, attrs=attrs)
    return program


def saving(path: str = "/tmp/out") -> Program:
    return program_with("save", file_path=path)


def sending() -> Program:
    return program_with("send", epmap=["10.0.0.7:6174"], endpoints=["10.0.0.7:6174"], send_varnames=["w"])


def texts(program: Program) -> list[str]:
    return [found.text for found in capabilities(program)]


# ---------------------------------------------------------------- files, network, Python
@pytest.mark.parametrize("sample", ["digits", "topics", "digits_v2", "digits_training/main.pb"])
def test_the_samples_ask_for_nothing(sample: str) -> None:
    assert capabilities(open_model(SAMPLES / sample, need_parameters=False).program) == []


def test_a_program_that_writes_a_file() -> None:
    (found,) = capabilities(saving())
    assert (found.reach, found.position, found.text) == ("FC501", 2, "writes the file '/tmp/out'")


def test_a_program_that_reads_a_file() -> None:
    program = linear_program()
    program.global_block().insert_op(1, type="load", outputs={"Out": ["w"]}, attrs={"file_path": "/etc/passwd"})
    assert texts(program) == ["reads the file '/etc/passwd'"]


def test_a_program_that_opens_connections() -> None:
    (found,) = capabilities(sending())
    assert (found.reach, found.text) == ("FC502", "connects to other processes: 10.0.0.7:6174")


def test_a_program_that_listens() -> None:
    program = Program()
    program.global_block().append_op(type="listen_and_serv", attrs={"endpoint": "0.0.0.0:6174"})
    assert texts(program) == ["listens for connections: 0.0.0.0:6174"]


@pytest.mark.parametrize(("endpoints", "count"), [([], 0), (["10.0.0.7:6174"], 1)])
def test_a_table_is_remote_only_with_endpoints(endpoints: list[str], count: int) -> None:
    program = linear_program()
    op = program.global_block().insert_op(
        1, type="lookup_table", inputs={"Ids": ["x"], "W": ["w"]}, outputs={"Out": ["x"]}
    )
    op.set_attr("remote_prefetch", True, AttrType.BOOLEAN)
    op.set_attr("epmap", endpoints, AttrType.STRINGS)
    assert len(capabilities(program)) == count


def test_a_program_that_calls_python() -> None:
    assert texts(program_with("py_func", forward_callable_id=3)) == [
        "calls the Python function registered under number 3"
    ]


def test_operators_of_sub_blocks_count() -> None:
    program = linear_program()
    inner = program.create_block(0)
    inner.append_op(type="save", inputs={"X": ["w"]}, attrs={"file_path": "a"})
    (found,) = capabilities(program)
    assert found.op.block.idx == 1


def test_every_operator_that_asks_for_a_file_is_known() -> None:
    asking = set()
    for info in all_ops().values():
        source = (ROOT / info.module.removeprefix("fluidtool.").replace(".", "/")).with_suffix(".py").read_text()
        if "runtime.file_path" in source and info.side_effects:
            asking.add(info.type)
    assert asking - {"checkpoint_notify"} <= WRITES | READS  # whose servers save, by their own policies


def test_every_operator_that_talks_is_known() -> None:
    for info in all_ops().values():
        if info.module.startswith(DISTRIBUTED) and info.type not in STAY_HERE:
            program = Program()
            program.global_block().append_op(type="relu").type = info.type
            assert [found.reach for found in capabilities(program)][-1] == "FC502"


# ---------------------------------------------------------------- what a run allows
def test_what_check_finds_a_run_refuses(tmp_path: Path) -> None:
    program = saving(str(tmp_path / "stolen"))
    policy = Policy(file_roots=(tmp_path / "elsewhere",))
    scope = Scope()
    for name, value in (("w", WEIGHT), ("b", BIAS)):
        scope.var(name).set_tensor(value, [])
    assert len(not_allowed(program, policy)) == 1
    with pytest.raises(PolicyError):
        Executor(policy=policy).run(program, {"x": np.ones((1, 4), "float32")}, ["probability"], scope)
    assert not (tmp_path / "stolen").exists()


def test_what_is_allowed_is_no_finding(tmp_path: Path) -> None:
    assert not_allowed(saving(str(tmp_path / "a")), Policy(file_roots=(tmp_path,))) == []
    assert not_allowed(sending(), Policy(file_roots=(), endpoints=None)) == []
    assert not_allowed(sending(), Policy(file_roots=(), endpoints=frozenset({"10.0.0.7:6174"}))) == []


@pytest.mark.parametrize("path", ["", "a\0b", "../up", "x" * 5000])
def test_paths_that_lead_out_are_not_allowed(path: str, tmp_path: Path) -> None:
    assert len(not_allowed(saving(path or "/"), Policy(file_roots=(tmp_path,)))) == 1


def test_one_endpoint_too_many_is_not_allowed() -> None:
    program = sending()
    program.global_block().ops[2].set_attr("epmap", ["10.0.0.7:6174", "10.0.0.8:6174"])
    assert len(not_allowed(program, Policy(endpoints=frozenset({"10.0.0.7:6174"})))) == 1


# ---------------------------------------------------------------- loops
def loop(*, changing: str = "cond", before: str = "less_than", inside: str = "less_than", step: bool = True) -> Program:
    """while (i < n) i += 1: `changing` is what the body's comparison writes, `step` whether the body has the increment."""
    program = Program()
    block = program.global_block()
    for name, dtype in (("i", VarType.INT64), ("n", VarType.INT64), ("cond", VarType.BOOL), ("other", VarType.BOOL)):
        block.create_var(name=name, shape=[1], dtype=dtype)
    block.append_op(type=before, inputs={"X": ["i"], "Y": ["n"]}, outputs={"Out": ["cond"]})
    body = program.create_block(0)
    if step:
        body.append_op(type="increment", inputs={"X": ["i"]}, outputs={"Out": ["i"]}, attrs={"step": 1.0})
    body.append_op(type=inside, inputs={"X": ["i"], "Y": ["n"]}, outputs={"Out": [changing]})
    inputs, outputs = {"X": ["i", "n"], "Condition": ["cond"]}, {"Out": ["i", "cond"], "StepScopes": ["scopes"]}
    block.append_op(type="while", inputs=inputs, outputs=outputs).set_attr("sub_block", 1, AttrType.BLOCK)
    return program


def test_a_loop_that_counts_may_end() -> None:
    assert texts(loop()) == []


def test_a_loop_that_never_writes_its_condition() -> None:
    (text,) = texts(loop(changing="other"))
    assert text == "has a condition that its body never changes: once it has started, it does not end"


def test_a_loop_that_compares_what_stays_the_same() -> None:
    (text,) = texts(loop(step=False))
    assert text.startswith("computes its condition from values that its body never changes")


def test_a_loop_that_computes_its_condition_otherwise_may_end() -> None:
    assert texts(loop(step=False, inside="greater_than")) == []


def test_a_loop_that_hides_its_condition() -> None:
    program = loop()
    program.blocks[1].create_var(name="cond", shape=[1], dtype=VarType.BOOL)
    assert texts(program)[0].startswith("redeclares its condition inside")


def test_a_condition_that_a_branch_within_changes() -> None:
    program = loop(changing="other")
    branch = program.create_block(1)
    branch.append_op(type="assign", inputs={"X": ["other"]}, outputs={"Out": ["cond"]})
    owner = program.blocks[1].append_op(type="conditional_block", inputs={"Cond": ["other"]}, outputs={"Out": ["cond"]})
    owner.set_attr("sub_block", 2, AttrType.BLOCK)
    assert texts(program) == []


# ---------------------------------------------------------------- memory
def test_declared_memory() -> None:
    memory = declared_memory(linear_program(), batch=5)
    assert (memory.parameters, memory.largest_variable, memory.largest) == (4 * (12 + 3), "x", 5 * 4 * 4)


def test_memory_beyond_every_machine_is_counted_not_taken() -> None:
    program = linear_program()
    program.global_block().create_var(name="huge", shape=[2**62, 2**62], dtype=VarType.FP64)
    assert declared_memory(program).largest == 2**127


# ---------------------------------------------------------------- the command
def test_check_tells_of_files_and_network(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", saving(), w=WEIGHT, b=BIAS)
    result = call("check", folder)
    assert result.exit_code == 1 and re.search(
        r"^FC501  2 save +writes the file '/tmp/out'$", result.stdout, re.MULTILINE
    )
    assert call("check", folder, "--allow-files", "/tmp").exit_code == 0


def test_security_answers_every_question() -> None:
    result = call("check", "--security", DIGITS)
    assert result.exit_code == 0
    assert [line.split("  ")[0] for line in result.stdout.splitlines()] == [
        *("files", "network", "Python functions", "endless loops", "parameters", "activations", "largest variable")
    ]


def test_security_lists_nothing_but_what_the_program_could_do(tmp_path: Path) -> None:
    program = sending()
    program.global_block().ops[-1].set_attr("col", 7)  # FC104
    result = call("check", write_model(tmp_path / "m", program, w=WEIGHT, b=BIAS), "--security", "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert [finding["code"] for finding in found["findings"]] == ["FC502"]
    assert found["memory"]["parameter_bytes"] == 60 and found["memory"]["unknown"] == []


def test_inspect_names_what_a_program_asks_for(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", saving(), w=WEIGHT, b=BIAS)
    assert re.search(r"^asks for +files \(save\)$", call("inspect", folder).stdout, re.MULTILINE)
    assert call_json("inspect", folder)["reaches"] == {"files": ["save"]}
    assert call_json("inspect", DIGITS)["reaches"] == {}


# ---------------------------------------------------------------- weights
@pytest.mark.parametrize(("value", "code", "name"), [(np.nan, "FC305", "NaN"), (np.inf, "FC306", "infinity")])
def test_a_parameter_that_is_not_finite(value: float, code: str, name: str, tmp_path: Path) -> None:
    weight = WEIGHT.copy()
    weight[2, 1] = value
    found = verify_model(open_model(write_model(tmp_path / "m", linear_program(), w=weight, b=BIAS)))
    assert [(each.code, each.message) for each in found] == [(code, f"w contains {name} in 1 of 12 elements")]
