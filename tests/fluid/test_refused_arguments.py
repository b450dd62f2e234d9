"""Arguments that Paddle 1.8.5 refuses while a program is built: by the layer, by its attributes, by the shapes; and their neighbors
that it accepts. Found by calling both implementations with one changed argument at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import FluidError
from fluidtool.fluid import layers


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        yield


def x(*shape: int, dtype: str = "float32", name: str = "x", lod_level: int = 0) -> Any:
    return fluid.data(name, list(shape), dtype, lod_level)


def y(*shape: int, dtype: str = "float32") -> Any:
    return x(*shape, dtype=dtype, name="y")


def z(*shape: int, dtype: str = "float32") -> Any:
    return x(*shape, dtype=dtype, name="z")


def rows(*shape: int) -> Any:
    return x(*shape, lod_level=1)


def refused(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        call()
    assert isinstance(caught.value, FluidError)


# ---------------------------------------------------------------- shapes of inputs
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: layers.gather(x(5, 4), y(3, 2, dtype="int64")), r"Index must have the shape \(n,\) or \(n, 1\), found \(3, 2\)"),
        (lambda: layers.scatter(x(5, 4), y(3, 2, dtype="int64"), z(3, 4)), r"Ids must have the shape .* found \(3, 2\)"),
        (lambda: layers.scatter(x(5, 4), y(3, dtype="int64"), z(3, 5)), r"Updates must have the shape \(3, 4\).* found \(3, 5\)"),
        (lambda: layers.scatter_nd_add(x(5, 4), y(3, 1, dtype="int64"), z(3, 5)), r"Updates must have the shape \(3, 4\)"),
        (lambda: layers.scatter_nd_add(x(5), y(3, 2, dtype="int64"), z(3)), "the last size of Index is 2"),
        (lambda: layers.cross(x(4, 3), y(4, 2)), r"X and Y must have one shape, found \(4, 3\) and \(4, 2\)"),
        (lambda: layers.cross(x(4, 3), y(4, 3), dim=-2), "dimension -2 .* must be of size 3"),
        (lambda: layers.cross(x(4, 3), y(4, 3), dim=2), "dim 2 is out of range"),
        (lambda: layers.allclose(x(4), y(5)), r"Input \(4,\) and Other \(5,\) must have the same shape"),
        (lambda: layers.multiplex([x(3, 4), y(3, 5)], z(3, 1, dtype="int32")), "must have one shape"),
        (lambda: layers.multiplex([x(3, 4), y(3, 4)], z(3, dtype="int32")), r"Ids must have the shape \(rows of X, 1\)"),
        (lambda: layers.index_sample(x(3, 4), y(2, 2, dtype="int64")), "matrices with the same number of rows"),
        (lambda: layers.index_select(x(3, 4), y(2, 2, dtype="int64")), r"Index must have the shape \(n,\)"),
        (lambda: layers.sampling_id(x(3)), r"X must have the shape \(rows, places\), found \(3,\)"),
        (lambda: layers.random_crop(x(3), [2, 2], 1), "has more dimensions than X"),
        (lambda: layers.random_crop(x(3, 4), [5], 1), "fit into"),
        (lambda: layers.unstack(x(3, 4), num=2), "num must be the size 3 of axis 0 of X, found 2"),
        (lambda: layers.expand_as(x(1, 4), y(3, 5)), r"target_tensor of shape \(3, 5\) must be a multiple"),
        (lambda: layers.unique(x(6, 1, dtype="int64")), r"X must have one dimension, found shape \(6, 1\)"),
        (lambda: layers.increment(x(2)), r"X must hold one number, found shape \(2,\)"),
        (lambda: layers.sums([x(2, 3), y(2, 4)]), r"must have one shape, found \(2, 3\) and \(2, 4\)"),
        (lambda: layers.crop(x(3, 4), [2]), r"shape must hold one number per dimension of X, 2, found \(2,\)"),
        (lambda: layers.crop_tensor(x(3, 4), [2, 2, 2]), "shape must hold one number per dimension of X, 2"),
        (lambda: layers.shard_index(x(3, dtype="int64"), 20, 2, 0), r"X must have at least two dimensions, found shape \(3,\)"),
        (lambda: layers.affine_channel(x(2, 3, 4, 4), y(4), z(3)), r"input Scale must have the shape \(3,\), found \(4,\)"),
        (lambda: layers.affine_grid(x(2, 2, 3), [2, 3, 4]), r"output_shape must hold 4 sizes, found \(2, 3, 4\)"),
        (lambda: layers.grid_sampler(x(2, 3, 4, 4), y(2, 4, 4, 3)), "input Grid must end in a size of 2"),
        (lambda: layers.cross_entropy(x(-1, 4), y(-1, 2, dtype="int64")), r"Label must have shape \(-1, 1\) or \(-1,\)"),
        (lambda: layers.cross_entropy(x(-1, 4), y(-1, 3), soft_label=True), "soft labels must have the shape of X"),
        (lambda: layers.softmax_with_cross_entropy(x(-1, 4), y(-1, 2, dtype="int64")), "input Label must have shape"),
        (lambda: layers.bpr_loss(x(-1, 4), y(-1, 2, dtype="int64")), "input Label must have shape"),
        (lambda: layers.gather_tree(x(3, 2, 2, dtype="int64"), y(3, 2, 1, dtype="int64")), "must have the same shape"),
        (lambda: layers.sequence_concat([rows(-1, 4)]), "X must be two or more tensors"),
        (lambda: layers.sequence_reverse(rows(-1)), "X must have at least two dimensions"),
        (lambda: layers.sequence_pad(rows(-1, 4), y(3)), "PadValue must have one value or the shape of a row"),
        (lambda: layers.sequence_slice(rows(-1, 4), y(3, dtype="int64"), z(3, 1, dtype="int64")), "Offset and Length must have"),
        (lambda: layers.sequence_unpad(x(3, 4, 2), y(4, dtype="int64")), "Length must have one value for each of the 3 items"),
        (lambda: layers.accuracy(x(-1, 4), y(-1, dtype="int64")), r"Label must have the shape \(samples, 1\), found \(-1,\)"),
        (lambda: layers.chunk_eval(x(-1, 1, dtype="int64"), y(-1, 2, dtype="int64"), "IOB", 2), "must have one shape, found"),
        (lambda: layers.merge_selected_rows(x(3, 4)), "X must be a SelectedRows, found a LoDTensor"),
    ],
)  # fmt: skip
def test_shapes_that_cannot_be(call: Callable[[], Any], message: str) -> None:
    refused(call, RuntimeError, message)


@pytest.mark.parametrize(
    "call",
    [
        lambda: layers.gather(x(5, 4), y(3, 1, dtype="int64")),
        lambda: layers.gather(x(5, 4), y(3, -1, dtype="int64")),
        lambda: layers.scatter(x(5, 4), y(-1, dtype="int64"), z(3, 4)),
        lambda: layers.scatter_nd_add(x(5, 4), y(3, 1, dtype="int64"), z(-1, 4)),
        lambda: layers.cross(x(-1, 3), y(4, 3)),
        lambda: layers.allclose(x(-1), y(4)),
        lambda: layers.random_crop(x(2, -1), [5], 1),
        lambda: layers.unstack(x(-1, 4), num=2),
        lambda: layers.expand_as(x(-1, 4), y(3, 4)),
        lambda: layers.increment(x(-1)),
        lambda: layers.sums([x(-1, 3), y(2, 3)]),
        lambda: layers.crop(x(-1, 4), [2, 2]),
        lambda: layers.cross_entropy(x(-1, 4), y(3, 1, dtype="int64")),
        lambda: layers.softmax_with_cross_entropy(x(-1, 4), y(3, 1, dtype="int64")),
        lambda: layers.sequence_unpad(x(-1, 4, 2), y(3, dtype="int64")),
    ],
)
def test_a_size_that_is_not_known_may_be_the_one_asked_for(call: Callable[[], Any]) -> None:
    call()


# ---------------------------------------------------------------- values of attributes
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: layers.lrn(x(2, 3, 4, 4), n=4), "n must be an odd positive number, found 4"),
        (lambda: layers.lrn(x(2, 3, 4, 4), n=-1), "attribute n must be above 0, found -1"),
        (lambda: layers.lrn(x(2, 3, 4, 4), k=0.0), "attribute k must be above 0, found 0.0"),
        (lambda: layers.batch_norm(x(2, 3), epsilon=0.1), "attribute epsilon must be at least 0 and at most 0.001, found 0.1"),
        (lambda: layers.batch_norm(x(2, 3), epsilon=-1.0), "attribute epsilon must be at least 0"),
        (lambda: layers.batch_norm(x(2, 3), epsilon=float("nan")), "attribute epsilon must be at least 0.* found nan"),
        (lambda: layers.layer_norm(x(2, 3), epsilon=1.0), "attribute epsilon must be at least 0 and at most 0.001"),
        (lambda: layers.instance_norm(x(2, 3, 4, 4), epsilon=1.0), "attribute epsilon must be at least 0 and at most 0.001"),
        (lambda: layers.group_norm(x(2, 4, 3, 3), 2, epsilon=2.0), "attribute epsilon must be at least 0 and at most 1"),
        (lambda: layers.data_norm(x(2, 3), epsilon=0.1), "attribute epsilon must be at least 0 and at most 0.001"),
        (lambda: layers.spectral_norm(x(4, 3), dim=-1), "attribute dim must be at least 0 and at most 1, found -1"),
        (lambda: layers.spectral_norm(x(4, 3), power_iters=-1), "attribute power_iters must be at least 0, found -1"),
        (lambda: layers.elementwise_add(x(2, 3), y(2, 3), axis=-2), "attribute axis must be at least -1, found -2"),
        (lambda: layers.add_position_encoding(x(2, 3, 4), -1.0, 1.0), "attribute alpha must be at least 0"),
        (lambda: layers.dropout(x(2, 3), 0.5, dropout_implementation="upscale"), "attribute dropout_implementation must be one of"),
        (lambda: layers.shuffle_channel(x(1, 4, 3, 3), 0), "attribute group must be at least 1, found 0"),
        (lambda: layers.sequence_pool(rows(-1, 4), "median"), "attribute pooltype must be one of AVERAGE, .*found 'MEDIAN'"),
        (lambda: layers.sequence_enumerate(x(-1, 1, dtype="int64", lod_level=1), 1), "win_size must be at least 2, found 1"),
        (lambda: layers.sequence_conv(rows(-1, 4), 3, filter_stride=2), "attribute contextStride must be at least 1 and at most 1"),
        (lambda: layers.dynamic_lstm(rows(-1, 16), 16, gate_activation="SIGMOID"), "gate_activation must be one of sigmoid"),
        (lambda: layers.bipartite_match(x(3, 5), "best"), "attribute match_type must be one of bipartite, per_prediction"),
        (lambda: layers.auc(x(-1, 2), y(-1, 1, dtype="int64"), num_thresholds=-1), "num_thresholds must be at least 1, found"),
        (lambda: layers.Print(x(2), print_phase="later"), "attribute print_phase must be one of"),
        (lambda: layers.clip_by_norm(x(2, 3), 0.0), "max_norm must be greater than 0, found 0.0"),
        (lambda: layers.cumsum(x(2, 3), axis=5), "axis 5 is out of range"),
        (lambda: layers.roll(x(3, 4), [1, 2], [0]), r"dims \[0\] and shifts \[1, 2\] must be of one length"),
        (lambda: layers.fill_constant([-1, 3], "float32", 1.0), r"shape must have no negative size, found \(-1, 3\)"),
        (lambda: layers.uniform_random([2, 3], min=2.0, max=1.0), r"max must be above min, found \[2.0, 1.0\)"),
        (lambda: layers.sampling_id(x(2, 3), min=1.0, max=1.0), "max must be above min"),
        (lambda: layers.sequence_mask(x(3, dtype="int64"), maxlen=0), "maxlen must be negative or at least 1, found 0"),
        (lambda: layers.lod_reset(x(6, 4), target_lod=[]), r"at least two offsets, found \[\]"),
        (lambda: layers.prior_box(x(1, 4, 3, 3), y(1, 3, 9, 9), [4.0], steps=[-1.0, 0.0]), "attribute step_. must be at least 0"),
    ],
)  # fmt: skip
def test_values_beyond_their_limits(call: Callable[[], Any], message: str) -> None:
    refused(call, RuntimeError, message)


@pytest.mark.parametrize(
    "call",
    [
        lambda: layers.batch_norm(x(2, 3), epsilon=0.001),
        lambda: layers.batch_norm(x(2, 3), epsilon=0.0),
        lambda: layers.group_norm(x(2, 4, 3, 3), 2, epsilon=1.0),
        lambda: layers.lrn(x(2, 3, 4, 4), n=3),
        lambda: layers.elementwise_add(x(2, 3), y(2, 3), axis=-1),
        lambda: layers.roll(x(3, 4), 1),
        lambda: layers.roll(x(3, 4), [1, 2], [0, -1]),
        lambda: layers.uniform_random([2.0, 3.5]),
    ],
)
def test_values_at_their_limits(call: Callable[[], Any]) -> None:
    call()


def test_a_loaded_operator_is_not_asked_for_its_limits() -> None:
    """Limits are those of appending: a file keeps its epsilon, as programs that other tools wrote have theirs."""
    block = fluid.default_main_program().global_block()
    layers.batch_norm(x(2, 3))
    op = next(op for op in block.ops if op.type == "batch_norm")
    op.set_attr("epsilon", 0.01)
    assert op.attr("epsilon") == pytest.approx(0.01)


# ---------------------------------------------------------------- types of attributes
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: layers.softmax(x(2, 3), axis=1.0), "attribute axis of operator softmax is INT, but 1.0 does not match it"),
        (lambda: layers.reduce_sum(x(2, 3), dim=[1.0]), r"attribute dim of operator reduce_sum is INTS, but \[1.0\]"),
        (lambda: layers.conv2d(x(1, 3, 8, 8), 4, 3, stride=[1.5, 1]), "attribute strides of operator conv2d is INTS"),
        (lambda: layers.shard_index(x(3, 1, dtype="int64"), 20.0, 2, 0), "attribute index_num of operator shard_index is INT"),
    ],
)  # fmt: skip
def test_a_fraction_is_no_whole_number(call: Callable[[], Any], message: str) -> None:
    refused(call, ValueError, message)


@pytest.mark.parametrize("value", [[1, "a"], [[1], 2], [1, None], {"a": 1}, object()])
@pytest.mark.parametrize("error", [TypeError, ValueError])
def test_what_no_attribute_holds_is_an_error_of_both_types(value: Any, error: type[Exception]) -> None:
    block = fluid.default_main_program().global_block()
    refused(
        lambda: block.append_op(type="squeeze2", inputs={"X": x(2, 1)}, outputs={"Out": y(2)}, attrs={"axes": value}),
        error,
        "attribute axes of operator squeeze2 cannot hold",
    )


def test_truth_values_among_numbers_are_numbers() -> None:
    out = layers.pad2d(x(1, 1, 4, 4), [True, 2, 1, 2])
    assert out.shape == (1, 1, 7, 7)


def test_an_array_of_one_number_is_that_number() -> None:
    assert layers.reduce_sum(x(2, 3), dim=[np.array([1])]).shape == (2,)


# ---------------------------------------------------------------- variables that are not there
def test_an_input_must_be_declared() -> None:
    block = fluid.default_main_program().global_block()
    refused(
        lambda: block.append_op(type="relu", inputs={"X": ["nosuch"]}, outputs={"Out": [x(2)]}),
        RuntimeError,
        "operator relu: input X is 'nosuch', but the program declares no such variable; program.list_vars",
    )


def test_an_input_may_be_declared_in_a_block_around() -> None:
    outside = x(2)
    program = fluid.default_main_program()
    block = program.create_block()
    block.append_op(
        type="relu", inputs={"X": [outside]}, outputs={"Out": [block.create_var(name="inside", dtype="float32")]}
    )
    program.rollback()


# ---------------------------------------------------------------- what Paddle's code asserts
@pytest.mark.parametrize(
    "call",
    [
        lambda: layers.elementwise_add(None, x(2)),
        lambda: layers.dot(x(2), None),
        lambda: layers.logsumexp(None),
        lambda: layers.tril(None),
        lambda: layers.fill_constant([], "float32", 1.0),
        lambda: layers.ones([0, 3], "float32"),
        lambda: layers.uniform_random([-1, -1]),
        lambda: layers.reshape(x(2, 3), []),
        lambda: layers.reshape(x(2, 3), [-7, 2]),
        lambda: layers.flip(x(2, 3), []),
        lambda: layers.trace(x(3)),
        lambda: layers.trace(x(3, 4), dim1=1, dim2=1),
        lambda: layers.diag_embed(x(2, 3), dim1=7),
        lambda: layers.unfold(x(1, 3, 6, 6), [2, 2, 2]),
        lambda: layers.unfold(x(1, 3, 6, 6), (2, 2)),
        lambda: layers.resize_bilinear(x(1, 3, 4, 4), out_shape=[0, 6]),
        lambda: layers.dynamic_gru(rows(-1, 12), 4, h_0=y(3, 5)),
        lambda: layers.dynamic_lstmp(rows(-1, 16), 16, 3, cell_clip=-1.0),
        lambda: layers.prelu(x(4), "channel"),
        lambda: layers.center_loss(x(-1, 4), y(-1, 1, dtype="int64"), 5, 1, None),
        lambda: layers.locality_aware_nms(x(1, 5, 4), y(1, 5), 0.1, 4, 3),
        lambda: layers.nce(x(-1, 4), y(-1, 1, dtype="int64"), 4, sampler="custom_dist"),
        lambda: fluid.create_random_int_lodtensor([[2, 3]], None, fluid.CPUPlace(), 0, 5),
        lambda: fluid.initializer.Uniform(diag_num=2),
        lambda: fluid.initializer.Uniform(diag_val=None),
    ],
)
def test_what_is_asserted(call: Callable[[], Any]) -> None:
    refused(call, AssertionError, "found|received|must|should|needs|can't be zero|invalid|cannot be|out of range")


# ---------------------------------------------------------------- types of arguments
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: layers.roll(x(3, 4), "ab", [0]), "The type of 'shifts' in roll must be"),
        (lambda: layers.logsumexp(x(2, 3), out="y"), "The type of 'out' in logsumexp must be"),
        (lambda: fluid.data("d", [2], lod_level=1.5), "The type of 'lod_level' in data must be"),
        (lambda: layers.py_reader(None, [[2]], ["float32"]), "The type of 'capacity' in py_reader must be"),
        (lambda: layers.fc(x(2, 3), 4, param_attr=object()), "cast to ParamAttr"),
        (lambda: layers.row_conv(rows(-1, 4), 1.5), "the shape of a parameter must have whole numbers, found"),
        (lambda: layers.erf(3), "input of erf must be variable, found int"),
        (lambda: layers.cast(x(2), 3), "dtype must be any of .* found 3"),
        (lambda: layers.pool2d(x(1, 1, 4, 4), 2, use_cudnn=1), "Attr\\(use_cudnn\\) should be True or False"),
    ],
)  # fmt: skip
def test_an_argument_of_a_wrong_type(call: Callable[[], Any], message: str) -> None:
    refused(call, TypeError, message)


@pytest.mark.parametrize(
    "call",
    [
        lambda: fluid.optimizer.Adadelta(0.1, epsilon=None),
        lambda: fluid.optimizer.Adadelta(0.1, rho=None),
        lambda: fluid.optimizer.RMSProp(0.1, momentum=None),
    ],
)
def test_what_is_not_set(call: Callable[[], Any]) -> None:
    refused(call, ValueError, "is not set, found None")


@pytest.mark.parametrize("error", [TypeError, ValueError, AttributeError, IndexError])
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: layers.matmul(x(2, 3), y(3, 2), alpha=None),
            r"matmul cannot use its arguments x=<Variable x: .*>, y=<Variable y: .*>, alpha=None: float\(\) argument .*"
            r"; help\(fluid.layers.matmul\) says what each must be",
        ),
        (lambda: layers.pool2d(3, 2), "pool2d cannot use its arguments input=3, pool_size=2: "),
        (lambda: layers.transpose(x(2, 3), [0, "a"]), r"transpose cannot use its arguments .*perm=\[0, 'a'\]: "),
        (lambda: fluid.embedding(x(2, dtype="int64"), [4, 5], padding_idx="a"), r"help\(fluid.embedding\) says"),
    ],
)
def test_an_argument_that_cannot_be_computed_with(
    call: Callable[[], Any], message: str, error: type[Exception]
) -> None:
    refused(call, error, message)


def test_an_argument_that_is_missing_is_named_by_python() -> None:
    with pytest.raises(TypeError, match=r"fc\(\) missing 1 required positional argument: 'size'"):
        layers.fc(x(2, 3))


def test_errors_of_functions_that_a_script_passes_are_its_own() -> None:
    def wrong() -> Any:
        raise IndexError("mine")

    with pytest.raises(IndexError, match=r"^mine$"):
        layers.cond(x(1, dtype="bool"), wrong, wrong)


# ---------------------------------------------------------------- what both accept
def test_a_negative_seed_is_a_seed() -> None:
    out = layers.uniform_random([4], seed=-7)
    exe = fluid.Executor(fluid.CPUPlace())
    first, second = (exe.run(fetch_list=[out])[0].tolist() for _ in range(2))
    assert first == second


def test_sizes_of_a_resized_image_lose_their_fraction() -> None:
    assert layers.resize_bilinear(x(1, 3, 4, 4), out_shape=[13 / 2, 6.0]).shape == (1, 3, 6, 6)
