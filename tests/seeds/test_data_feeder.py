"""`fluid.DataFeeder` as documented."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.compat import install


def slots() -> tuple[Any, Any]:
    return fluid.layers.data(name="image", shape=[1, 28, 28]), fluid.layers.data("label", shape=[1], dtype="int64")


SAMPLES = [([0] * 784, [9]), ([1] * 784, [1])]


def test_the_simple_usage() -> None:
    place = fluid.CPUPlace()
    img = fluid.layers.data(name="image", shape=[1, 28, 28])
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    feeder = fluid.DataFeeder([img, label], place)
    result = feeder.feed([([0] * 784, [9]), ([1] * 784, [1])])
    assert {name: tensor.shape() for name, tensor in result.items()} == {"image": [2, 1, 28, 28], "label": [2, 1]}
    assert np.array(result["label"]).tolist() == [[9], [1]] and np.array(result["image"]).dtype == np.float32


def test_the_example_in_a_loop() -> None:
    img, label = slots()
    out = fluid.layers.concat([fluid.layers.cast(label, "float32"), fluid.layers.reduce_sum(img, [2, 3])], axis=1)
    main_program = fluid.default_main_program()
    exe = fluid.Executor(fluid.CPUPlace())
    feed_vars_name = ["image", "label"]

    def reader() -> Iterator[Any]:
        yield SAMPLES

    place = fluid.CPUPlace()
    feed_list = [main_program.global_block().var(var_name) for var_name in feed_vars_name]
    feeder = fluid.DataFeeder(feed_list, place)
    for data in reader():
        outs = exe.run(program=main_program, feed=feeder.feed(data), fetch_list=[out])
    assert outs[0].tolist() == [[9, 0], [1, 784]]


def test_variables_are_given_by_name_and_program() -> None:
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        slots()
    feeder = fluid.DataFeeder(feed_list=["label", "image"], place=fluid.CPUPlace(), program=program)
    assert list(feeder.feed(iterable=[([9], [0] * 784)])) == ["label", "image"]


def test_a_variable_that_is_not_in_the_program_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="var nosuch not in this block"):
        fluid.DataFeeder(["nosuch"], fluid.CPUPlace())


def test_the_feed_list_holds_variables() -> None:
    with pytest.raises(TypeError, match="Feed list should contain a list of variable"):
        fluid.DataFeeder([3], fluid.CPUPlace())  # type: ignore[list-item]


def test_sequences_get_their_lod() -> None:
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    result = fluid.DataFeeder([words], fluid.CPUPlace()).feed([([1, 2],), ([3, 4, 5],)])["words"]
    assert (result.recursive_sequence_lengths(), result.shape()) == ([[2, 3]], [5, 1])


def test_a_sample_has_a_field_for_every_variable() -> None:
    feeder = fluid.DataFeeder(list(slots()), fluid.CPUPlace())
    with pytest.raises((ValueError, AssertionError), match="number of fields in data"):
        feeder.feed([([0] * 784,)])


def test_a_sample_that_does_not_fit_the_shape_is_named() -> None:
    feeder = fluid.DataFeeder(list(slots()), fluid.CPUPlace())
    with pytest.raises(ValueError, match="image"):
        feeder.feed([([0] * 783, [1])])


def test_feed_parallel_gives_every_device_its_mini_batch() -> None:
    feeder = fluid.DataFeeder(list(slots()), fluid.CPUPlace())
    feeds = list(feeder.feed_parallel([SAMPLES, SAMPLES[:1]], num_places=2))
    assert [feed["label"].shape() for feed in feeds] == [[2, 1], [1, 1]]


def test_feed_parallel_needs_as_many_mini_batches_as_devices() -> None:
    feeder = fluid.DataFeeder(list(slots()), fluid.CPUPlace())
    with pytest.raises(ValueError, match=r"number of\s+devices \(3\) and number of mini-batches \(1\) must be same"):
        list(feeder.feed_parallel([SAMPLES], 3))


def three_batches() -> Iterator[Any]:
    for _ in range(3):
        yield SAMPLES


def test_the_example_of_decorate_reader() -> None:
    """With the data set that makes itself up instead of flowers."""
    data, label = fluid.layers.data("data", [784]), fluid.layers.data("label", [1], dtype="int64")
    place = fluid.CPUPlace()
    feeder = fluid.DataFeeder(place=place, feed_list=[data, label])
    with install(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLUIDTOOL_DATASET", "synthetic")
        import paddle  # type: ignore[import-not-found]

        reader = feeder.decorate_reader(paddle.batch(paddle.dataset.mnist.train(), batch_size=16), multi_devices=False)
        assert next(reader())["data"].shape() == [16, 784]


def test_decorate_reader_needs_to_be_told_of_devices() -> None:
    """The documented example leaves `multi_devices` out, which no version took."""
    feeder = fluid.DataFeeder(list(slots()), fluid.CPUPlace())
    with pytest.raises(TypeError, match="multi_devices"):
        feeder.decorate_reader(three_batches)  # type: ignore[call-arg]


def test_decorate_reader_groups_mini_batches_and_drops_the_rest() -> None:
    feeder = fluid.DataFeeder(list(slots()), fluid.CPUPlace())
    groups = list(feeder.decorate_reader(three_batches, multi_devices=True, num_places=2)())
    assert [len(group) for group in groups] == [2]


def test_decorate_reader_refuses_a_rest_when_nothing_may_be_dropped() -> None:
    feeder = fluid.DataFeeder(list(slots()), fluid.CPUPlace())
    reader = feeder.decorate_reader(reader=three_batches, multi_devices=True, num_places=2, drop_last=False)
    with pytest.raises(ValueError, match="do not fill 2 devices"):
        list(reader())
