"""Training steps on a GPU: forward, backward and update are one graph, and give real Paddle's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import FluidError, OperatorError, OutOfMemoryError, UsageError
from fluidtool.fluid import layers
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor, training_regions
from fluidtool.runtime.engines.cuda.calls import Product
from fluidtool.runtime.engines.cuda.training.compiled import CudaStep
from fluidtool.runtime.plan import Plan
from fluidtool.runtime.training_regions import BoundTrainingRegion
from fluidtool.tensor import CUDAPlace
from fluidtool.workflows.engine_use import engine_used
from tests.gpu import cases
from tests.gpu.standin import EVENTS
from tests.gpu.standin.devices import MACHINE

pytestmark = pytest.mark.usefixtures("cupy")


# ---------------------------------------------------------------- operators
@pytest.mark.parametrize("name", cases.step_operators())
def test_an_operator_and_its_gradient(name: str, compiled: list[CudaStep]) -> None:
    cases.operator_in_a_step(name)
    assert compiled


# ---------------------------------------------------------------- whole steps
class Job:
    """A program, run at a place from the same parameters every time."""

    def __init__(self, build: Any, optimizer: Any, place: Any = None, seed: int = 7) -> None:
        self.main, self.startup = fluid.Program(), fluid.Program()
        self.main.random_seed = self.startup.random_seed = seed
        with fluid.program_guard(self.main, self.startup), fluid.unique_name.guard():
            self.loss = build()
            optimizer().minimize(self.loss)
        self.scope, self.executor = fluid.Scope(), fluid.Executor(CUDAPlace(0) if place is None else place)
        fluid.Executor(fluid.CPUPlace()).run(self.startup, scope=self.scope)

    def step(self, feed: dict[str, Any], *names: Any) -> list[Any]:
        found: list[Any] = self.executor.run(self.main, feed, [self.loss, *names], scope=self.scope)
        return found

    def values(self) -> dict[str, Any]:
        """The parameters and what belongs to them."""
        names = [var.name for var in self.main.list_vars() if var.persistable and var.type == VarType.LOD_TENSOR]
        return {name: np.array(self.scope.find_var(name).get_tensor()) for name in names}

    def plan(self) -> Plan:
        """The only plan."""
        (plan,) = [plan for plans in self.executor._runtime._plans.values() for plan in plans.values()]
        return plan

    def region(self) -> BoundTrainingRegion:
        """The only region of the program, as it was bound last."""
        (bound,) = self.plan().resting.values()
        (found,) = [step for step in bound.steps if isinstance(step, BoundTrainingRegion)]
        return found


def perceptron() -> Any:
    x, y = layers.data("x", [6]), layers.data("y", [1], dtype="int64")
    hidden = layers.fc(x, 16, act="relu")
    return layers.mean(layers.cross_entropy(layers.fc(hidden, 5, act="softmax"), y))


def batch(rows: int = 8, seed: int = 0) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {"x": random.standard_normal((rows, 6)).astype(np.float32), "y": random.integers(0, 5, (rows, 1))}


def same(a: Job, b: Job, rtol: float = 2e-5) -> None:
    for name, value in a.values().items():
        scale = max(1e-3, float(np.abs(value).max()))
        np.testing.assert_allclose(b.values()[name], value, rtol=0, atol=rtol * scale, err_msg=name)


OPTIMIZERS = {
    "sgd": lambda: fluid.optimizer.SGD(0.1),
    "momentum": lambda: fluid.optimizer.Momentum(0.1, 0.9),
    "nesterov": lambda: fluid.optimizer.Momentum(0.1, 0.9, use_nesterov=True),
    "adam": lambda: fluid.optimizer.Adam(0.01),
    "adamax": lambda: fluid.optimizer.Adamax(0.01),
    "adagrad": lambda: fluid.optimizer.Adagrad(0.1),
    "decayed adagrad": lambda: fluid.optimizer.DecayedAdagrad(0.1),
    "adadelta": lambda: fluid.optimizer.Adadelta(1.0),
    "rmsprop": lambda: fluid.optimizer.RMSProp(0.01, momentum=0.5),
    "centered rmsprop": lambda: fluid.optimizer.RMSProp(0.01, centered=True),
    "ftrl": lambda: fluid.optimizer.Ftrl(0.1, l1=0.01, l2=0.01),
}
BY_NORMS = {
    "lamb": lambda: fluid.optimizer.Lamb(0.01, lamb_weight_decay=0.1),
    "lars": lambda: fluid.optimizer.LarsMomentum(0.1, 0.9, lars_weight_decay=0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updates_are_one_kernel_and_numpys(name: str, compiled: list[CudaStep]) -> None:
    want, job = Job(perceptron, OPTIMIZERS[name], fluid.CPUPlace()), Job(perceptron, OPTIMIZERS[name])
    for step in range(4):
        np.testing.assert_allclose(job.step(batch(seed=step))[0], want.step(batch(seed=step))[0], rtol=2e-5)
    same(want, job)
    kernels = [getattr(call, "name", "").partition("_")[0] for call in compiled[-1].calls]
    assert len(compiled) == 4 and kernels.count("update") == (3 if name == "adam" else 1 + (name == "adamax"))


def test_labels_in_another_shape_may_be_fetched(compiled: list[CudaStep]) -> None:
    flat: list[Any] = []

    def build() -> Any:
        x, y = layers.data("x", [6]), layers.data("y", [2], dtype="int64")
        flat.append(layers.reshape(y, [-1, 1]))
        scores = layers.reshape(layers.fc(x, 10), [-1, 5])
        return layers.mean(layers.softmax_with_cross_entropy(scores, flat[-1]))

    job, labels = Job(build, OPTIMIZERS["sgd"]), np.arange(6).reshape(3, 2) % 5
    for _ in range(3):
        _, found = job.step({"x": np.ones((3, 6), np.float32), "y": labels}, flat[0])
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, labels.reshape(-1, 1))
    assert len(compiled) == 3


class Proximal:
    """Proximal descent, of which Paddle has operators only."""

    def __init__(self, type: str, l1: float) -> None:
        self.type, self.l1 = type, l1

    def minimize(self, loss: Any) -> None:
        rate = layers.create_global_var([1], 0.1, "float32", persistable=True, name="rate")
        for param, grad in fluid.backward.append_backward(loss):
            inputs, outputs = {"Param": param, "Grad": grad, "LearningRate": rate}, {"ParamOut": param}
            if self.type == "proximal_adagrad":
                moment = layers.create_global_var(param.shape, 0.1, "float32", persistable=True)
                inputs["Moment"] = outputs["MomentOut"] = moment
            loss.block.append_op(type=self.type, inputs=inputs, outputs=outputs, attrs={"l1": self.l1, "l2": 0.2})


@pytest.mark.parametrize("l1", [0.0, 0.05])
@pytest.mark.parametrize("type", ["proximal_gd", "proximal_adagrad"])
def test_proximal_updates_are_numpys(type: str, l1: float, compiled: list[CudaStep]) -> None:
    jobs = [Job(perceptron, lambda: Proximal(type, l1), place) for place in (fluid.CPUPlace(), CUDAPlace(0))]
    for step in range(4):
        for job in jobs:
            job.step(batch(seed=step))
    same(*jobs)
    assert len(compiled) == 4 and jobs[1].region().region.parts is None
    assert not l1 or (jobs[1].values()["fc_0.w_0"] == 0).any()


@pytest.mark.parametrize("name", BY_NORMS)
def test_updates_by_norms_are_part_of_the_step(name: str, compiled: list[CudaStep]) -> None:
    want, job = Job(perceptron, BY_NORMS[name], fluid.CPUPlace()), Job(perceptron, BY_NORMS[name])
    for step in range(4):
        np.testing.assert_allclose(job.step(batch(seed=step))[0], want.step(batch(seed=step))[0], rtol=2e-5)
    same(want, job)
    assert len(compiled) == 4 and job.region().region.parts is None
    kernels = [getattr(call, "name", "").partition("_")[0] for call in compiled[-1].calls]
    assert kernels.count("update") == (2 if name == "lamb" else 1)


@pytest.mark.parametrize("name", BY_NORMS)
def test_a_parameter_of_zeros_moves_by_the_rate_itself(name: str) -> None:
    jobs = [Job(perceptron, BY_NORMS[name], place) for place in (fluid.CPUPlace(), CUDAPlace(0))]
    for job in jobs:
        job.scope.find_var("fc_1.w_0").get_tensor().set(np.zeros((16, 5), np.float32), fluid.CPUPlace())
        job.step(batch())
        job.step(batch(seed=1))
    same(*jobs)


def test_a_bias_and_a_relu_are_the_end_of_their_product(compiled: list[CudaStep]) -> None:
    job = Job(perceptron, OPTIMIZERS["sgd"])
    job.step(batch())
    products = [call for call in compiled[-1].calls if isinstance(call, Product)]
    assert [(call.bias is not None, call.epilogue) for call in products[:2]] == [(True, "relu"), (True, "")]
    assert len(products) == 2 + 3  # no gradient by x


@pytest.mark.parametrize(
    ("precision", "least", "most"), [("tf32", 1e-6, 1e-3), ("fp16", 1e-6, 1e-3), ("bf16", 1e-5, 1e-2)]
)
def test_factors_are_rounded_on_request(
    precision: str, least: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUIDTOOL_CUDA_PRECISION", precision)
    want, job = Job(perceptron, OPTIMIZERS["sgd"], fluid.CPUPlace()), Job(perceptron, OPTIMIZERS["sgd"])
    exact, found = (each.step(batch(), "fc_1.w_0@GRAD")[1] for each in (want, job))
    assert least < np.linalg.norm(found - exact) / np.linalg.norm(exact) < most


def test_a_precision_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUIDTOOL_CUDA_PRECISION", "fp8")
    with pytest.raises(UsageError, match="FLUIDTOOL_CUDA_PRECISION=fp8: the precisions on a GPU are float32, tf32"):
        Executor(CUDAPlace(0))


def images() -> Any:
    x, y = layers.data("x", [3, 9, 9]), layers.data("y", [1], dtype="int64")
    x = layers.batch_norm(layers.conv2d(x, 4, 3, padding=1, stride=2), act="relu")
    x = layers.pool2d(x, 3, "max", 2, pool_padding=1) + layers.pool2d(x, 3, "avg", 2, pool_padding=1)
    x = layers.conv2d_transpose(x, 3, filter_size=3, stride=2)
    x = layers.conv2d(x, 6, 3, groups=3, act="leaky_relu")
    x = layers.pool2d(x, global_pooling=True, pool_type="avg")
    return layers.mean(layers.softmax_with_cross_entropy(layers.fc(x, 5), y))


def test_a_step_of_images(compiled: list[CudaStep]) -> None:
    feeds = [{**batch(4, seed), "x": np.random.default_rng(seed).random((4, 3, 9, 9), np.float32)} for seed in range(4)]
    want, job = Job(images, OPTIMIZERS["momentum"], fluid.CPUPlace()), Job(images, OPTIMIZERS["momentum"])
    for feed in feeds:
        np.testing.assert_allclose(job.step(feed)[0], want.step(feed)[0], rtol=1e-4)
    same(want, job, 1e-4)
    assert len(compiled) == 4
    assert sum(type(call).__name__ == "Convolution" for call in compiled[-1].calls) == 3 + 3 + 2


def attention() -> Any:
    ids, y = layers.data("ids", [6, 1], dtype="int64"), layers.data("y", [1], dtype="int64")
    x = layers.embedding(ids, [11, 8], param_attr="table")
    x = layers.layer_norm(x, begin_norm_axis=2)
    heads = layers.transpose(layers.reshape(layers.fc(x, 8, num_flatten_dims=2), [0, 6, 2, 4]), [0, 2, 1, 3])
    weights = layers.softmax(layers.matmul(heads, heads, transpose_y=True, alpha=0.5))
    weights = layers.dropout(weights, 0.25, dropout_implementation="upscale_in_train")
    x = layers.reshape(layers.transpose(layers.matmul(weights, heads), [0, 2, 1, 3]), [0, 6, 8]) + x
    x = layers.dropout(layers.fc(x, 8, num_flatten_dims=2, act="gelu"), 0.3)
    return layers.mean(layers.softmax_with_cross_entropy(layers.fc(layers.reduce_mean(x, 1), 5), y))


def words(seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {"ids": random.integers(0, 11, (3, 6, 1)), "y": random.integers(0, 5, (3, 1))}


def test_dropout_draws_the_numbers_of_the_cpu_and_rows_add_up_in_order(compiled: list[CudaStep]) -> None:
    want, job = Job(attention, OPTIMIZERS["adam"], fluid.CPUPlace()), Job(attention, OPTIMIZERS["adam"])
    for step in range(4):
        np.testing.assert_allclose(job.step(words(step))[0], want.step(words(step))[0], rtol=1e-4)
    same(want, job, 1e-3)
    assert len(compiled) == 4 and len(compiled[-1].draws) == 2


# ---------------------------------------------------------------- parameters
def test_a_step_that_was_captured_is_one_launch_beside_its_copies() -> None:
    job = Job(perceptron, OPTIMIZERS["adam"])
    for _ in range(2):
        job.step(batch())
    with EVENTS.counted() as counts:
        job.step(batch())
    assert counts["launches"] <= 6  # two inputs, two checks of labels, the graph, the loss


def test_a_step_after_one_alike_asks_only_whether_its_states_are_where_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    want, job = (Job(perceptron, OPTIMIZERS["adam"], place) for place in (fluid.CPUPlace(), None))
    for seed in range(2):
        want.step(batch(seed=seed))
        job.step(batch(seed=seed))
    monkeypatch.setattr(BoundTrainingRegion, "_own_states", None)
    want.step(batch(seed=2))
    job.step(batch(seed=2))
    same(want, job)


@pytest.mark.parametrize("change", ["another array", "a view", "from the host", "held", "another size"])
def test_a_step_after_one_that_differs_looks_at_everything(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import cupy

    job = Job(perceptron, OPTIMIZERS["sgd"])
    for _ in range(2):
        job.step(batch())
    looked: list[str] = []
    look = BoundTrainingRegion._own_states
    monkeypatch.setattr(BoundTrainingRegion, "_own_states", lambda self: looked.append(change) or look(self))
    tensor = job.scope.find_var("fc_0.w_0").get_tensor()
    array = tensor.array
    changed = {"another array": array.copy(), "a view": array[:], "from the host": cupy.asnumpy(array)}
    tensor.array = changed.get(change, array)
    if change != "held":
        del array
    job.step(batch(rows=4 if change == "another size" else 8))
    assert looked == [change]


def test_parameters_change_where_they_are() -> None:
    job = Job(perceptron, OPTIMIZERS["sgd"])
    job.step(batch())
    before = {name: holder.value.array.data.ptr for name, holder in job.region().states.items()}
    job.step(batch())
    assert {name: holder.value.array.data.ptr for name, holder in job.region().states.items()} == before


def test_an_array_that_somebody_else_holds_stays_as_it_is() -> None:
    job = Job(perceptron, OPTIMIZERS["sgd"])
    job.step(batch())
    held = job.scope.find_var("fc_0.w_0").value.array
    numbers = held.host.copy()
    for step in range(3):
        job.step(batch(seed=step))
    np.testing.assert_array_equal(held.host, numbers)
    assert not np.array_equal(job.values()["fc_0.w_0"], numbers)


def test_a_parameter_that_is_replaced_is_used() -> None:
    want, job = Job(perceptron, OPTIMIZERS["sgd"], fluid.CPUPlace()), Job(perceptron, OPTIMIZERS["sgd"])
    for step in range(3):
        for each in (want, job):
            each.step(batch(seed=step))
            each.scope.find_var("fc_0.w_0").get_tensor().set(np.full((6, 16), 0.1 * step, np.float32), fluid.CPUPlace())
    for each in (want, job):
        each.step(batch(seed=9))
    same(want, job)


def test_parameters_that_are_replaced_in_every_run_end_the_region() -> None:
    job = Job(perceptron, OPTIMIZERS["sgd"])
    for _ in range(training_regions.PATIENCE + 3):
        job.step(batch())
        job.scope.find_var("fc_0.w_0").get_tensor().set(np.ones((6, 16), np.float32), fluid.CPUPlace())
    assert "replaced in every run" in next(iter(job.region().region.reasons.values()))


def test_several_gpus_see_what_the_first_has_changed() -> None:
    def losses(places: list[Any]) -> list[float]:
        job = Job(perceptron, OPTIMIZERS["adam"], places[0])
        program = fluid.CompiledProgram(job.main).with_data_parallel(job.loss.name, places=places)
        feeds = [batch(seed=step) for step in range(6)]
        return [float(np.mean(job.executor.run(program, feed, [job.loss], scope=job.scope)[0])) for feed in feeds]

    want = losses([fluid.CPUPlace(), fluid.CPUPlace()])
    np.testing.assert_allclose(losses([CUDAPlace(0), CUDAPlace(1)]), want, rtol=1e-4)


def test_a_parameter_that_is_only_read_and_moves_is_copied() -> None:
    def build() -> Any:
        x = layers.data("x", [6])
        fixed = layers.create_parameter([6, 4], "float32", name="fixed")
        fixed.stop_gradient = True
        return layers.mean(layers.fc(layers.mul(x, fixed), 3))

    want, job = Job(build, OPTIMIZERS["sgd"], fluid.CPUPlace()), Job(build, OPTIMIZERS["sgd"])
    for step in range(6):
        for each in (want, job):
            each.scope.find_var("fixed").get_tensor().set(np.full((6, 4), 0.1 * step, np.float32), fluid.CPUPlace())
        a, b = (each.step({"x": batch(seed=step)["x"]})[0] for each in (want, job))
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=1e-7)
    same(want, job)
    assert "fixed" in job.region().reads and job.region().region.parts is None


def test_batches_of_another_size_share_the_parameters() -> None:
    want, job = Job(perceptron, OPTIMIZERS["adam"], fluid.CPUPlace()), Job(perceptron, OPTIMIZERS["adam"])
    for rows in (8, 3, 8, 3, 8):
        for each in (want, job):
            each.step(batch(rows, rows))
    same(want, job)
    assert len(job.region()._memo.compiled) == 2


def test_gradients_that_are_fetched_are_computed() -> None:
    want, job = Job(perceptron, OPTIMIZERS["sgd"], fluid.CPUPlace()), Job(perceptron, OPTIMIZERS["sgd"])
    for _ in range(3):
        a, b = (each.step(batch(), "fc_0.w_0@GRAD", "fc_0.tmp_2")[1:] for each in (want, job))
        for found, expected in zip(b, a, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-7)


# ---------------------------------------------------------------- faults
@pytest.mark.parametrize("label", [5, -3])
def test_a_label_that_is_no_class_is_refused_and_nothing_changes(label: int) -> None:
    job = Job(perceptron, OPTIMIZERS["sgd"])
    job.step(batch())
    before = job.values()
    feed = batch()
    feed["y"][3] = label
    with pytest.raises(OperatorError, match=f"input Label holds class {label}, expected 0 to 4"):
        job.step(feed)
    for name, value in job.values().items():
        np.testing.assert_array_equal(value, before[name])
    job.step(batch())


def test_a_step_that_does_not_fit_says_what_would(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(perceptron, OPTIMIZERS["sgd"])
    job.step(batch(2))
    monkeypatch.setattr(MACHINE, "free_bytes", 1 << 19)
    with pytest.raises(OutOfMemoryError, match=r"needs .* bytes on the GPU.*bytes free"):
        job.step(batch(20000))


def test_a_gpu_that_is_lost_is_told() -> None:
    job = Job(perceptron, OPTIMIZERS["sgd"])
    for _ in range(3):
        job.step(batch())
    MACHINE.left = 0
    try:
        with pytest.raises(FluidError, match="GPU 0 has failed"):
            job.step(batch())
    finally:
        MACHINE.left = None


def test_what_has_no_place_in_a_step_divides_it(compiled: list[CudaStep]) -> None:
    def build() -> Any:
        x, y = layers.data("x", [6]), layers.data("y", [1], dtype="int64")
        hidden = layers.softmax(layers.fc(x, 4), axis=0)
        return layers.mean(layers.cross_entropy(layers.fc(hidden, 5, act="softmax"), y))

    want, job = Job(build, OPTIMIZERS["sgd"], fluid.CPUPlace()), Job(build, OPTIMIZERS["sgd"])
    for step in range(4):
        np.testing.assert_allclose(job.step(batch(seed=step))[0], want.step(batch(seed=step))[0], rtol=2e-5)
    same(want, job)
    assert compiled and "another axis than the last" in str(job.region().region.reasons)


def test_what_computed_a_step_is_told() -> None:
    job = Job(perceptron, OPTIMIZERS["sgd"])
    job.step(batch())
    used = engine_used(job.executor._runtime, job.plan(), "")
    assert (used["name"], used["regions"], used["operators_in_regions"]) == ("cuda", 1, used["operators"])
    assert "left_to_numpy" not in used


def test_operators_are_seen_one_by_one_by_a_profiler() -> None:
    job, seen = Job(perceptron, OPTIMIZERS["sgd"]), []

    def observer(step: Any, index: int) -> None:
        seen.append(step.context.op.type)
        step.run()

    job.step(batch())
    Executor(CUDAPlace(0)).run(job.main, batch(), [], job.scope, observer=observer)
    assert seen.count("sgd") == 4 and "mul_grad" in seen
