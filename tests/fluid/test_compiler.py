"""Programs on several CPU devices. The numbers are those of real Paddle 1.8.5 on the same programs and feeds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import ArgumentTypeError, CollectiveError, FeedError, FetchError, UninitializedError

X = (np.arange(22).reshape(11, 2) / 10).astype("float32")
Y = (np.arange(11).reshape(11, 1) / 5).astype("float32")
Scale = fluid.BuildStrategy.GradientScaleStrategy


@pytest.fixture(autouse=True)
def own_scope() -> Iterator[None]:
    with fluid.scope_guard(fluid.Scope()):
        yield


def network(optimizer: Any = None) -> tuple[Any, Any, Any]:
    """Program, program for tests and loss of a regression; the startup program has run."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = fluid.layers.data("x", [2]), fluid.layers.data("y", [1])
        weight = fluid.initializer.NumpyArrayInitializer(np.array([[0.5], [-0.25]], "float32"))
        guess = fluid.layers.fc(x, 1, param_attr=weight, bias_attr=fluid.initializer.Constant(0.1))
        loss = fluid.layers.mean(fluid.layers.square_error_cost(guess, y))
        test = main.clone(for_test=True)
        (optimizer or fluid.optimizer.SGD(0.1)).minimize(loss)
    fluid.Executor().run(startup)
    return main, test, loss


def compiled(devices: int, strategy: Any = None) -> tuple[Any, Any]:
    main, _, loss = network()
    program = fluid.CompiledProgram(main)
    return program.with_data_parallel(loss.name, strategy, places=[fluid.CPUPlace()] * devices), loss


def steps(program: Any, loss: Any, feed: Any, count: int = 3, **options: Any) -> list[Any]:
    executor = fluid.Executor()
    return [executor.run(program, feed=feed, fetch_list=[loss], **options)[0] for _ in range(count)]


def parameter(name: str) -> np.ndarray:
    return np.array(fluid.global_scope().find_var(name).get_tensor()).ravel()


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected, "float32"), rtol=2e-5, atol=1e-6)


def test_two_devices_give_their_losses_side_by_side() -> None:
    close(steps(*compiled(2), {"x": X, "y": Y})[2], [0.02855342, 0.01345902])


def test_the_update_uses_the_mean_of_the_devices_gradients() -> None:
    steps(*compiled(2), {"x": X, "y": Y})
    close(parameter("fc_0.w_0"), [0.76687735, 0.03243575])
    close(parameter("fc_0.b_0"), [0.25558355])


def test_four_devices_share_eleven_samples() -> None:
    losses = steps(*compiled(4), {"x": X, "y": Y})
    close(losses[0], [0.020625, 0.290625, 0.965625, 1.82812488])
    close(parameter("fc_0.w_0"), [0.7719031, 0.03718736])


def test_one_device_gives_what_the_program_itself_gives() -> None:
    assert float(steps(*compiled(1), {"x": X, "y": Y})[2][0]) == pytest.approx(0.02380254, rel=2e-5)
    close(parameter("fc_0.w_0"), [0.76188707, 0.02736392])


def test_a_list_of_feeds_gives_every_device_its_own() -> None:
    losses = steps(*compiled(2), [{"x": X[:3], "y": Y[:3]}, {"x": X[3:], "y": Y[3:]}])
    close(losses[2], [0.0283784, 0.06833786])
    close(parameter("fc_0.b_0"), [0.23542359])


def test_scale_one_adds_the_gradients() -> None:
    strategy = fluid.BuildStrategy()
    strategy.gradient_scale_strategy = Scale.One
    close(steps(*compiled(2, strategy), {"x": X, "y": Y})[2], [0.01792227, 0.21310338])


def test_reduce_gives_the_numbers_of_all_reduce() -> None:
    strategy = fluid.BuildStrategy()
    strategy.reduce_strategy = fluid.BuildStrategy.ReduceStrategy.Reduce
    close(steps(*compiled(2, strategy), {"x": X, "y": Y})[2], [0.02855342, 0.01345902])


