"""Flags, versions, install_check, and the names of `fluid.core` that scripts use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import ArgumentTypeError, NotFiniteError, NotOfferedError, UnsupportedOperatorError, UsageError
from fluidtool.fluid import core


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        yield
    fluid.set_flags({"FLAGS_check_nan_inf": False})


# ---------------------------------------------------------------- flags
def logarithm() -> Any:
    y = fluid.layers.log(fluid.layers.data("x", [1]))
    return fluid.Executor(fluid.CPUPlace()).run(feed={"x": np.array([[-1.0]], "float32")}, fetch_list=[y])


def test_a_flag_makes_runs_stop_at_nan() -> None:
    assert np.isnan(logarithm()[0]).all()
    fluid.set_flags({"FLAGS_check_nan_inf": True})
    with pytest.raises(NotFiniteError, match="operator log"):
        logarithm()


def test_the_environment_sets_that_flag_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAGS_check_nan_inf", "1")
    with pytest.raises(NotFiniteError, match="operator log"):
        logarithm()


def test_flags_are_kept_in_their_types() -> None:
    fluid.set_flags({"FLAGS_eager_delete_tensor_gb": 1})
    assert fluid.get_flags(["FLAGS_eager_delete_tensor_gb"]) == {"FLAGS_eager_delete_tensor_gb": 1.0}
    assert fluid.get_flags("FLAGS_benchmark") == {"FLAGS_benchmark": False}


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: fluid.set_flags(["FLAGS_use_mkldnn"]), ArgumentTypeError, "should be a dict"),
        (lambda: fluid.set_flags({"FLAGS_nosuch": 1}), UsageError, "FLAGS_nosuch cannot set its value"),
        (lambda: fluid.get_flags(3), ArgumentTypeError, "list, tuple or string"),
        (lambda: fluid.get_flags("FLAGS_nosuch"), UsageError, "FLAGS_nosuch cannot get its value"),
    ],
)
def test_what_flags_refuse(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


# ---------------------------------------------------------------- versions
@pytest.mark.parametrize("versions", [("1.8.5",), ("0.1.0.0",), ("1.5", "1.8.5"), ("1", "2.0")])
def test_versions_that_include_1_8_5(versions: tuple[str, ...]) -> None:
    fluid.require_version(*versions)


@pytest.mark.parametrize("versions", [("1.8.6",), ("2.0",), ("1.5", "1.8.4")])
def test_versions_that_do_not(versions: tuple[str, ...]) -> None:
    with pytest.raises(UnsupportedOperatorError, match="VersionError"):
        fluid.require_version(*versions)


@pytest.mark.parametrize(("version", "error"), [("1.8.", UsageError), ("new", UsageError), (1.8, ArgumentTypeError)])
def test_what_is_no_version(version: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="min_version"):
        fluid.require_version(version)


def test_graphs_are_never_dynamic() -> None:
    assert fluid.in_dygraph_mode() is False
    fluid.disable_dygraph()
    with pytest.raises(UnsupportedOperatorError, match="dynamic graphs are not supported"):
        fluid.enable_dygraph()


def test_install_check_trains_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    fluid.install_check.run_check()
    assert "installed successfully" in capsys.readouterr().out


# ---------------------------------------------------------------- core
def test_core_holds_the_kinds_of_variables_and_operator_roles() -> None:
    assert core.VarDesc.VarType.FP32 == 5 and core.VarDesc.VarType.LOD_TENSOR == 7
    maker = core.op_proto_and_checker_maker
    assert [int(maker.OpRole.Backward), int(maker.OpRole.Optimize), int(maker.OpRole.Loss)] == [1, 2, 256]
    assert [maker.kOpRoleAttrName(), maker.kOpRoleVarAttrName(), maker.kOpNameScopeAttrName()] == [
        "op_role",
        "op_role_var",
        "op_namescope",
    ]
    assert maker.kOpCreationCallstackAttrName() == "op_callstack" and maker.kOpDeviceAttrName() == "op_device"
    assert (core.kGradVarSuffix(), core.kEmptyVarName()) == ("@GRAD", "@EMPTY@")
    assert core.size_of_dtype(core.VarDesc.VarType.FP64) == 8


def test_core_holds_values_and_places() -> None:
    scope = core.Scope()
    tensor = scope.var("x").get_tensor()
    tensor.set(np.ones(2, "float32"), core.CPUPlace())
    assert isinstance(tensor, core.LoDTensor) and core.LoDTensor is fluid.LoDTensor
    assert core.get_cuda_device_count() == 0 or core.is_compiled_with_cuda()
    assert core.op_support_gpu("conv2d") and not core.op_support_gpu("nosuch")
    assert not core.is_compiled_with_mkldnn() and not core.is_compiled_with_brpc()


def test_core_tells_the_end_of_data_and_errors_of_operators() -> None:
    assert issubclass(core.EOFException, Exception) and issubclass(core.EOFException, core.EnforceNotMet)


def test_old_names_of_the_strategies() -> None:
    assert core.ParallelExecutor.BuildStrategy is fluid.BuildStrategy


@pytest.mark.parametrize(("module", "name"), [(core, "AnalysisConfig"), (fluid, "dygraph"), (fluid, "VarBase")])
def test_what_is_not_offered_says_so(module: Any, name: str) -> None:
    with pytest.raises(NotOfferedError, match=f"has no '{name}' in fluidtool"):
        getattr(module, name)
