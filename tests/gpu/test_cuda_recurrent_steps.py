"""Training steps with recurrent layers and sequences on a GPU: one graph for each LoD. The numbers are the CPU's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import OperatorError
from fluidtool.fluid import layers
from fluidtool.runtime import training_regions
from fluidtool.runtime.engines.cuda.training.compiled import CudaStep
from tests.gpu.standin import EVENTS
from tests.gpu.test_training_steps import Job, same

SIZE = 5  # no multiple of 8: Paddle's kernel for the CPU leaves out a part of an LSTM's gradient at those
LENGTHS = [3, 1, 4, 4]


pytestmark = pytest.mark.usefixtures("cupy")


def batch(seed: int, lengths: list[int] | None = None) -> dict[str, Any]:
    lengths, random = LENGTHS if lengths is None else lengths, np.random.default_rng(seed)
    rows = random.standard_normal((sum(lengths), 4)).astype(np.float32)
    return {"x": fluid.create_lod_tensor(rows, [lengths], fluid.CPUPlace())}


def sgd() -> Any:
    return fluid.optimizer.SGD(0.2)


def both(build: Any, batches: list[dict[str, Any]], optimizer: Any = sgd, rtol: float = 2e-5) -> Job:
    """A job on the GPU that has trained as one on the CPU has."""
    want, job = Job(build, optimizer, fluid.CPUPlace()), Job(build, optimizer)
    for feed in batches:
        a, b = (each.step(feed)[0] for each in (want, job))
        np.testing.assert_allclose(b, a, rtol=rtol)
    same(want, job, 1e-4)
    return job


def network(layer: Any) -> Any:
    """A layer of sequences between others."""

    def build() -> Any:
        x = layers.data("x", [4], lod_level=1)
        found = layer(layers.fc(x, SIZE))
        return layers.mean(layers.square(layers.fc(found, 2, act="tanh") - 0.3))

    return build


def lstm(**options: Any) -> Any:
    def layer(x: Any) -> Any:
        return layers.dynamic_lstm(layers.fc(x, 4 * SIZE), 4 * SIZE, **options)[0]

    return layer


def gru(**options: Any) -> Any:
    return lambda x: layers.dynamic_gru(layers.fc(x, 3 * SIZE), SIZE, **options)


def lstmp(size: int = 3, **options: Any) -> Any:
    def layer(x: Any) -> Any:
        return layers.dynamic_lstmp(layers.fc(x, 4 * SIZE), 4 * SIZE, size, **options)[0]

    return layer


def lstmp_with_states(**options: Any) -> Any:
    return lambda x: lstmp(h_0=state_of(x, 3), c_0=state_of(x), **options)(x)


def both_outputs_of_lstm(x: Any) -> Any:
    hidden, cell = layers.dynamic_lstm(layers.fc(x, 4 * SIZE), 4 * SIZE, use_peepholes=False)
    cell.stop_gradient = True
    return layers.elementwise_add(hidden, cell)


def state_of(x: Any, size: int = SIZE) -> Any:
    """A state for each sequence, which is learned."""
    return layers.fc(layers.sequence_pool(x, "sum"), size, act="tanh")


def lstm_with_states(**options: Any) -> Any:
    return lambda x: lstm(h_0=state_of(x), c_0=state_of(x), **options)(x)


def gru_with_state(**options: Any) -> Any:
    return lambda x: gru(h_0=state_of(x), **options)(x)


STATED = {
    "lstm with initial states": lstm_with_states(use_peepholes=False),
    "lstm with initial states and peepholes": lstm_with_states(),
    "lstm with initial states backwards": lstm_with_states(is_reverse=True),
    "lstmp with initial states": lstmp_with_states(use_peepholes=False),
    "lstmp with initial states, peepholes and bounds backwards": lstmp_with_states(
        is_reverse=True, cell_clip=0.3, proj_clip=0.2
    ),
    "gru with an initial state": gru_with_state(),
    "gru with an initial state backwards": gru_with_state(is_reverse=True),
    "gru of the first paper with an initial state": gru_with_state(origin_mode=True),
}
LAYERS = {
    **STATED,
    "lstm": lstm(use_peepholes=False),
    "lstm with peepholes": lstm(),
    "lstm backwards": lstm(is_reverse=True),
    "lstm of other activations": lstm(candidate_activation="relu", cell_activation="identity"),
    "lstm whose cells are read": both_outputs_of_lstm,
    "lstmp": lstmp(use_peepholes=False),
    "lstmp with peepholes": lstmp(),
    "lstmp backwards, wider than its cells": lstmp(7, is_reverse=True),
    "lstmp without an activation": lstmp(proj_activation="identity"),
    "lstmp of other activations": lstmp(candidate_activation="relu", cell_activation="sigmoid", proj_activation="relu"),
    "lstmp with bounds": lstmp(cell_clip=0.25, proj_clip=0.15),
    "lstmp with a bound of the projection alone": lstmp(proj_activation="identity", proj_clip=0.1),
    "gru": gru(),
    "gru backwards": gru(is_reverse=True),
    "gru of the first paper": gru(origin_mode=True),
    "gru of other activations": gru(candidate_activation="relu"),
    "two layers": lambda x: gru(is_reverse=True)(lstm()(x)),
    "softmax": lambda x: layers.elementwise_mul(x, layers.sequence_softmax(layers.fc(x, 1)), axis=0),
    "convolution": lambda x: layers.sequence_conv(x, 6, 3),
    "convolution of one row": lambda x: layers.sequence_conv(x, 6, 1),
    "reverse": lambda x: layers.sequence_reverse(layers.fc(x, SIZE)),
    "concat": lambda x: layers.sequence_concat([x, layers.fc(x, SIZE), x]),
    "expand": lambda x: layers.sequence_expand(layers.fc(layers.sequence_pool(x, "sum"), SIZE), x),
    "expand as": lambda x: layers.sequence_expand_as(layers.fc(layers.sequence_pool(x, "sum"), SIZE), x),
    **{f"pool {how}": lambda x, how=how: layers.sequence_pool(x, how) for how in ("sum", "average", "sqrt", "max")},
    "first": layers.sequence_first_step,
    "last": layers.sequence_last_step,
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_sequences_are_part_of_the_step(name: str, compiled: list[CudaStep]) -> None:
    job = both(network(LAYERS[name]), [batch(step) for step in range(3)])
    assert len(compiled) == 3 and job.region().region.parts is None


def test_the_third_step_of_a_lstm_is_one_launch(compiled: list[CudaStep]) -> None:
    job = both(network(LAYERS["lstm"]), [batch(step) for step in range(2)])
    with EVENTS.counted() as counts:
        job.step(batch(3))
    assert counts["launches"] == 3  # what is fed, the graph, and what is fetched


def test_other_lengths_are_other_graphs(compiled: list[CudaStep]) -> None:
    both(network(LAYERS["gru"]), [batch(0), batch(1, [4, 4, 3, 1]), batch(2), batch(3, [12])])
    assert len(compiled) == 4 and len(set(map(id, compiled))) == 3


def test_sequences_without_rows_are_left_out(compiled: list[CudaStep]) -> None:
    for name in ("lstm", "lstmp", "gru"):
        both(network(lambda x, name=name: layers.sequence_pool(LAYERS[name](x), "last")), [batch(0, [2, 0, 3])])
    assert compiled


@pytest.mark.parametrize("name", STATED)
def test_initial_states_of_one_step(name: str, compiled: list[CudaStep]) -> None:
    both(network(STATED[name]), [batch(0, [1, 1, 1])])
    assert compiled


@pytest.mark.parametrize("name", STATED)
def test_initial_states_that_are_fed_have_gradients(name: str, compiled: list[CudaStep]) -> None:
    def build() -> Any:
        states = layers.data("states", [SIZE])
        states.stop_gradient = False
        x = layers.fc(layers.data("x", [4], lod_level=1), SIZE)
        options = {"is_reverse": "backwards" in name}
        if "lstmp" in name:
            options |= {"use_peepholes": "peepholes" in name, "cell_clip": 0.9 if "bounds" in name else None}
            return layers.mean(layers.square(lstmp(SIZE, h_0=states, c_0=layers.scale(states, 0.5), **options)(x)))
        if "lstm" in name:
            options["use_peepholes"] = "peepholes" in name
            return layers.mean(layers.square(lstm(h_0=states, c_0=layers.scale(states, 0.5), **options)(x)))
        return layers.mean(layers.square(gru(h_0=states, origin_mode="first" in name, **options)(x)))

    feed = {**batch(0), "states": np.random.default_rng(3).standard_normal((4, SIZE)).astype(np.float32)}
    a, b = (Job(build, sgd, place).step(feed, "states@GRAD")[1] for place in (fluid.CPUPlace(), None))
    assert np.abs(a).max() > 1e-4 and compiled
    np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-7)


def test_lengths_that_never_repeat_are_not_compiled_for_ever(
    compiled: list[CudaStep], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_regions, "EAGER", 2)
    feeds = [batch(step, [1 + step, 2]) for step in range(5)]
    both(network(LAYERS["lstm"]), [*feeds, feeds[4], feeds[0]])
    assert len(compiled) == 4  # two at once, one that came again, and the first again


def test_the_gradient_of_a_layer_is_that_of_the_lod_of_its_results(compiled: list[CudaStep]) -> None:
    feed = batch(0)
    want, job = (Job(network(LAYERS["gru"]), sgd, place) for place in (fluid.CPUPlace(), None))
    name = next(op.outputs["Hidden"][0] for op in job.main.global_block().ops if op.type == "gru")
    found = [
        each.executor.run(each.main, feed, [name], scope=each.scope, return_numpy=False)[0] for each in (want, job)
    ]
    assert found[0].lod() == found[1].lod() == [[0, 3, 4, 8, 12]]
    assert compiled


def test_one_of_two_initial_states_is_refused_with_the_message_of_the_cpu() -> None:
    job = Job(network(lambda x: lstm(h_0=state_of(x))(x)), sgd)
    with pytest.raises(OperatorError, match="input H0 needs input C0, found none; pass both or neither"):
        job.step(batch(0))


def test_the_state_of_a_sequence_without_rows_has_no_gradient(compiled: list[CudaStep]) -> None:
    def build() -> Any:
        states = layers.data("states", [SIZE])
        states.stop_gradient = False
        found = gru(h_0=states)(layers.data("x", [4], lod_level=1))
        return layers.mean(layers.square(layers.sequence_pool(found, "sum")))

    feed = {**batch(0, [2, 0, 3]), "states": np.ones((3, SIZE), np.float32)}
    a, b = (Job(build, sgd, place).step(feed, "states@GRAD")[1] for place in (fluid.CPUPlace(), None))
    np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-7)
    assert compiled and not b[1].any() and b[0].any() and b[2].any()


def gru_unit(**options: Any) -> Any:
    def layer(x: Any) -> Any:
        hidden = x
        for _ in range(2):
            hidden, _, _ = layers.gru_unit(layers.fc(x, 3 * SIZE), hidden, 3 * SIZE, **options)
        return hidden

    return layer


UNITS = {
    "gru_unit": gru_unit(),
    "gru_unit of the first paper": gru_unit(origin_mode=True),
    "gru_unit of other activations": gru_unit(activation="relu", gate_activation="identity"),
    "gru_unit without a bias": gru_unit(bias_attr=False),
    "lstm_unit": lambda x: layers.elementwise_add(*layers.lstm_unit(x, x, layers.tanh(x), forget_bias=0.5)),
}


@pytest.mark.parametrize("name", UNITS)
def test_single_steps_are_part_of_the_step(name: str, compiled: list[CudaStep]) -> None:
    def build() -> Any:
        found = UNITS[name](layers.fc(layers.data("x", [4]), SIZE))
        return layers.mean(layers.square(layers.fc(found, 2, act="tanh") - 0.3))

    rows = [np.random.default_rng(step).standard_normal((6, 4)).astype(np.float32) for step in range(3)]
    job = both(build, [{"x": each} for each in rows])
    assert len(compiled) == 3 and job.region().region.parts is None


# ---------------------------------------------------------------- stacks of layers
def stack(**options: Any) -> Any:
    """An LSTM of cuDNN over 4 steps of 3 sequences, whose first states are learned, and its last states."""
    settings = {"num_layers": 2, "max_len": 4, "hidden_size": SIZE} | options
    directions = 2 if settings.get("is_bidirec") else 1

    def build() -> Any:
        x = layers.fc(layers.data("x", [4, 3, 6], append_batch_size=False), 4, num_flatten_dims=2)
        shape = [settings["num_layers"] * directions, 3, SIZE]
        first = [layers.create_parameter(shape, "float32", default_initializer=spread(seed)) for seed in (3, 4)]
        options = {"default_initializer": spread(5), **settings}
        out, *last = layers.lstm(layers.scale(x, 1.5), first[0], first[1], **options)
        more = [
            layers.mean(layers.square(layers.scale(each, factor)))
            for each, factor in zip(last, (2.0, 3.0), strict=True)
        ]
        return layers.mean(layers.square(layers.tanh(out) - 0.3)) + more[0] + more[1]

    return build


def spread(seed: int) -> Any:
    return fluid.initializer.Uniform(-0.5, 0.5, seed)


def steps_of(seed: int) -> dict[str, Any]:
    return {"x": np.random.default_rng(seed).standard_normal((4, 3, 6)).astype(np.float32)}


STACKS = {
    "one layer": {"num_layers": 1},
    "two layers": {},
    "both directions": {"is_bidirec": True},
    "dropout": {"dropout_prob": 0.4},
    "dropout by a seed, both directions": {"dropout_prob": 0.4, "seed": 11, "is_bidirec": True, "num_layers": 3},
    "dropout of everything": {"dropout_prob": 1.0},
    "dropout that is switched off": {"dropout_prob": 0.4, "is_test": True},
}


@pytest.mark.parametrize("name", STACKS)
def test_stacks_of_layers_are_part_of_the_step(name: str, compiled: list[CudaStep]) -> None:
    job = both(stack(**STACKS[name]), [steps_of(step) for step in range(3)])
    assert len(compiled) == 3 and job.region().region.parts is None


def test_a_stack_of_which_only_the_last_state_is_read(compiled: list[CudaStep]) -> None:
    def build() -> Any:
        x = layers.data("x", [4, 3, 6], append_batch_size=False)
        first = layers.create_parameter([2, 3, SIZE], "float32", default_initializer=spread(3))
        _, hidden, _ = layers.lstm(x, first, first, 4, SIZE, 2, default_initializer=spread(5))
        return layers.mean(layers.square(hidden))

    both(build, [steps_of(step) for step in range(3)])
    assert len(compiled) == 3


def test_masks_that_others_read_leave_a_stack_to_its_operator(compiled: list[CudaStep]) -> None:
    def build() -> Any:
        loss = stack(dropout_prob=0.4)()
        block = fluid.default_main_program().global_block()
        (cache,) = next(op for op in block.ops if op.type == "cudnn_lstm").input("Cache")
        copy = block.create_var(name="copy", dtype="float32", persistable=False)
        block.append_op(type="assign", inputs={"X": cache}, outputs={"Out": copy})
        copy.stop_gradient = True
        return loss

    job = both(build, [steps_of(0)])
    assert "Cache is read outside the step" in str(job.region().region.reasons)