def counting(strategy: Any) -> list[list[float]]:
    """What two devices fetch in two steps: the area under the curve, and a variable that counts steps."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        score, label = fluid.data("score", [-1, 2], "float32"), fluid.data("label", [-1, 1], "int64")
        area, _, _ = fluid.layers.auc(score, label, num_thresholds=7, slide_steps=2)
        count = fluid.layers.create_global_var([1], 0.0, "float32", persistable=True, name="count")
        fluid.layers.increment(count)
    executor = fluid.Executor()
    executor.run(startup)
    program = fluid.CompiledProgram(main).with_data_parallel(build_strategy=strategy, places=[fluid.CPUPlace()] * 2)
    scores = np.array([0.1, 0.9, 0.6, 0.4], "float32")
    feed = {"score": np.stack([1 - scores, scores], 1), "label": np.array([[0], [1], [0], [1]])}
    return [
        [float(x) for value in executor.run(program, feed=feed, fetch_list=[area, count]) for x in value.ravel()]
        for _ in range(2)
    ]


def test_with_reduce_devices_count_all_samples_together() -> None:
    strategy = fluid.BuildStrategy()
    strategy.reduce_strategy = fluid.BuildStrategy.ReduceStrategy.Reduce
    first, second = counting(strategy)
    assert first == pytest.approx([1.0, 0.75, 2.0, 2.0])
    assert second[2:] == [4.0, 4.0]


def test_with_all_reduce_each_device_counts_its_own_samples() -> None:
    first, second = counting(fluid.BuildStrategy())
    assert first == pytest.approx([1.0, 0.0, 1.0, 1.0])
    assert second[2:] == [2.0, 2.0]


def test_customized_scale_waits_for_the_users_gradient() -> None:
    strategy = fluid.BuildStrategy()
    strategy.gradient_scale_strategy = Scale.Customized
    program, loss = compiled(2, strategy)
    with pytest.raises(UninitializedError, match=r"mean_0\.tmp_0@GRAD"):
        steps(program, loss, {"x": X, "y": Y})


def test_customized_scale_takes_the_fed_gradient() -> None:
    strategy = fluid.BuildStrategy()
    strategy.gradient_scale_strategy = Scale.Customized
    program, loss = compiled(2, strategy)
    half = np.array([0.5, 0.5], "float32")
    losses = steps(program, loss, {"x": X, "y": Y, f"{loss.name}@GRAD": half})
    close(losses[2], [0.02855342, 0.01345902])


def test_results_can_be_listed_by_device() -> None:
    first = steps(*compiled(2), {"x": X, "y": Y}, count=1, return_merged=False)[0]
    close(first, [[0.155625], [1.31062496]])


def test_a_fed_parameter_reaches_every_device_and_goes_on_training() -> None:
    program, loss = compiled(2)
    steps(program, loss, {"x": X, "y": Y, "fc_0.b_0": np.array([0.5], "float32")}, count=1)
    close(parameter("fc_0.b_0"), [0.5625])
    close(steps(program, loss, {"x": X, "y": Y}, count=2)[1], [0.13227738, 0.03372518])


def test_a_gradient_is_fetched_summed_from_every_device() -> None:
    program, _ = compiled(2)
    gradient, scale = fluid.Executor().run(
        program, feed={"x": X, "y": Y}, fetch_list=["fc_0.w_0@GRAD", "mean_0.tmp_0@GRAD"]
    )
    close(gradient, [[-2.09749985], [-2.24], [-2.09749985], [-2.24]])
    close(scale, [0.5, 0.5])


def test_a_parameter_is_fetched_as_updated_from_every_device() -> None:
    program, _ = compiled(2)
    (weight,) = fluid.Executor().run(program, feed={"x": X, "y": Y}, fetch_list=["fc_0.w_0"])
    close(weight, [[0.70975], [-0.026], [0.70975], [-0.026]])


def test_batch_norm_keeps_statistics_by_device_and_clips_what_was_summed() -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.layers.data("x", [2])
        hidden = fluid.layers.fc(x, 2, param_attr=fluid.initializer.Constant(0.3))
        loss = fluid.layers.mean(fluid.layers.elementwise_mul(fluid.layers.batch_norm(hidden), x))
        fluid.optimizer.Momentum(
            0.1,
            0.9,
            regularization=fluid.regularizer.L2Decay(0.1),
            grad_clip=fluid.clip.GradientClipByGlobalNorm(0.05),
        ).minimize(loss)
    executor = fluid.Executor()
    executor.run(startup)
    program = fluid.CompiledProgram(main).with_data_parallel(loss.name, places=[fluid.CPUPlace()] * 2)
    for _ in range(3):
        found = executor.run(program, feed={"x": X**2}, fetch_list=[loss, "batch_norm_0.w_1", "batch_norm_0.w_0"])
    close(found[0], [0.37194955, 0.87852776])
    close(found[1], [0.06760411, 0.06760407, 0.44971421, 0.44971403])
    close(found[2], [0.93727201, 0.93658316, 0.93727201, 0.93658316])
    close(parameter("batch_norm_0.w_1"), [0.06760411, 0.06760407])


def test_sparse_gradients_put_their_rows_together() -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        word = fluid.layers.data("x", [1], dtype="int64")
        table = fluid.initializer.Constant(0.5)
        vector = fluid.layers.embedding(word, [5, 2], is_sparse=True, param_attr=table)
        loss = fluid.layers.mean(fluid.layers.square(vector))
        fluid.optimizer.SGD(0.5).minimize(loss)
    fluid.Executor().run(startup)
    program = fluid.CompiledProgram(main).with_data_parallel(loss.name, places=[fluid.CPUPlace()] * 2)
    losses = steps(program, loss, {"x": np.array([[0], [1], [1], [3], [3]], "int64")}, count=2)
    close(losses[1], [0.18576391, 0.140625])
    close(parameter("embedding_0.w_0")[::2], [0.4201389, 0.34722227, 0.5, 0.28125, 0.5])


def test_sequences_are_split_whole_and_joined_with_their_offsets() -> None:
    main = fluid.Program()
    with fluid.program_guard(main), fluid.unique_name.guard():
        doubled = fluid.layers.scale(fluid.layers.data("x", [1], lod_level=1), 2.0)
    words = fluid.create_lod_tensor(np.arange(8, dtype="float32").reshape(8, 1), [[1, 3, 0, 2, 2]], fluid.CPUPlace())
    program = fluid.CompiledProgram(main).with_data_parallel(places=[fluid.CPUPlace()] * 2)
    (found,) = fluid.Executor().run(program, feed={"x": words}, fetch_list=[doubled], return_numpy=False)
    assert found.lod() == [[0, 1, 4, 4, 6, 8]]
    close(found, np.arange(8).reshape(8, 1) * 2)


def test_inference_runs_on_fewer_devices_when_samples_are_few() -> None:
    _, test, loss = network()
    program = fluid.CompiledProgram(test).with_data_parallel(places=[fluid.CPUPlace()] * 4)
    close(steps(program, loss, {"x": X[:5], "y": Y[:5]}, count=1)[0], [0.005625, 0.095625, 0.27562496])


@pytest.mark.parametrize("as_list", [True, False])
def test_inference_feeds_persistable_variables_to_each_device(as_list: bool) -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x, p = (fluid.data(name, [None, 1], "float32") for name in "xp")
        p.persistable = True
        out = x * 1.0 + p * 10.0
    program = fluid.CompiledProgram(main).with_data_parallel(places=[fluid.CPUPlace()] * 3)
    for step in (0, 1):
        values = {"x": X[1:4, :1] * 10, "p": X[1:4, :1] * 10 + step}
        shares = [{name: value[i : i + 1] for name, value in values.items()} for i in range(3)]
        (found,) = fluid.Executor().run(program, feed=shares if as_list else values, fetch_list=[out])
        close(found, values["x"] + 10 * values["p"])
    close(parameter("p"), [3.0])


def read_by(devices: int, samples: int, drop_last: bool, train: bool) -> list[list[float]]:
    """What every run of an epoch fetches, a loader in the program giving single samples."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 1], "float32")
        loader = fluid.io.DataLoader.from_generator([x], capacity=4, iterable=False, drop_last=drop_last)
        weight = fluid.layers.create_parameter([1, 1], "float32", default_initializer=fluid.initializer.Constant(1.0))
        loss = fluid.layers.mean(fluid.layers.mul(x, weight))
        if train:
            fluid.optimizer.SGD(0.01).minimize(loss)
    loader.set_sample_list_generator(lambda: ([(np.array([i], "float32"),)] for i in range(samples)))
    executor = fluid.Executor()
    executor.run(startup)
    places = [fluid.CPUPlace()] * devices
    program = fluid.CompiledProgram(main).with_data_parallel(loss.name if train else None, places=places)
    loader.start()
    runs = []
    with pytest.raises(fluid.core.EOFException):
        while True:
            runs.append(executor.run(program, fetch_list=[loss])[0].tolist())
    loader.reset()
    return runs


