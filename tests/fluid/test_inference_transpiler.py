"""`InferenceTranspiler`: the programs that real Paddle's transpiler was given keep their numbers, also where it is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.ir import Program
from fluidtool.tensor import LoDTensor
from tests.support.golden import array_difference, corpus, names_in, read_arrays, read_json

CASES = [name for name in names_in("legacy") if name.startswith("fuse_bn-") and "model_" not in name]


class Case:
    """A program of the corpus, its parameters in a scope, what it is fed and what it gives."""

    def __init__(self, name: str) -> None:
        folder = corpus("legacy") / name
        self.spec, self.arrays = read_json(folder / "case.json"), read_arrays(folder / "arrays.npz")
        self.program = Program.parse_from_string((folder / "before.pb").read_bytes())
        self.scope = fluid.Scope()
        for index, parameter in enumerate(self.spec["params"]):
            self.scope.var(parameter).value = LoDTensor(self.arrays[f"param/{index}"])

    def check_numbers(self) -> None:
        feed = {entry["name"]: self.arrays[f"feed/{entry['name']}"] for entry in self.spec["feeds"]}
        got = fluid.Executor(fluid.CPUPlace()).run(self.program, feed, self.spec["fetch"], scope=self.scope)
        tolerance = {"kind": "allclose", **self.spec["tolerance"]}
        for index, value in enumerate(got):
            assert array_difference(np.asarray(value), self.arrays[f"before/{index}"], tolerance) is None

    def transpile(self) -> None:
        fluid.InferenceTranspiler().transpile(self.program, fluid.CPUPlace(), self.scope)


def types(program: Program) -> list[str]:
    return [op.type for block in program.blocks for op in block.ops]


@pytest.mark.parametrize("name", CASES)
def test_numbers_stay_and_a_second_run_changes_nothing(name: str) -> None:
    case = Case(name)
    case.transpile()
    case.check_numbers()
    before = types(case.program)
    case.transpile()
    assert types(case.program) == before
    case.check_numbers()


@pytest.mark.parametrize("name", CASES)
def test_what_paddle_folds_rightly_is_folded_to_the_same_parameters(name: str) -> None:
    case = Case(name)
    case.transpile()
    if not case.spec["real_is_wrong"]:
        wanted = sum(block.count("batch_norm") for block in case.spec["ops_after"])
        assert types(case.program).count("batch_norm") <= wanted
        for index, parameter in enumerate(case.spec["params_added"]):
            got = np.asarray(case.scope.find_var(parameter).get_tensor())  # type: ignore[union-attr]
            np.testing.assert_allclose(got, case.arrays[f"added/{index}"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["bn_last", "bn_last_bias", "conv3d_bn", "depthwise_bn", "fc_bn", "float64", "nhwc"])
def test_what_paddle_leaves_or_spoils_is_folded(name: str) -> None:
    case = Case(f"fuse_bn-{name}")
    case.transpile()
    assert "batch_norm" not in types(case.program)


@pytest.mark.parametrize("name", ["two_consumers", "two_consumers_bias", "residual_between", "next_but_unrelated"])
def test_what_cannot_be_folded_is_left(name: str) -> None:
    case = Case(f"fuse_bn-{name}")
    case.transpile()
    assert "batch_norm" in types(case.program)


# ---------------------------------------------------------------- the interface
def digits(for_test: bool = True) -> tuple[Program, Any]:
    """A convolution with batch_norm, built through the layers; the program and what it predicts."""
    main, startup = Program(), Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        image = fluid.layers.data("image", [1, 8, 8])
        hidden = fluid.layers.conv2d(image, 4, 3, bias_attr=False)
        hidden = fluid.layers.batch_norm(hidden, act="relu")
        hidden = fluid.layers.dropout(hidden, 0.5)
        predicted = fluid.layers.fc(hidden, 10, act="softmax")
    fluid.Executor(fluid.CPUPlace()).run(startup)
    program = main.clone(for_test=True) if for_test else main
    for op in program.global_block().ops:
        if op.type == "conv2d":
            op.set_attr("is_test", False)  # as files of old versions have it
    return program, predicted


@pytest.fixture(autouse=True)
def scope() -> Any:
    with fluid.scope_guard(fluid.Scope()):
        yield


def test_it_works_in_place_on_the_global_scope_and_returns_nothing() -> None:
    program, predicted = digits()
    executor, feed = fluid.Executor(fluid.CPUPlace()), {"image": np.ones((2, 1, 8, 8), np.float32)}
    before = executor.run(program, feed, [predicted])[0]
    assert fluid.InferenceTranspiler().transpile(program, fluid.CPUPlace()) is None
    assert "batch_norm" not in types(program)
    np.testing.assert_allclose(executor.run(program, feed, [predicted])[0], before, rtol=1e-5)
    assert fluid.global_scope().find_var("conv2d_0.w_0_fuse_bn") is not None


def test_the_copy_that_trains_is_not_touched() -> None:
    main, _ = digits(for_test=False)
    before = types(main)
    fluid.InferenceTranspiler().transpile(main.clone(for_test=True), fluid.CPUPlace())
    assert types(main) == before


def test_a_saved_model_keeps_no_operator_behind(tmp_path: Any) -> None:
    program, predicted = digits()
    executor = fluid.Executor(fluid.CPUPlace())
    fluid.io.save_inference_model(str(tmp_path), ["image"], [predicted], executor, program)
    loaded, _, fetches = fluid.io.load_inference_model(str(tmp_path), executor)
    feed = {"image": np.ones((2, 1, 8, 8), np.float32)}
    before = executor.run(loaded, feed, fetches)[0]
    fluid.InferenceTranspiler().transpile(loaded, fluid.CPUPlace())
    np.testing.assert_allclose(executor.run(loaded, feed, fetches)[0], before, rtol=1e-5)
    assert types(loaded).count("conv2d") == 1 and "batch_norm" not in types(loaded)


def test_everything_stays_fetchable_by_name_without_fetch_operators() -> None:
    program, _ = digits()
    inner = next(op.output("Output")[0] for op in program.global_block().ops if op.type == "conv2d")
    executor, feed = fluid.Executor(fluid.CPUPlace()), {"image": np.ones((2, 1, 8, 8), np.float32)}
    before = executor.run(program, feed, [inner])[0]
    fluid.InferenceTranspiler().transpile(program, fluid.CPUPlace())
    np.testing.assert_array_equal(executor.run(program, feed, [inner])[0], before)


def test_is_test_is_set_where_it_changes_no_number() -> None:
    program, _ = digits()
    fluid.InferenceTranspiler().transpile(program, fluid.CPUPlace())
    assert all(op.attr("is_test") for op in program.global_block().ops if op.type == "conv2d")


def test_training_operators_are_left_with_a_warning() -> None:
    main, _ = digits(for_test=False)
    with pytest.warns(UserWarning, match=r"batch_norm, dropout; transpile program.clone\(for_test=True\) instead"):
        fluid.InferenceTranspiler().transpile(main, fluid.CPUPlace())
    assert "batch_norm" in types(main)


@pytest.mark.parametrize("name", ["fuse_batch_norm", "_fuse_batch_norm"])
def test_the_names_of_the_versions_fold_and_set_nothing(name: str) -> None:
    program, _ = digits()
    getattr(fluid.InferenceTranspiler(), name)(program, fluid.CPUPlace(), fluid.global_scope())
    assert "batch_norm" not in types(program)
    assert not any(op.get_attr("is_test") for op in program.global_block().ops if op.type == "conv2d")


@pytest.mark.parametrize("flag", ["1", "0", "false"])
def test_the_flag_for_mkldnn_changes_nothing(flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, _ = digits()
    other = program.clone()
    fluid.InferenceTranspiler().transpile(program, fluid.CPUPlace())
    monkeypatch.setenv("FLAGS_use_mkldnn", flag)
    fluid.InferenceTranspiler().transpile(other, fluid.CPUPlace())
    assert types(other) == types(program)


@pytest.mark.parametrize(
    "make, place, scope, message",
    [
        (lambda: "program", fluid.CPUPlace(), None, "program should be as Program type"),
        (Program, "cpu", None, "place should be as CPUPlace/CUDAPlace type"),
        (Program, fluid.CUDAPinnedPlace(), None, "place should be as CPUPlace/CUDAPlace type"),
        (Program, fluid.CPUPlace(), {}, "scope should be as Scope type or None"),
    ],
)
def test_other_arguments_are_a_type_error(make: Any, place: Any, scope: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        fluid.InferenceTranspiler().transpile(make(), place, scope)


def test_scripts_find_it_where_paddle_has_it() -> None:
    assert fluid.transpiler.InferenceTranspiler is fluid.InferenceTranspiler


def test_old_scripts_import_it() -> None:
    from fluidtool.compat import install

    with install():
        import paddle.fluid as old  # type: ignore[import-not-found]
        from paddle.fluid.transpiler import InferenceTranspiler  # type: ignore[import-not-found]

        assert old.InferenceTranspiler is InferenceTranspiler is fluid.InferenceTranspiler
