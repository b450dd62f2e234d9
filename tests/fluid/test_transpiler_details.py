"""`fluid.transpiler.details`: programs as lines, and which parts of variables servers have."""

from __future__ import annotations

import socket
import sys

import pytest

from fluidtool import fluid
from fluidtool.compat.check_import_scipy import check_import_scipy
from fluidtool.errors import ArgumentTypeError
from fluidtool.fluid.transpiler.details import (
    VarsDistributed,
    VarStruct,
    delete_ops,
    find_op_by_input_arg,
    find_op_by_output_arg,
    program_to_code,
    wait_server_ready,
)
from fluidtool.proto.enums import VarType


def struct(name: str, *shape: int) -> VarStruct:
    return VarStruct(name, shape, VarType.FP32, VarType.LOD_TENSOR, 0, True)


@pytest.fixture
def program() -> fluid.Program:
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [2, 3])
        fluid.layers.scale(fluid.layers.scale(x, 2.0), 3.0)
    return program


def test_a_program_is_printed_as_185_prints_it(program: fluid.Program, capsys: pytest.CaptureFixture[str]) -> None:
    delete_ops(program.global_block(), program.global_block().ops[1:])
    program_to_code(program)
    assert capsys.readouterr().out == (
        "{ // block 0\n"
        "    var scale_0.tmp_0 : fluid.VarType.LOD_TENSOR.shape(2, 3).astype(VarType.FP32)\n"
        "    var scale_1.tmp_0 : fluid.VarType.LOD_TENSOR.shape(2, 3).astype(VarType.FP32)\n"
        "    var x : fluid.VarType.LOD_TENSOR.shape(2, 3).astype(VarType.FP32)\n"
        "\n"
        "    {Out=['scale_0.tmp_0']} = scale(inputs={ScaleTensor=[], X=['x']}, bias = 0.0, bias_after_scale = True, "
        "op_device = , op_namescope = /, op_role = 0, op_role_var = [], scale = 2.0)\n"
        "}\n"
    )


def test_operators_are_found_by_what_they_read_and_write(program: fluid.Program) -> None:
    block = program.global_block()
    assert [find_op_by_input_arg(block, name) for name in ("x", "scale_0.tmp_0", "none")] == [0, 1, -1]
    assert [find_op_by_output_arg(block, "scale_1.tmp_0", reverse) for reverse in (False, True)] == [1, 1]
    assert find_op_by_output_arg(block, "x") == -1


def test_parts_of_variables_are_added() -> None:
    parts = VarsDistributed()
    parts.add_distributed_var(struct("w", 10, 8), struct("w.block1", 5, 8), offset=40, vtype="Param", endpoint="a:1")
    parts.add_distributed_var(struct("b", 8), struct("b", 8), vtype="Optimizer", endpoint="a:2")
    found = parts.get_distributed_var_by_slice("w.block1")
    assert found is not None and (found.is_slice, found.offset) == (True, 40)
    assert [part.is_slice for part in parts.get_distributed_vars_by_ep("a:2")] == [False]


def test_variables_of_a_program_are_described(program: fluid.Program) -> None:
    parts = VarsDistributed()
    parts.add_distributed_var(program.global_block().var("x"), struct("x", 2, 3), is_slice=False)
    assert parts.distributed_vars[0].origin.shape == (2, 3)


def test_servers_are_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        wait_server_ready([f"127.0.0.1:{server.getsockname()[1]}"])


def test_endpoints_are_a_list() -> None:
    with pytest.raises(ArgumentTypeError, match="found the text"):
        wait_server_ready("127.0.0.1:1")


def test_scipy_that_windows_cannot_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    check_import_scipy("posix")
    check_import_scipy("nt")  # another reason than the library


def test_scipy_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(name: str, *_: object) -> None:
        raise ImportError("DLL load failed: nothing")

    monkeypatch.setattr("builtins.__import__", fails)
    with pytest.raises(ImportError, match="install the Visual C"):
        check_import_scipy("nt")