@pytest.mark.parametrize(
    ("drop_last", "train", "last"),
    [(False, False, [16, 17]), (True, False, [12, 13, 14, 15]), (False, True, [10.02, 10.855, 11.69, 12.525])],
)
def test_the_last_batches_of_a_loader_in_the_program(drop_last: bool, train: bool, last: list[float]) -> None:
    close(read_by(4, 18, drop_last, train)[-1], last)


def test_batches_for_all_devices_leave_none_over() -> None:
    assert len(read_by(4, 16, drop_last=False, train=False)) == 4


def test_training_refuses_fewer_samples_than_devices() -> None:
    program, loss = compiled(4)
    with pytest.raises(
        FeedError, match=r"The number\(3\) of samples\[x\] of current batch is less than the count\(4\)"
    ):
        steps(program, loss, {"x": X[:5], "y": Y[:5]})


@pytest.mark.parametrize("count", [1, 3])
def test_training_refuses_a_list_of_another_length(count: int) -> None:
    program, loss = compiled(2)
    with pytest.raises(FeedError, match=f"The feed data number {count} does not match the device number 2"):
        steps(program, loss, [{"x": X, "y": Y}] * count)


def test_every_feed_of_a_list_is_a_dict() -> None:
    program, loss = compiled(2)
    with pytest.raises(TypeError, match="Each element of feed list should be a dict"):
        steps(program, loss, [{"x": X, "y": Y}, 3])


