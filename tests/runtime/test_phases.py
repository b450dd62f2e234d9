"""Which operators run on every device and which once."""

from __future__ import annotations

from typing import Any

import fluidtool.fluid as fluid
from fluidtool.runtime.phases import split_phases


def program(after: bool = False) -> tuple[Any, Any]:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.data("x", [2]), 1))
        with main._lr_schedule_guard():
            fluid.layers.fill_constant([1], "float32", 0.5)
        fluid.optimizer.SGD(0.1).minimize(loss)
        if after:
            fluid.layers.scale(main.global_block().var("fc_0.w_0"), 2.0)
    return main, loss


def types(phase: Any) -> list[str]:
    return [op.type for op in phase.program.global_block().ops]


def test_backward_joins_forward_and_schedules_join_the_optimizer() -> None:
    main, loss = program()
    devices, once = split_phases(main, {loss.name}, 0.5)
    assert (devices.once, once.once) == (False, True)
    assert types(once) == ["fill_constant", "sgd", "sgd"]
    assert types(devices)[:3] == ["mul", "elementwise_add", "mean"]


def test_an_operator_that_reads_what_the_optimizer_wrote_runs_after_it() -> None:
    main, loss = program(after=True)
    phases = split_phases(main, {loss.name}, 0.5)
    assert [phase.once for phase in phases] == [False, True, False]
    assert types(phases[2]) == ["scale"]


def test_the_gradient_of_the_loss_is_scaled() -> None:
    main, loss = program()
    devices = split_phases(main, {loss.name}, 0.25)[0]
    (start,) = [op for op in devices.program.global_block().ops if op.type == "fill_constant"]
    assert start.attr("value") == 0.25


def test_the_gradient_of_the_loss_can_be_left_to_the_user() -> None:
    main, loss = program()
    assert "fill_constant" not in types(split_phases(main, {loss.name}, None)[0])


def test_gradients_of_parameters_are_summed_and_nothing_else_is_kept() -> None:
    main, _ = program()
    devices = split_phases(main, set(), 0.5)[0]
    assert devices.gradients == devices.gives == ("fc_0.b_0@GRAD", "fc_0.w_0@GRAD")


def test_the_program_itself_stays_as_it_is() -> None:
    main, loss = program()
    before = main.serialize_to_string()
    split_phases(main, {loss.name}, 0.5)
    assert main.serialize_to_string() == before
