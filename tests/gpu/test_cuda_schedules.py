"""Schedules with conditions are part of a training step on a GPU: both branches are computed, and one is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import OperatorError
from fluidtool.fluid import layers
from fluidtool.runtime.engines.cuda.training.importing import may_be_in_step
from fluidtool.runtime.training_regions import TrainingRegion
from tests.gpu.standin import EVENTS
from tests.gpu.test_training_steps import Job, batch, perceptron

pytestmark = pytest.mark.usefixtures("cupy")
STEPS = 8
SCHEDULES: dict[str, Callable[[], Any]] = {
    "piecewise": lambda: layers.piecewise_decay([2, 4], [0.1, 0.05, 0.01]),
    "many pieces": lambda: layers.piecewise_decay(list(range(1, 7)), [0.1 / n for n in range(1, 8)]),
    "warmup": lambda: layers.linear_lr_warmup(0.1, 3, 0.01, 0.1),
    "warmup, then pieces": lambda: layers.linear_lr_warmup(SCHEDULES["piecewise"](), 3, 0.0, 0.1),
    "warmup, then cosine": lambda: layers.linear_lr_warmup(layers.cosine_decay(0.1, 2, 3), 3, 0.0, 0.1),
    "polynomial in cycles": lambda: layers.polynomial_decay(0.1, 3, 0.01, 1.0, cycle=True),
}


def job_with(schedule: Callable[[], Any]) -> tuple[Job, Any]:
    """A job whose learning rate has a schedule, and the variable of the rate."""
    rates: list[Any] = []

    def optimizer() -> Any:
        rates.append(schedule())
        return fluid.optimizer.SGD(rates[0])

    return Job(perceptron, optimizer), rates[0]


def parts_of(job: Job) -> list[Any]:
    return list(job.plan().block(0).work)


@pytest.mark.parametrize("name", SCHEDULES)
def test_rates_are_those_of_single_operators_to_the_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job, rate = job_with(SCHEDULES[name])
    monkeypatch.setenv("FLUIDTOOL_CUDA", "0")
    want, _ = job_with(SCHEDULES[name])
    seen = []
    for step in range(STEPS):
        found, expected = (each.step(batch(seed=step), rate) for each in (job, want))
        np.testing.assert_array_equal(found[1], expected[1])
        np.testing.assert_allclose(found[0], expected[0], rtol=2e-5)
        seen.append(float(found[1].item()))
    assert len(set(seen)) > 2


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_step_is_one_graph_with_its_counter(name: str) -> None:
    job, _ = job_with(SCHEDULES[name])
    for _ in range(2):
        job.step(batch())
    with EVENTS.counted() as counts:
        job.step(batch())
    (region,) = parts_of(job)
    assert isinstance(region, TrainingRegion) and not region.reasons
    assert "increment" in [step.op.type for step in region.steps]
    assert counts["launches"] <= 7 and not counts["synchronizations"]


def test_the_rate_in_the_scope_is_the_one_that_was_used() -> None:
    job, rate = job_with(SCHEDULES["piecewise"])
    found = []
    for _ in range(5):
        job.step(batch())
        found.append(job.values()[rate.name].item())
    assert found == [np.float32(number) for number in (0.1, 0.1, 0.05, 0.05, 0.01)]


def test_a_rate_that_a_script_sets_is_replaced_by_the_schedule() -> None:
    job, rate = job_with(SCHEDULES["piecewise"])
    for _ in range(3):
        job.step(batch())
    job.scope.find_var(rate.name).get_tensor().set(np.array([7.0], np.float32), fluid.CPUPlace())
    assert job.step(batch(), rate)[1] == np.float32(0.05)


def test_operators_that_run_one_by_one_leave_no_scopes() -> None:
    job, _ = job_with(SCHEDULES["piecewise"])
    job.step(batch())
    feed = batch()
    feed["y"][0] = 5
    with pytest.raises(OperatorError, match="input Label holds class 5"):
        job.step(feed)
    job.step(batch())
    (bound,) = job.plan().resting.values()
    assert not bound.scope.kids


# ---------------------------------------------------------------- counters
def test_counters_are_exact_and_stay_whole_numbers() -> None:
    """Also where floats of 32 bits no longer tell them apart."""
    job, rate = job_with(lambda: layers.cast(layers.autoincreased_step_counter(begin=5, step=3), "float32") * 1e-9)
    name = "@STEP_COUNTER@"
    for _ in range(3):
        job.step(batch())
    assert job.values()[name].item() == 13 and job.values()[name].dtype == np.int64
    job.scope.find_var(name).get_tensor().set(np.array([2**40], np.int64), fluid.CPUPlace())
    found = [job.step(batch(), rate, name)[1:] for _ in range(4)]
    assert [each[1].item() for each in found] == [2**40 + 3 * n for n in range(1, 5)]
    assert [each[0].item() for each in found] == [np.float32(2**40 + 3 * n) * np.float32(1e-9) for n in range(1, 5)]


def test_several_counters_of_one_step() -> None:
    def schedule() -> Any:
        one, other = (layers.autoincreased_step_counter(name, 1, step) for name, step in (("one", 1), ("other", 7)))
        floats = layers.create_global_var([1], 0.5, "float32", persistable=True, name="floats")
        layers.increment(floats, 0.25)
        return (layers.cast(one, "float32") + layers.cast(other, "float32") + floats) * 1e-3

    job, rate = job_with(schedule)
    rates = [job.step(batch(), rate)[1].item() for _ in range(3)]
    np.testing.assert_allclose(rates, [8.75e-3, 17e-3, 25.25e-3], rtol=1e-6)
    assert {name: job.values()[name].item() for name in ("one", "other", "floats")} == {
        "one": 3, "other": 21, "floats": 1.25,
    }  # fmt: skip
    (region,) = parts_of(job)
    assert not region.reasons


def test_a_step_that_is_refused_has_not_counted() -> None:
    job, _ = job_with(SCHEDULES["piecewise"])
    job.step(batch())
    feed = batch()
    feed["y"][0] = 5
    with pytest.raises(OperatorError, match="input Label holds class 5"):
        job.step(feed)
    counted = job.values()["@LR_DECAY_COUNTER@"].item()
    job.step(batch())
    assert job.values()["@LR_DECAY_COUNTER@"].item() == counted + 1


def test_a_counter_that_an_id_is_made_of_is_left_to_its_operators() -> None:
    def build() -> Any:
        counter = layers.autoincreased_step_counter()
        rows = layers.embedding(layers.reshape(counter, [1, 1]), [9, 4])
        return layers.mean(layers.square(layers.fc(rows, 2)))

    jobs = [Job(build, lambda: fluid.optimizer.SGD(0.1), place) for place in (fluid.CPUPlace(), None)]
    for _ in range(3):
        want, found = (job.step({})[0] for job in jobs)
        np.testing.assert_allclose(found, want, rtol=2e-5)


# ---------------------------------------------------------------- what has no place
def built(build: Callable[[], None]) -> Any:
    """The main block of a program, in which `x` is a number of float32, `n` one of int64."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        build()
    return main.global_block()


