"""`InferenceTranspiler` as documented: batch_norm folded into what stands before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid

PLACE = fluid.CPUPlace()
IMAGE = np.random.default_rng(0).normal(size=(2, 3, 6, 6)).astype("float32")


def program_of(layer: str, bias: bool) -> tuple[fluid.Program, Any]:
    """A layer, batch_norm with statistics of its own, and one more operator; (the test program, its result)."""
    image = fluid.layers.data("image", [3, 6, 6])
    if layer == "conv2d":
        hidden = fluid.layers.conv2d(image, 4, 3, bias_attr=None if bias else False)
    else:
        hidden = fluid.layers.fc(image, 4, bias_attr=None if bias else False)
    random = fluid.initializer.Uniform(0.5, 1.5)
    attrs = {"param_attr": fluid.ParamAttr(initializer=random), "bias_attr": fluid.ParamAttr(initializer=random)}
    out = fluid.layers.tanh(fluid.layers.batch_norm(hidden, **attrs))
    exe = fluid.Executor(PLACE)
    exe.run(fluid.default_startup_program())
    exe.run(feed={"image": IMAGE * 3 + 1})  # moves the running statistics
    return fluid.default_main_program().clone(for_test=True), out


def run(program: fluid.Program, out: Any) -> Any:
    return fluid.Executor(PLACE).run(program, feed={"image": IMAGE}, fetch_list=[out.name])[0]


def types(program: fluid.Program) -> list[str]:
    return [op.type for op in program.global_block().ops]


def test_the_example() -> None:
    program, out = program_of("conv2d", bias=True)
    expected = run(program, out)

    # As InferenceTranspiler will modify the original program,
    # please clone before use it.
    inference_transpiler_program = program.clone()
    t = fluid.InferenceTranspiler()
    t.transpile(inference_transpiler_program, PLACE)

    np.testing.assert_allclose(run(inference_transpiler_program, out), expected, rtol=1e-4, atol=1e-6)
    assert "batch_norm" in types(program)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("layer", ["conv2d", "mul"])
def test_the_operators_before_and_after(layer: str, bias: bool) -> None:
    """conv -> batch_norm -> other, or conv -> elementwise_add -> batch_norm -> other, becomes conv -> elementwise_add -> other.

    A program without fetch operators, of which anything may be fetched, also keeps what made the old results.
    """
    program, out = program_of("conv2d" if layer == "conv2d" else "fc", bias)
    before = [layer, *(["elementwise_add"] if bias else []), "batch_norm", "tanh"]
    assert types(program) == before
    expected = run(program, out)
    fluid.InferenceTranspiler().transpile(program=program, place=PLACE, scope=None)
    assert types(program.prune([out])) == [layer, "elementwise_add", "tanh"]
    np.testing.assert_allclose(run(program, out), expected, rtol=1e-4, atol=1e-6)


def test_a_saved_model_keeps_nothing_else(tmp_path: Path) -> None:
    program, out = program_of("conv2d", bias=True)
    exe = fluid.Executor(PLACE)
    fluid.io.save_inference_model(str(tmp_path), ["image"], [out], exe, main_program=program)
    loaded, _, _ = fluid.io.load_inference_model(str(tmp_path), exe)
    fluid.InferenceTranspiler().transpile(loaded, PLACE)
    assert types(loaded) == ["feed", "conv2d", "elementwise_add", "tanh", "scale", "fetch"]


def test_the_parameters_change_in_the_scope_that_is_given() -> None:
    program, out = program_of("conv2d", bias=True)
    scope = fluid.global_scope()
    expected = run(program, out)
    with fluid.scope_guard(fluid.Scope()):
        fluid.InferenceTranspiler().transpile(program, PLACE, scope=scope)
    np.testing.assert_allclose(run(program, out), expected, rtol=1e-4, atol=1e-6)


def test_unused_variables_are_removed() -> None:
    program, _ = program_of("conv2d", bias=True)
    fluid.InferenceTranspiler().transpile(program, PLACE)
    assert not any(name.startswith("batch_norm_0.w") for name in program.global_block().vars)


def test_fuse_batch_norm_alone() -> None:
    program, out = program_of("conv2d", bias=False)
    expected = run(program, out)
    fluid.InferenceTranspiler().fuse_batch_norm(program, PLACE, fluid.global_scope())
    assert "batch_norm" not in types(program)
    np.testing.assert_allclose(run(program, out), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("make", "others", "message"),
    [
        (lambda: "program", (PLACE,), "program should be as Program type"),
        (fluid.Program, ("cpu",), "place should be as CPUPlace/CUDAPlace type"),
        (fluid.Program, (PLACE, {}), "scope should be as Scope type or None"),
    ],
)
def test_wrong_types_are_type_errors(make: Any, others: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        fluid.InferenceTranspiler().transpile(make(), *others)
