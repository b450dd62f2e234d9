"""PipelineOptimizer and DGCMomentumOptimizer in one process: the numbers of training without them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.fluid.optimizer import DGCMomentumOptimizer, MomentumOptimizer, PipelineOptimizer

CPU = fluid.CPUPlace()
GENERATOR = np.random.default_rng(0)
BATCHES = [
    {"x": GENERATOR.normal(size=(8, 4)).astype("float32"), "y": GENERATOR.normal(size=(8, 1)).astype("float32")}
    for _ in range(4)
]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        yield


def network(width: int = 5) -> tuple[Any, Any, Any]:
    """(first hidden layer, second, loss)"""
    fluid.default_startup_program().random_seed = 3
    x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [1])
    first = fluid.layers.fc(x, width, act="tanh")
    second = fluid.layers.fc(first, width, act="tanh")
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(second, 1), y))
    return first, second, loss


def parameters_after(run: Any) -> dict[str, Any]:
    """The parameters after every batch went through `run(executor, feed)`."""
    scope, exe = fluid.Scope(), fluid.Executor(CPU)
    with fluid.scope_guard(scope):
        exe.run(fluid.default_startup_program())
        for feed in BATCHES:
            run(exe, feed)
        return {param.name: fluid.fetch_var(param.name) for param in fluid.default_main_program().all_parameters()}


def plainly(exe: Any, feed: Any) -> None:
    exe.run(feed=feed)


def optimizer() -> Any:
    return MomentumOptimizer(fluid.layers.exponential_decay(0.1, 2, 0.5), 0.9)


def without_pipeline() -> dict[str, Any]:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        optimizer().minimize(network()[2])
        return parameters_after(plainly)


# ---------------------------------------------------------------- PipelineOptimizer
def pipeline(sections: int) -> PipelineOptimizer:
    first, second, loss = network()
    cuts = {1: None, 3: [[first], [loss]], 5: [[first], [second], [loss]]}[sections]
    made = PipelineOptimizer(optimizer(), cuts, place_list=[CPU] * sections, concurrency_list=[1] * sections)
    made.minimize(loss)
    return made


@pytest.mark.parametrize("sections", [1, 3, 5])
def test_the_program_trains_as_without_a_pipeline(sections: int) -> None:
    pipeline(sections)
    found, expected = parameters_after(plainly), without_pipeline()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("sections", [1, 3, 5])
def test_sections_in_their_order_train_as_the_whole_program(sections: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUIDTOOL_NATIVE", "0")  # bit by bit: a section without gradients would be fused there
    made = pipeline(sections)
    assert len(made.sections) == sections

    def in_sections(exe: Any, feed: Any) -> None:
        values = dict(feed)
        for section in made.sections:
            block = section.program.global_block()
            taken = [name for name in section.inputs if name in values]
            fetches = [name for name in section.outputs if not block.var(name).persistable]
            given = exe.run(section.program, feed={name: values[name] for name in taken}, fetch_list=fetches)
            values.update(zip(fetches, given, strict=True))

    found, expected = parameters_after(in_sections), without_pipeline()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_every_operator_is_in_one_section() -> None:
    made = pipeline(5)
    kinds = [op.type for section in made.sections for op in section.program.global_block().ops]
    assert sorted(kinds) == sorted(op.type for op in fluid.default_main_program().global_block().ops)


def test_parameters_are_updated_where_they_are_used() -> None:
    made = pipeline(5)
    updated = [
        sorted(op.input("Param")[0] for op in section.program.global_block().ops if op.type == "momentum")
        for section in made.sections
    ]
    assert updated == [[], [], ["fc_2.b_0", "fc_2.w_0"], ["fc_1.b_0", "fc_1.w_0"], ["fc_0.b_0", "fc_0.w_0"]]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"optimizer": 3}, ArgumentTypeError, "takes an optimizer"),
        ({"cut_list": [["x"], ["loss"]]}, ArgumentTypeError, "lists of Variables"),
        ({"cut_list": [[]]}, UsageError, "found one list"),
    ],
)
def test_what_a_pipeline_refuses(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        PipelineOptimizer(**{"optimizer": optimizer(), **arguments})


# ---------------------------------------------------------------- DGCMomentumOptimizer
def trained(made: Any, width: int = 5) -> dict[str, Any]:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        made.minimize(network(width)[2])
        return parameters_after(plainly)


@pytest.mark.parametrize("nesterov", [False, True])
def test_dgc_of_one_process_is_momentum(nesterov: bool) -> None:
    dgc = DGCMomentumOptimizer(0.1, momentum=0.9, rampup_begin_step=0, sparsity=[0.75, 0.999], use_nesterov=nesterov)
    expected = trained(MomentumOptimizer(0.1, 0.9, use_nesterov=nesterov))
    for name, value in trained(dgc).items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


@pytest.mark.parametrize(("width", "bound"), [(5, 0.02), (130, 0.01)])
def test_large_gradients_are_clipped_to_a_trainers_part(width: int, bound: float) -> None:
    """130 * 130 elements are more than the 16384 from which gradients are compressed."""
    _, _, loss = network(width)
    clip = fluid.clip.GradientClipByNorm(0.02)
    DGCMomentumOptimizer(0.1, 0.9, 0, num_trainers=4, grad_clip=clip).minimize(loss)
    norms = {
        op.input("X")[0]: op.attr("max_norm")
        for op in fluid.default_main_program().global_block().ops
        if op.type == "clip_by_norm"
    }
    assert norms["fc_1.w_0@GRAD"] == pytest.approx(bound)
    assert norms["fc_1.b_0@GRAD"] == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"rampup_begin_step": -1}, UsageError, "rampup_begin_step must >= 0"),
        ({"grad_clip": fluid.clip.GradientClipByValue(1.0)}, ArgumentTypeError, "only support"),
        ({"grad_clip": fluid.clip.GradientClipByNorm(1.0)}, ArgumentTypeError, "num_trainers should be 'int'"),
        ({"grad_clip": fluid.clip.GradientClipByNorm(1.0), "num_trainers": 0}, UsageError, "greater than 0"),
    ],
)
def test_what_dgc_refuses(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        DGCMomentumOptimizer(**{"learning_rate": 0.1, "momentum": 0.9, "rampup_begin_step": 0, **arguments})