def number(dtype: str = "float32", name: str | None = None) -> Any:
    return layers.create_global_var([1], 0.0, dtype, persistable=True, name=name)


def switched(change: Callable[[Any], Any], shape: tuple[int, ...] = (1,)) -> Callable[[], None]:
    def build() -> None:
        x, target = number(), layers.create_global_var(list(shape), 0.0, "float32", persistable=True)
        with layers.Switch() as switch, switch.case(x < 3.0):
            change(target)

    return build


def whole_numbers() -> None:
    n = number("int64")
    with layers.Switch() as switch, switch.case(layers.less_than(n, layers.fill_constant([1], "int64", 3))):
        layers.assign(layers.fill_constant([1], "float32", 2.0), number())


def as_a_number() -> None:
    layers.cast(number() < 3.0, "float32")


def as_another_number() -> None:
    layers.cast(number() < 3.0, "float64")


def of_32_bit_numbers() -> None:
    layers.less_than(number("int32"), layers.fill_constant([1], "int32", 3))


def of_64_bit_floats() -> None:
    layers.less_than(number("float64"), layers.fill_constant([1], "float64", 3.0))


def of_many() -> None:
    layers.less_than(layers.data("x", [4], append_batch_size=False), layers.fill_constant([4], "float32", 3.0))


def drawn(target: Any) -> None:
    layers.assign(layers.uniform_random([1]), target)


def wide(target: Any) -> None:
    layers.assign(layers.fill_constant([40], "float32", 1.0), target)


def counted(build: Callable[[], None]) -> list[bool]:
    return [may_be_in_step(op) for op in built(build).ops if op.type == "increment"]


def of_the_scope() -> None:
    layers.increment(number("int64"), 1)
    layers.increment(number("float32"), 0.5)


def of_the_run() -> None:
    layers.increment(layers.fill_constant([1], "int64", 0), 1)


def of_32_bits() -> None:
    layers.increment(number("int32"), 1)


def into_another() -> None:
    layers.increment(number("int64"), 1, in_place=False)


def test_counters_that_stay_in_the_scope_have_a_place() -> None:
    assert counted(of_the_scope) == [True, True]


@pytest.mark.parametrize("build", [of_the_run, of_32_bits, into_another])
def test_other_counters_have_none(build: Callable[[], None]) -> None:
    assert counted(build) == [False]


def conditional(block: Any) -> dict[str, bool]:
    kinds = ("less_than", "conditional_block")
    return {op.type: may_be_in_step(op) for op in block.ops if op.type in kinds}


def test_a_branch_of_single_numbers_has_a_place() -> None:
    block = built(switched(lambda target: layers.assign(layers.fill_constant([1], "float32", 2.0), target)))
    assert conditional(block) == {"less_than": True, "conditional_block": True}


@pytest.mark.parametrize("build", [whole_numbers, as_a_number, of_many, of_32_bit_numbers, as_another_number])
def test_a_comparison_of_numbers_has_a_place(build: Callable[[], None]) -> None:
    found = conditional(built(build))
    assert found and all(found.values())


@pytest.mark.parametrize(
    "build",
    [of_64_bit_floats, switched(drawn), switched(wide, (40,))],
    ids=["floats of 64 bits", "a branch that draws", "a wide branch"],
)
def test_other_conditions_have_none(build: Callable[[], None]) -> None:
    found = conditional(built(build))
    assert found and not any(found.values())


def test_a_condition_that_is_fetched_is_computed() -> None:
    job, _ = job_with(SCHEDULES["piecewise"])
    (name,) = next(op for op in job.main.global_block().ops if op.type == "less_than").output_arg_names
    assert [bool(job.step(batch(), name)[1].item()) for _ in range(4)] == [True, True, False, False]


def test_a_branch_whose_result_has_no_value_before_is_run_by_itself() -> None:
    def schedule() -> Any:
        rate = SCHEDULES["piecewise"]()
        fluid.default_main_program().global_block().var(rate.name).persistable = False
        return rate

    job, rate = job_with(schedule)
    assert [job.step(batch(), rate)[1].item() for _ in range(3)] == [np.float32(n) for n in (0.1, 0.1, 0.05)]
