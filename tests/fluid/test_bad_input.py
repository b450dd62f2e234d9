"""Bad input: what each mistake says, as the Python exception that Paddle raises there, with the line that is to blame."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import FluidError
from fluidtool.fluid import layers
from fluidtool.ir import Program
from fluidtool.ir.callstack import written_in
from fluidtool.proto.enums import AttrType
from tests.cli.support import BIAS, WEIGHT, linear_program, process, write_model

CPU = fluid.CPUPlace()


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.scope_guard(fluid.Scope()),
        fluid.unique_name.guard(),
    ):
        yield


def refused(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        call()
    assert isinstance(caught.value, FluidError)


def run(feed: dict[str, Any], *fetches: Any) -> Any:
    exe = fluid.Executor(CPU)
    exe.run(fluid.default_startup_program())
    return exe.run(feed=feed, fetch_list=list(fetches))


def x(*shape: int, name: str = "x", dtype: str = "float32") -> Any:
    return fluid.data(name, list(shape), dtype)


def y(*shape: int, dtype: str = "float32") -> Any:
    return x(*shape, name="y", dtype=dtype)


# ---------------------------------------------------------------- arguments of a wrong type
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: layers.fc(3, 4), "The type of 'input' in fc must be"),
        (lambda: layers.fc(x(2, 3), "4"), "The type of 'size' in fc must be"),
        (lambda: layers.data("x", 3), "The type of 'shape' in data must be"),
        (lambda: layers.data(3, [3]), "The type of 'name' in data must be"),
        (lambda: layers.sums([x(2), 3]), "The type of 'input' in sums must be"),
        (lambda: fluid.embedding(x(2, 3), [4, 5]), "The data type of 'input' in fluid.embedding must be"),
        (lambda: layers.While(cond=x(1)), "condition should be a boolean variable"),
        (lambda: fluid.ParamAttr(initializer=3), "The type of 'initializer' in ParamAttr cannot be"),
        (lambda: fluid.ParamAttr(regularizer=3), "The type of 'regularizer' in ParamAttr cannot be"),
        (lambda: fluid.ParamAttr(gradient_clip=3), "The type of 'gradient_clip' in ParamAttr cannot be"),
        (lambda: fluid.optimizer.SGD(1), "learning rate should be float or Variable"),
        (lambda: fluid.optimizer.SGD(0.1, regularization=3), "'regularization' should be an L1Decay, L2Decay"),
        (lambda: fluid.optimizer.SGD(0.1, grad_clip=3), "'grad_clip' should be an instance of GradientClipBase"),
        (lambda: fluid.Executor(3), "a place is a CPUPlace, a CUDAPlace or a text such as 'cpu', found int"),
        (lambda: fluid.Executor(CPU).run(program=3), "requires Program as its Parameter"),
        (lambda: fluid.Executor(CPU).run(feed=[1]), "feed requires dict as its Parameter"),
        (lambda: fluid.Executor(CPU).run(fetch_list=[1]), "fetch_list should be str or Variable"),
    ],
)
def test_a_wrong_type_is_a_type_error(call: Callable[[], Any], message: str) -> None:
    refused(call, TypeError, message)


# ---------------------------------------------------------------- arguments that Paddle's code asserts
@pytest.mark.parametrize(
    "call",
    [
        lambda: fluid.initializer.Constant(None),
        lambda: fluid.initializer.Uniform(None),
        lambda: fluid.initializer.Uniform(2.0, 1.0),
        lambda: fluid.initializer.Normal(seed=None),
        lambda: fluid.initializer.TruncatedNormal(scale=None),
        lambda: fluid.initializer.Xavier(uniform=None),
        lambda: fluid.initializer.MSRA(seed=None),
        lambda: fluid.initializer.NumpyArrayInitializer([1.0]),
        lambda: fluid.regularizer.L1Decay(None),
        lambda: fluid.regularizer.L2Decay(None),
        lambda: fluid.clip.GradientClipByValue(-0.5),
        lambda: fluid.optimizer.SGD(None),
        lambda: fluid.optimizer.Momentum(0.1, None),
        lambda: fluid.optimizer.Adagrad(0.1, epsilon=None),
        lambda: fluid.optimizer.Adam(beta1=None),
        lambda: fluid.optimizer.Adamax(beta2=None),
        lambda: fluid.optimizer.DecayedAdagrad(0.1, decay=None),
        lambda: fluid.optimizer.Dpsgd(clip=None),
        lambda: fluid.optimizer.Lamb(lamb_weight_decay=None),
        lambda: fluid.optimizer.LookaheadOptimizer(fluid.optimizer.SGD(0.1), alpha=2.0),
        lambda: fluid.optimizer.LookaheadOptimizer(fluid.optimizer.SGD(0.1), k=-1),
        lambda: layers.clamp(x(2, 3)),
        lambda: layers.matmul(x(2, 3), y(4, 5)),
        lambda: layers.mish(x(2, 3), 0),
        lambda: layers.split(x(2, 3), 0),
        lambda: layers.unfold(x(2, 3), [1, 1]),
        lambda: layers.inplace_abn(x(2, 3), "relu"),
    ],
)
def test_what_is_asserted(call: Callable[[], Any]) -> None:
    refused(
        call,
        AssertionError,
        r"must be given, found None|needs|takes an ndarray|should be|must be more than 1, found 0|only support act as None",
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda: fluid.initializer.Initializer()(None, None),
        lambda: fluid.regularizer.WeightDecayRegularizer()(None, None, None),
        lambda: fluid.clip.BaseErrorClipAttr().append_clip_op(None, "x@GRAD"),
    ],
)
def test_base_classes_have_no_rule(call: Callable[[], Any]) -> None:
    refused(call, NotImplementedError, "has no rule")


def test_a_base_class_names_what_it_has_no_rule_for() -> None:
    weight = fluid.layers.create_parameter([2], "float32", name="w")
    block = fluid.default_main_program().global_block()
    refused(lambda: fluid.initializer.Initializer()(weight, block), NotImplementedError, "no rule to initialize w")
    refused(
        lambda: fluid.regularizer.WeightDecayRegularizer()(weight, weight, block), NotImplementedError, "no rule for w"
    )


def test_a_callback_is_called() -> None:
    loss = layers.mean(layers.fc(x(-1, 3), 2))
    refused(
        lambda: fluid.backward.append_backward(loss, callbacks=[3]), ValueError, "must be a callable object, found 3"
    )


def test_an_error_clip_says_what_it_does() -> None:
    assert str(fluid.clip.ErrorClipByValue(1.0)) == "ByValue, min=-1.000000, max=1.000000"


# ---------------------------------------------------------------- shapes and values that cannot work, while building
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: layers.mul(x(2, 3), y(4, 5)), r"operator mul: .*3.*4"),
        (lambda: layers.matmul(x(2, 3), y(4, 5)), r"X's width should be equal to Y's width"),
        (lambda: layers.elementwise_add(x(2, 3), y(2, 4)), r"shapes \(2, 3\) of X and \(2, 4\) of Y do not broadcast"),
        (lambda: layers.concat([x(2, 3), y(3, 4)], axis=1), r"X\[1\] of shape \(3, 4\) and X\[0\] of shape \(2, 3\)"),
        (lambda: layers.reshape(x(2, 3), [4, 2]), "8 elements requested, but X has 6"),
        (lambda: layers.transpose(x(2, 3), [0, 1, 2]), "length should be equal to dimensions of Input"),
        (lambda: layers.split(x(2, 3), 2, dim=1), "evenly divisible"),
        (lambda: layers.conv2d(x(2, 3), 4, 3), "Input must have 4 dimensions"),
        (lambda: layers.conv2d(x(1, 3, 8, 8), 4, 3, groups=2), "must be divisible by groups"),
        (lambda: layers.pool2d(x(1, 1, 4, 4), 2, "median"), "Unknown Attr\\(pool_type\\): 'median'"),
        (lambda: layers.batch_norm(x(4)), r"batch_norm takes an input of two dimensions or more, found \(4,\)"),
        (lambda: layers.softmax(x(2, 3), axis=5), "axis 5 is out of range"),
        (lambda: layers.dropout(x(2, 3), 1.5), "'dropout_prob' must be between 0.0 and 1.0"),
        (lambda: layers.reverse(x(2, 3), 2), r"every axis of axis must be in \[-2, 2\), found 2"),
        (lambda: layers.reverse(x(2, 3), []), r"axis must name at least one axis, found \[\]"),
        (lambda: layers.reverse(x(2, 3), [0, 0]), r"axis must name every axis once, found \[0, 0\]"),
        (
            lambda: layers.slice(x(2, 3), [0], [0, 1], [1]),
            "axes, starts and ends must be of one length, found 1, 2 and 1",
        ),
        (
            lambda: layers.strided_slice(x(2, 3), [0], [0], [1], [1, 1]),
            "axes, starts, ends and strides must be of one length, found 1, 1, 1 and 2",
        ),
        (lambda: layers.stack([x(2, 3), y(2, 4)]), r"must have one shape, found \(2, 3\), \(2, 4\)"),
        (lambda: layers.stack([x(2, 3), y(2)]), r"must have one shape, found \(2, 3\), \(2,\)"),
        (lambda: layers.topk(x(2, 3), 0), "k must be at least 1, found 0"),
        (lambda: layers.topk(x(2, 3), -1), "k must be at least 1, found -1"),
        (lambda: layers.fc(x(2, 3), 4, act="rellu"), 'Operator "rellu" has not been registered. Did you mean relu'),
    ],
)
def test_what_cannot_work_is_refused_while_building(call: Callable[[], Any], message: str) -> None:
    refused(call, (ValueError, RuntimeError), message)  # type: ignore[arg-type]


def test_sizes_that_are_not_known_may_be_those_of_the_others() -> None:
    assert layers.stack([x(-1, 3), y(2, 3)]).shape == (2, -1, 3)


# ---------------------------------------------------------------- redefinition
def test_an_input_is_not_declared_twice_with_another_shape() -> None:
    x(2)
    refused(lambda: x(3), ValueError, r"Variable x has been created before with shape \(2,\), the new one has \(3,\)")


def test_a_variable_is_not_declared_twice_with_another_data_type() -> None:
    x(2)
    block = fluid.default_main_program().global_block()
    refused(
        lambda: block.create_var(name="x", dtype="int64"), ValueError, "Variable x has been created before with dtype"
    )


def test_a_shared_parameter_has_one_shape() -> None:
    layers.fc(x(2, 3), 4, param_attr="w")
    refused(lambda: layers.fc(y(2, 3), 5, param_attr="w"), ValueError, r"Variable w has been created before with shape")


def test_a_shared_parameter_of_one_shape_is_fine() -> None:
    layers.fc(x(2, 3), 4, param_attr="w", bias_attr="b")
    layers.fc(y(2, 3), 4, param_attr="w", bias_attr="b")
    assert len(fluid.default_main_program().all_parameters()) == 2


# ---------------------------------------------------------------- names
@pytest.mark.parametrize(
    "call",
    [
        lambda: layers.abs(x(2, 3), -1),
        lambda: layers.relu(x(2, 3), y(2, 3)),
        lambda: layers.fc(x(2, 3), 2, name=0),
        lambda: layers.concat([x(2, 3)], 0, [1]),
    ],
)
def test_the_name_of_a_layer_is_a_string(call: Callable[[], Any]) -> None:
    refused(call, TypeError, r"The type of 'name' in \w+ must be .*str.*, but received")


@pytest.mark.parametrize("name", [3, None, 1.5])
def test_a_name_is_a_string(name: Any) -> None:
    refused(lambda: fluid.unique_name.generate(name), TypeError, "the key of a unique name must be a string, found")
    refused(lambda: fluid.Scope().var(name), TypeError, "a scope has variables by name, found")


# ---------------------------------------------------------------- training
def test_the_loss_is_a_scalar() -> None:
    loss = layers.fc(x(-1, 3), 4)
    message = r"The loss.shape should be \(1L,\), but the current loss.shape is \(-1, 4\).*fluid.layers.mean"
    refused(lambda: fluid.optimizer.SGD(0.1).minimize(loss), ValueError, message)


@pytest.mark.parametrize("kind", ["no parameter", "none to be trained"])
def test_an_optimizer_that_trains_nothing_warns(kind: str) -> None:
    hidden = x(-1, 3)
    if kind == "none to be trained":
        hidden = layers.fc(hidden, 2, param_attr=fluid.ParamAttr(trainable=False), bias_attr=False)
    loss = layers.mean(hidden)
    with pytest.warns(UserWarning, match=r"SGDOptimizer trains nothing: .* has a gradient of mean_0.tmp_0") as caught:
        fluid.optimizer.SGD(0.1).minimize(loss)
    assert caught[0].filename == __file__


# ---------------------------------------------------------------- feeds and fetches
def test_an_unknown_feed_warns() -> None:
    out = layers.scale(x(1))
    with pytest.warns(UserWarning, match="The variable z is not found in program"):
        run({"x": np.ones(1, "float32"), "z": np.ones(1)}, out)


@pytest.mark.parametrize(
    ("feed", "error", "message"),
    [
        ({}, RuntimeError, "variable x, which holds no value: feed it"),
        ({"x": np.ones((1, 4), "float32")}, ValueError, r"should have dimensions = 2, shape = \(-1, 3\), but received"),
        ({"x": np.ones(3, "float32")}, ValueError, "should have dimensions = 2"),
        ({"x": np.ones((1, 3))}, ValueError, "data type of fed Variable 'x' must be 'float32', but received 'float64'"),
        ({"x": "text"}, ValueError, "feed x is text"),
        ({"x": [[1, 2, 3], [1, 2]]}, ValueError, "feed x: .*rows of different lengths need a LoDTensor"),
    ],
)
def test_a_feed_that_does_not_fit(feed: dict[str, Any], error: type[Exception], message: str) -> None:
    out = layers.fc(x(-1, 3), 2)
    refused(lambda: run(feed, out), error, message)


def test_ids_beyond_the_table_are_named() -> None:
    out = fluid.embedding(x(2, dtype="int64"), [4, 5])
    refused(lambda: run({"x": np.array([1, 9])}, out), RuntimeError, "input Ids holds 9, expected 0 to 3")


def test_an_unknown_fetch_is_named() -> None:
    refused(lambda: run({}, "nosuch"), ValueError, "cannot fetch nosuch: the program has no such variable")


def test_the_startup_program_comes_first() -> None:
    out = layers.fc(x(-1, 3), 2)
    exe = fluid.Executor(CPU)
    refused(
        lambda: exe.run(feed={"x": np.ones((1, 3), "float32")}, fetch_list=[out]),
        RuntimeError,
        "variable fc_0.w_0, which holds no value: .*run the startup program first",
    )


# ---------------------------------------------------------------- states
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros((7, 7), "float32"), r"Variable's shape does not match: w is declared \(3, 4\), .* contains \(7, 7\)"),
        (np.zeros((3, 4), "float64"), "w is declared FP32, the state given contains FP64"),
    ],
)
def test_a_state_of_another_program(value: Any, message: str) -> None:
    run({"x": np.ones((1, 3), "float32")}, layers.fc(x(-1, 3), 4, param_attr="w"))
    refused(lambda: fluid.io.set_program_state(fluid.default_main_program(), {"w": value}), AssertionError, message)


def test_a_state_before_the_startup_program_has_run() -> None:
    layers.fc(x(-1, 3), 4, param_attr="w")
    state = {"w": np.zeros((3, 4), "float32")}
    message = r"Variable \[ w \] Not found, Please make sure run startup program"
    refused(lambda: fluid.io.set_program_state(fluid.default_main_program(), state), AssertionError, message)


def test_a_saved_state_of_another_program(tmp_path: Path) -> None:
    out = layers.fc(x(-1, 3), 4, param_attr="w")
    run({"x": np.ones((1, 3), "float32")}, out)
    fluid.io.save(fluid.default_main_program(), str(tmp_path / "state"))
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        layers.fc(x(-1, 3), 4, param_attr="other")
        exe = fluid.Executor(CPU)
        exe.run(fluid.default_startup_program())
        program = fluid.default_main_program()
        refused(
            lambda: fluid.io.load(program, str(tmp_path / "state"), exe),
            AssertionError,
            r"no value for 2 parameters \(other",
        )


def test_a_saved_state_without_that_of_the_optimizer(tmp_path: Path) -> None:
    loss = layers.mean(layers.fc(x(-1, 3), 4, param_attr="w"))
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    run({"x": np.ones((1, 3), "float32")}, loss)
    program = fluid.default_main_program()
    fluid.io.save(program, str(tmp_path / "state"))
    (tmp_path / "state.pdopt").unlink()
    refused(lambda: fluid.io.load(program, str(tmp_path / "state")), AssertionError, "Optimizer file .* not exits")


# ---------------------------------------------------------------- LoD
@pytest.mark.parametrize("lod", [[[0, 0.5, 3]], "a", [3], 3])
def test_a_lod_is_lists_of_integers(lod: Any) -> None:
    tensor = fluid.LoDTensor()
    tensor.set(np.ones((3, 1), "float32"), CPU)
    refused(lambda: tensor.set_lod(lod), TypeError, "a LoD must be lists of integers, found")
    assert tensor.lod() == []


def test_offsets_that_do_not_fit_the_rows() -> None:
    tensor = fluid.LoDTensor()
    tensor.set(np.ones((3, 1), "float32"), CPU)
    refused(lambda: tensor.set_lod([[0, 2]]), ValueError, "level 0 ends at 2, but there are 3 rows")


def test_a_sequence_operator_needs_sequences() -> None:
    out = layers.sequence_pool(layers.data("x", [1], lod_level=1), "sum")
    refused(lambda: run({"x": np.ones((3, 1), "float32")}, out), RuntimeError, "input X needs a LoD")


def test_two_sequences_that_do_not_go_together() -> None:
    first, second = (layers.data(name, [1], lod_level=1) for name in "xy")
    out = layers.sequence_expand(first, second, 0)
    feed = {
        name: fluid.create_lod_tensor(np.ones((3, 1), "float32"), [lengths], CPU)
        for name, lengths in (("x", [1, 2]), ("y", [1, 1, 1]))
    }
    refused(lambda: run(feed, out), RuntimeError, "X has 2 sequences, but level 0 of Y's LoD has 3 sequences")


# ---------------------------------------------------------------- the line that is to blame
def test_an_error_of_a_run_names_the_line_that_wrote_the_operator() -> None:
    out = layers.fc(layers.data("x", [3]), 2)  # the line to blame
    with pytest.raises(RuntimeError) as caught:
        run({"x": np.ones((1, 4), "float32")}, out)
    assert f"written in {__file__}, line " in str(caught.value)
    assert "out = layers.fc(layers.data(" in str(caught.value) and "the line to blame" in str(caught.value)


def test_the_line_survives_saving_and_loading() -> None:
    out = layers.fc(layers.data("x", [3]), 2)
    exe = fluid.Executor(CPU)
    exe.run(fluid.default_startup_program())
    loaded = Program.parse_from_string(fluid.default_main_program().serialize_to_string())
    with pytest.raises(RuntimeError, match=r"written in .*out = layers.fc"):
        exe.run(loaded, feed={"x": np.ones((1, 4), "float32")}, fetch_list=[out.name])


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        (
            [
                '  File "/usr/lib/python3.7/site-packages/paddle/fluid/framework.py", line 2610, in append_op\n    attrs=a\n',
                '  File "train.py", line 7, in net\n    y = fluid.layers.fc(x, 2)\n',
                '  File "train.py", line 12, in <module>\n    net()\n',
            ],
            "train.py, line 7: y = fluid.layers.fc(x, 2)",
        ),
        (['  File "train.py", line 7, in net', "    y = f(x)"], "train.py, line 7: y = f(x)"),
        (['  File "train.py", line 7, in net', ""], "train.py, line 7"),
        ([""], ""),
        ([], ""),
    ],
)
def test_the_line_is_the_innermost_outside_the_library(stack: list[str], expected: str) -> None:
    """Paddle keeps a frame as one text, fluidtool as two."""
    op = layers.scale(x(1)).block.ops[0]
    op.set_attr("op_callstack", stack)
    assert written_in(op) == expected


def test_a_script_is_told_both_lines(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import numpy as np\n"
        "import paddle.fluid as fluid\n"
        "x = fluid.layers.data('x', [3])\n"
        "y = fluid.layers.fc(x, 2)\n"
        "exe = fluid.Executor(fluid.CPUPlace())\n"
        "exe.run(fluid.default_startup_program())\n"
        "exe.run(feed={'x': np.ones((1, 4), 'float32')}, fetch_list=[y])\n"
    )
    done = process("exec", "script.py", cwd=tmp_path)
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("error: script.py, line 7: exe.run(feed=")
    assert "written in script.py, line 4: y = fluid.layers.fc(x, 2)" in line and done.returncode == 2


def test_a_script_is_told_the_line_of_a_mistake_in_building(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import paddle.fluid as fluid\nx = fluid.data('x', [2, 3])\n\nfluid.layers.reshape(x, [4, 2])\n"
    )
    done = process("exec", "script.py", cwd=tmp_path)
    assert done.stderr.decode().startswith("error: script.py, line 4: fluid.layers.reshape(x, [4, 2]): ")


# ---------------------------------------------------------------- long names
LONG = "begin" + "n" * 100_000 + "end"


@pytest.mark.parametrize(
    "call",
    [
        lambda: run({LONG: np.ones((2, 4), "float32")}, layers.scale(x(2, 3, name=LONG), 2.0)),
        lambda: run({}, layers.scale(x(2, 3, name=LONG), 2.0)),
        lambda: fluid.default_main_program().global_block().var(LONG),
        lambda: run({}, LONG),
        lambda: fluid.default_main_program().global_block().append_op(type=LONG),
        lambda: (x(2, name=LONG), x(3, name=LONG)),
    ],
)
def test_a_message_has_both_ends_of_a_long_name(call: Callable[[], Any]) -> None:
    with pytest.raises(FluidError, match=r"begin.*n…\(.*characters\)…n.*end") as caught:
        call()
    assert len(str(caught.value)) < 3_000


@pytest.mark.filterwarnings("default")
def test_a_warning_has_both_ends_of_a_long_name() -> None:
    out = layers.scale(x(2, 3), 2.0)
    with pytest.warns(UserWarning, match=r"begin.*n…\(.*characters\)…n.*end is not found") as caught:
        run({"x": np.ones((2, 3), "float32"), LONG: np.ones(1)}, out)
    assert len(str(caught[0].message)) < 1_000


# ---------------------------------------------------------------- programs of files
def malformed() -> Program:
    """The linear program, its product with an attribute of another type."""
    program = linear_program()
    program.global_block().ops[1].set_attr("x_num_col_dims", ["one"], AttrType.STRINGS)
    return program


MALFORMED = "operator mul in block 0 .*has attribute x_num_col_dims as STRINGS, expected INT"


def test_a_saved_model_with_a_malformed_operator(tmp_path: Path) -> None:
    write_model(tmp_path / "m", malformed(), w=WEIGHT, b=BIAS)
    refused(lambda: fluid.io.load_inference_model(str(tmp_path / "m"), fluid.Executor(CPU)), RuntimeError, MALFORMED)


def test_a_malformed_program_does_not_run() -> None:
    feed = {"x": np.ones((2, 4), "float32")}
    refused(lambda: fluid.Executor(CPU).run(malformed(), feed, ["probability"]), RuntimeError, MALFORMED)


def test_a_malformed_program_is_not_transpiled() -> None:
    transpiler = fluid.transpiler.InferenceTranspiler()
    refused(lambda: transpiler.transpile(malformed(), CPU), RuntimeError, MALFORMED)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fluid.optimizer.SGD(0.1).minimize("loss"), "The loss should be an Variable"),
        (lambda: fluid.optimizer.SGD(0.1).minimize(x(3)), "The loss.shape should be"),
        (lambda: fluid.name_scope("").__enter__(), "namescope prefix can not be empty"),
        (lambda: layers.reshape(x(3, 4), [-1, -1]), "Only one dimension value of 'shape' in reshape can be -1"),
        (lambda: layers.split(x(3, 4), 3, dim=1), "must be evenly divisible"),
        (lambda: layers.pad2d(x(1, 2, 3, 4), mode="around"), "mode should be one of constant, reflect, edge"),
        (lambda: x(3, dtype="int32") + 1.5, "float value 1.5 cannot convert to integer"),
        (lambda: fluid.initializer.Uniform(1.0, 0.0), "low <= high, found 1.0 and 0.0"),
        (lambda: fluid.save(fluid.default_main_program(), "folder/"), "MUST be format of dirname/filename"),
        (lambda: fluid.io.get_parameter_value(x(3)), "takes a Parameter"),
        (lambda: fluid.executor._fetch_var("nothing"), "Cannot find nothing in scope"),
        (lambda: fluid.DataFeeder([x(3), x(3, name="y")], CPU).feed([(1,)]), r"fields in data \(1\) does not match"),
        (lambda: layers.expand(x(3, 4), [0, 1]), "Each element given in expand_times must not be negative"),
        (lambda: fluid.ParallelExecutor(False, share_vars_from=3), "share_vars_from should be ParallelExecutor"),
        (lambda: append("relu", inputs={"Z": x(3)}), "operator relu has no input 'Z'"),
        (lambda: append("relu", inputs={}), "Input X not found for operator relu"),
    ],
)
def test_what_paddle_asserts(call: Callable[[], Any], message: str) -> None:
    refused(call, AssertionError, message)


def append(op_type: str, **arguments: Any) -> Any:
    block = fluid.default_main_program().global_block()
    return block.append_op(type=op_type, outputs={"Out": block.create_var(name="out")}, **arguments)


def test_what_no_memory_can_hold_is_a_memory_error() -> None:
    out = layers.range(0, 1 << 60, 1, "int64")
    refused(lambda: run({}, out), MemoryError, r"operator range needs more memory than is available: \S.*\S \[block 0")


def test_a_closed_executor_is_a_runtime_error() -> None:
    exe = fluid.Executor(CPU)
    exe.close()
    refused(exe.run, RuntimeError, "Attempted to use a closed Executor")


def test_a_block_that_is_not_there_is_an_index_error() -> None:
    refused(lambda: fluid.Program().block(1), IndexError, "no block 1: it has 1")


@pytest.mark.parametrize("declare", [fluid.data, layers.data])
@pytest.mark.parametrize("size", ["a", 1.5])
def test_a_declared_size_is_an_integer(declare: Callable[..., Any], size: Any) -> None:
    refused(lambda: declare("input", [None, size]), TypeError, f"integers and None, found .*{size}")


@pytest.mark.parametrize("lengths", ["ab", [[1.0, 2.0]], [1, 2], 3])
def test_lengths_of_sequences_are_lists_of_integers(lengths: Any) -> None:
    tensor = fluid.LoDTensor()
    tensor.set(np.zeros((3, 1)), CPU)
    refused(lambda: tensor.set_recursive_sequence_lengths(lengths), TypeError, "must be lists of integers, found")


def test_a_fetch_of_what_nothing_computes_suggests_other_names() -> None:
    x(3, name="image")
    with pytest.raises(FluidError) as caught:
        fluid.Executor(CPU).run(fetch_list=["image"])
    assert "did you mean" not in str(caught.value)


def test_what_paddle_asserts_of_sequences() -> None:
    for data in ([[1, 2], [3]], np.zeros((3, 1))):
        with pytest.raises(AssertionError):
            fluid.create_lod_tensor(data, [[2, 3]], fluid.CPUPlace())


@pytest.mark.parametrize(
    "arguments",
    [
        {"targets": "y"},
        {"inputs": "x"},
        {"target_gradients": "x"},
        {"no_grad_set": "x"},
    ],
)
def test_gradients_takes_variables(arguments: dict[str, Any]) -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [1], "float32")
        y = fluid.layers.scale(x)
        with pytest.raises(TypeError, match=f"The type of '?{next(iter(arguments))}'?"):
            fluid.gradients(**{"targets": y, "inputs": x, **arguments})


def test_callbacks_of_append_backward_are_a_list() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [1, 1], "float32"), 1))
        with pytest.raises(TypeError, match="'callbacks'"):
            fluid.backward.append_backward(loss, callbacks=lambda block, context: None)


def test_a_data_type_that_fluid_never_had() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()), pytest.raises(ValueError, match="complex128"):
        fluid.layers.create_global_var([1], 2.0, "complex128")


def test_a_single_input_without_a_gradient_has_none() -> None:
    x, y = fluid.data("x", [2]), fluid.data("y", [2])
    x.stop_gradient = False
    loss = layers.mean(x * 2.0)
    assert fluid.gradients(loss, y) == [] and fluid.backward.calc_gradient(loss, y) is None
    with_one = fluid.gradients(loss, [x, y])
    assert with_one[0].name.startswith("x@GRAD") and with_one[1] is None