def test_a_feed_that_is_no_dict_is_refused() -> None:
    program, loss = compiled(2)
    with pytest.raises(ArgumentTypeError, match="feed requires dict or list"):
        steps(program, loss, 3)


def test_fetching_an_unknown_variable_names_it() -> None:
    program, _ = compiled(2)
    with pytest.raises(FetchError, match=r"Cannot find fetched variable\(nosuch\)"):
        steps(program, "nosuch", {"x": X, "y": Y})


def test_a_missing_feed_names_the_variable() -> None:
    program, loss = compiled(2)
    with pytest.raises(UninitializedError, match="variable y, which holds no value"):
        steps(program, loss, {"x": X})


def test_results_of_different_shapes_are_not_merged() -> None:
    main = fluid.Program()
    with fluid.program_guard(main), fluid.unique_name.guard():
        flat = fluid.layers.reshape(fluid.layers.data("x", [2]), [1, -1])
    program = fluid.CompiledProgram(main).with_data_parallel(places=[fluid.CPUPlace()] * 2)
    with pytest.raises(FetchError, match=r"found \(1, 12\), \(1, 10\); run with return_merged=False"):
        fluid.Executor().run(program, feed={"x": X}, fetch_list=[flat])


def test_without_data_parallelism_the_program_runs_as_it_is() -> None:
    _, test, loss = network()
    close(steps(fluid.CompiledProgram(test), loss, {"x": X, "y": Y}, count=1)[0], [0.680625])


def test_a_training_program_needs_the_name_of_its_loss() -> None:
    with pytest.raises(ValueError, match="The loss name of CompiledProgram is None"):
        fluid.CompiledProgram(network()[0]).with_data_parallel()


def test_data_parallelism_is_asked_for_once() -> None:
    with pytest.raises(ValueError, match="Already compiled with parallel"):
        compiled(2)[0].with_data_parallel("loss")


def test_only_programs_are_compiled() -> None:
    with pytest.raises(TypeError, match="expected Graph or Program, but received <class 'int'>"):
        fluid.CompiledProgram(3)  # type: ignore[arg-type]


def test_no_places_is_an_error() -> None:
    program, loss = compiled(0)
    with pytest.raises(ValueError, match="No places for execution"):
        steps(program, loss, {"x": X, "y": Y})


def test_places_are_of_the_executors_kind() -> None:
    program = fluid.CompiledProgram(network()[1]).with_data_parallel(places=fluid.CUDAPlace(0))
    with pytest.raises(ValueError, match="Place type not match"):
        steps(program, "mean_0.tmp_0", {"x": X, "y": Y})


def test_a_compiled_program_stays_with_its_scope() -> None:
    program, loss = compiled(2)
    steps(program, loss, {"x": X, "y": Y}, count=1)
    with pytest.raises(ValueError, match="Cannot compile program with different scope"):
        steps(program, loss, {"x": X, "y": Y}, scope=fluid.Scope())


def test_several_trainers_need_endpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUIDTOOL_COLLECTIVE", "grpc")
    strategy = fluid.BuildStrategy()
    strategy.num_trainers = 2
    program, loss = compiled(2, strategy)
    with pytest.raises(CollectiveError, match="num_trainers is 2, but the endpoints of the trainers are unknown"):
        steps(program, loss, {"x": X, "y": Y})


def test_variables_are_shared_from_another_program(capsys: pytest.CaptureFixture[str]) -> None:
    main, test, loss = network()
    places = [fluid.CPUPlace()] * 2
    train = fluid.CompiledProgram(main).with_data_parallel(loss.name, places=places)
    steps(train, loss, {"x": X, "y": Y})
    shared = fluid.CompiledProgram(test).with_data_parallel(share_vars_from=train, places=places)
    found = steps(shared, loss, {"x": X, "y": Y}, count=1, scope=fluid.Scope())[0]
    assert "share_vars_from is set, scope is ignored." in capsys.readouterr().err
    close(found, steps(train, loss, {"x": X, "y": Y}, count=1)[0])


def test_variables_are_shared_from_data_parallel_programs_only() -> None:
    _, test, loss = network()
    program = fluid.CompiledProgram(test).with_data_parallel(share_vars_from=fluid.CompiledProgram(test))
    with pytest.raises(ValueError, match="The shared Program is not data parallel"):
        steps(program, loss, {"x": X, "y": Y})


def test_variables_are_shared_from_programs_that_have_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "1")
    _, test, loss = network()
    other = fluid.CompiledProgram(test).with_data_parallel()
    with pytest.raises(ValueError, match="The shared Program is not compiled and executed"):
        steps(fluid.CompiledProgram(test).with_data_parallel(share_vars_from=other), loss, {"x": X, "y": Y})


def test_cpu_num_says_how_many_devices_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "2")
    main, _, loss = network()
    close(steps(fluid.CompiledProgram(main).with_data_parallel(loss.name), loss, {"x": X, "y": Y})[0].shape, [2])
    assert fluid.cpu_places() == [fluid.CPUPlace()] * 2
    assert fluid.cpu_places(3) == [fluid.CPUPlace()] * 3


def test_without_cpu_num_there_is_one_device(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CPU_NUM", "2")
    monkeypatch.delenv("CPU_NUM")
    assert fluid.cpu_places() == [fluid.CPUPlace()]
    assert "CPU_NUM is not set" in capsys.readouterr().err


def test_cpu_num_must_be_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "many")
    with pytest.raises(ValueError, match="CPU_NUM must be a positive number, found 'many'"):
        fluid.cpu_places()


@pytest.mark.skipif(fluid.is_compiled_with_cuda(), reason="there is a GPU here")
@pytest.mark.parametrize("places", [fluid.cuda_places, fluid.cuda_pinned_places])
@pytest.mark.parametrize("error", [RuntimeError, AssertionError])
def test_gpu_places_need_a_gpu(places: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="Not compiled with CUDA"):
        places()


def test_one_program_takes_one_feed() -> None:
    main, _, loss = network()
    assert len(steps(main, loss, [{"x": X, "y": Y}], count=1)) == 1
    with pytest.raises(AssertionError, match="Not compiled with data parallel"):
        steps(main, loss, [{"x": X, "y": Y}] * 2)


def test_strategies_have_the_defaults_of_paddle() -> None:
    build, execution = fluid.BuildStrategy(), fluid.ExecutionStrategy()
    assert (build.fuse_all_reduce_ops, build.memory_optimize, build.num_trainers) == (True, None, 1)
    assert build.gradient_scale_strategy == Scale.CoeffNumDevice
    assert (execution.num_threads, execution.num_iteration_per_drop_scope, execution.use_cuda) == (0, 100, True)


def test_strategies_keep_what_is_set_apart() -> None:
    one, other = fluid.BuildStrategy(), fluid.BuildStrategy()
    one.mkldnn_enabled_op_types.add("mul")
    one.enable_inplace = False
    assert other.mkldnn_enabled_op_types == set()
    assert other.enable_inplace


@pytest.mark.parametrize("strategy", [fluid.BuildStrategy, fluid.ExecutionStrategy])
def test_unknown_settings_are_named(strategy: Any) -> None:
    with pytest.raises(AttributeError, match=r"object has no attribute 'nosuch'; it has .*num_t"):
        strategy().nosuch = 1
    with pytest.raises(AttributeError, match="object has no attribute 'nosuch'"):
        _ = strategy().nosuch


@pytest.mark.parametrize(("name", "value"), [("num_trainers", "two"), ("reduce_strategy", 3), ("async_mode", 1)])
def test_settings_have_their_type(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"BuildStrategy.{name} takes"):
        setattr(fluid.BuildStrategy(), name, value)


def test_a_fed_variable_that_persists_goes_to_the_devices_that_run() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        rate = fluid.data("rate", [1], "float32")
        rate.persistable = True
        scaled = fluid.layers.elementwise_mul(fluid.data("x", [None, 1], "float32"), rate)
    compiled = fluid.CompiledProgram(main).with_data_parallel(places=[fluid.CPUPlace()] * 4)
    for rows in (1, 3, 6):
        feed = {"x": np.ones((rows, 1), "float32"), "rate": np.array([2.0], "float32")}
        (fetched,) = fluid.Executor().run(compiled, feed, [scaled])
        assert fetched.tolist() == [[2.0]] * rows
