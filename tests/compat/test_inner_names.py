"""Names that scripts take from the inside of Paddle 1.8.5."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from fluidtool import fluid
from fluidtool.compat import decorators, install, text
from fluidtool.errors import NotOfferedError, NotOfferedImportError, UsageError
from fluidtool.fluid.contrib.reader import distributed_batch_reader
from fluidtool.proto.enums import VarType

NAMES = """
paddle.compat.to_text
paddle.version.full_version
paddle.fluid.framework.core.CPUPlace
paddle.fluid.framework.generate_control_dev_var_name
paddle.fluid.framework.unique_name.generate
paddle.fluid.layers.layer_function_generator.templatedoc
paddle.fluid.layers.utils._contain_var
paddle.fluid.layers.utils._is_symmetric_padding
paddle.fluid.optimizer.core.op_proto_and_checker_maker
paddle.fluid.backward._append_grad_suffix_
paddle.fluid.backward.calc_gradient
paddle.fluid.contrib.decoder.beam_search_decoder.BeamSearchDecoder
paddle.fluid.contrib.layers.rnn_impl.BasicGRUUnit
paddle.fluid.contrib.mixed_precision.decorator.decorate
paddle.fluid.contrib.reader.distributed_batch_reader
paddle.fluid.contrib.reader.distributed_reader.distributed_batch_reader
paddle.fluid.core_avx.VarDesc
paddle.fluid.executor._fetch_var
paddle.fluid.framework._cpu_num
paddle.fluid.framework._current_expected_place
paddle.fluid.framework._dygraph_tracer
paddle.fluid.framework._get_var
paddle.fluid.framework.convert_np_dtype_to_dtype_
paddle.fluid.framework.grad_var_name
paddle.fluid.initializer.init_on_cpu
paddle.fluid.layers.Variable
paddle.fluid.layers.collective._c_allgather
paddle.fluid.layers.control_flow.ConditionalBlock
paddle.fluid.layers.control_flow.array_to_lod_tensor
paddle.fluid.layers.control_flow.lod_rank_table
paddle.fluid.layers.control_flow.select_input
paddle.fluid.layers.control_flow.split_lod_tensor
paddle.fluid.layers.core.VarDesc
paddle.fluid.layers.detection.detection_map
paddle.fluid.layers.device.get_places
paddle.fluid.incubate.fleet.base.fleet_base.Fleet
paddle.fluid.incubate.fleet.base.role_maker.PaddleCloudRoleMaker
paddle.fluid.incubate.fleet.collective.DistributedStrategy
paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler.distributed_strategy.StrategyFactory
paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler.fleet
paddle.fluid.layers.learning_rate_scheduler._decay_step_counter
paddle.fluid.layers.nn.LayerHelper
paddle.fluid.layers.nn.in_dygraph_mode
paddle.fluid.layers.tensor.Variable
paddle.fluid.layers.utils.convert_to_list
paddle.fluid.proto.framework_pb2.VarType
paddle.fluid.wrapped_decorator.signature_safe_contextmanager
"""


@pytest.mark.parametrize("path", NAMES.split())
def test_a_name_is_where_paddle_has_it(path: str) -> None:
    module, _, name = path.rpartition(".")
    with install():
        assert hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize(
    ("module", "name", "instead"),
    [
        ("paddle.fluid.incubate.fleet.parameter_server", "pslib", "fleet.parameter_server.distribute_transpiler"),
        ("paddle.fluid.incubate.fleet.utils", "fleet_util", "PSLIB"),
    ],
)
def test_what_is_not_offered_says_what_to_use_instead(module: str, name: str, instead: str) -> None:
    with install(), pytest.raises(NotOfferedError, match=instead):
        getattr(importlib.import_module(module), name)
    with install(), pytest.raises(NotOfferedImportError, match=instead):
        importlib.import_module(f"{module}.{name}")


def run(fetch_list: Any, feed: dict[str, Any] | None = None) -> list[Any]:
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    return executor.run(feed=feed, fetch_list=fetch_list)


@pytest.fixture(autouse=True)
def _programs() -> Any:
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.scope_guard(fluid.Scope()),
        fluid.unique_name.guard(),
    ):
        yield


def test_what_minimize_returns_may_stand_in_a_fetch_list() -> None:
    w = fluid.layers.create_parameter([1], "float32", name="w", default_initializer=fluid.initializer.Constant(2.0))
    loss = fluid.layers.mean(w * w)
    minimized = fluid.optimizer.SGD(0.25).minimize(loss)
    values = run([loss, minimized, minimized[0]])
    assert [float(value) for value in values] == [4.0]
    assert float(fluid.fetch_var("w")) == 1.0


def test_a_tuple_of_variables_is_still_refused() -> None:
    with pytest.raises(TypeError, match="should be str or Variable"):
        run([(fluid.layers.fill_constant([1], "float32", 1.0),)])


def test_the_counter_of_steps() -> None:
    with fluid.default_main_program()._lr_schedule_guard():
        steps = fluid.layers.learning_rate_scheduler._decay_step_counter(3)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    assert [float(executor.run(fetch_list=[steps])[0]) for _ in range(2)] == [3.0, 4.0]


def test_one_gradient_stands_alone() -> None:
    x, y = (fluid.data(name, [1], "float32") for name in "xy")
    x.stop_gradient = y.stop_gradient = False
    alone = fluid.backward.calc_gradient(x * y, x)
    both = fluid.backward.calc_gradient(x * x * y, [x, y])
    values = run([alone, *both], {"x": np.array([3.0], "float32"), "y": np.array([5.0], "float32")})
    assert [float(value) for value in values] == [5.0, 30.0, 9.0]
    assert fluid.backward._append_grad_suffix_("x") == "x@GRAD"


@pytest.mark.parametrize(
    ("name", "kind"),
    [("double", VarType.FP64), ("single", VarType.FP32), ("half", VarType.FP16), ("long", VarType.INT64)],
)
def test_names_of_numpy_for_data_types(name: str, kind: VarType) -> None:
    assert fluid.data("x", [1], name).dtype == kind
    assert fluid.framework.convert_np_dtype_to_dtype_(name) == kind


def test_descriptions_are_views() -> None:
    x = fluid.data("x", [None, 2], "float32", lod_level=1)
    out = fluid.layers.scale(x, 2.0)
    program = fluid.default_main_program()
    assert (x.desc.name(), x.desc.type(), x.desc.shape(), x.desc.lod_level()) == ("x", VarType.LOD_TENSOR, [-1, 2], 1)
    assert (x.desc.dtype(), x.desc.persistable()) == (VarType.FP32, False)
    x.desc.set_persistable(True)
    assert x.persistable
    block = program.desc.block(0)
    op = block.op(block.op_size() - 1)
    assert (op.type(), op.input("X"), op.output_arg_names(), op.attr("scale")) == ("scale", ["x"], [out.name], 2.0)
    assert op.has_attr("op_callstack") or not op.has_attr("nothing")
    assert block.find_var(b"x") is not None
    assert block.find_var(b"y") is None
    program.desc.flush()


def test_a_readers_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    assert list(distributed_batch_reader(lambda: iter(range(7)))()) == [1, 3, 5]
    monkeypatch.setenv("PADDLE_TRAINER_ID", "2")
    with pytest.raises(UsageError, match="found 2 of 2"):
        distributed_batch_reader(lambda: iter([]))


def test_alone_a_trainer_reads_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PADDLE_TRAINERS_NUM", raising=False)
    assert list(distributed_batch_reader(lambda: iter(range(3)))()) == [0, 1, 2]


def test_one_value_or_as_many() -> None:
    convert = importlib.import_module("fluidtool.fluid.nested").convert_to_list
    assert (convert(3, 2, "stride"), convert((1, 2), 2, "stride")) == ([3, 3], [1, 2])
    for value in ([1], None, ["a", "b"]):
        with pytest.raises(UsageError, match="The stride's"):
            convert(value, 2, "stride")


def test_text_and_bytes() -> None:
    assert text.to_text([b"a", "b", 3]) == ["a", "b", 3]
    assert text.to_bytes({"a"}) == {b"a"}
    words = [b"a"]
    assert text.to_text(words, inplace=True) is words == ["a"]
    assert [text.round(x, 1) for x in (0.25, -0.25, 0.0)] == [0.3, -0.3, 0.0]
    assert text.floor_division(-7, 2) == -4
    assert text.get_exception_message(ValueError("why")) == "why"


def test_a_wrapped_decorator_keeps_the_name() -> None:
    def twice(function: Any) -> Any:
        return lambda x: 2 * function(x)

    @decorators.wrap_decorator(twice)
    def three(x: int) -> int:
        return 3 * x

    assert (three(1), three.__name__) == (6, "three")


def test_get_places_makes_a_variable() -> None:
    importlib.import_module("fluidtool.fluid.layers.device").get_places(2)
    op = fluid.default_main_program().global_block().ops[-1]
    assert op.type == "get_places"
    assert op.block.var(op.output("Out")[0]).type == VarType.PLACE_LIST


def test_scopes_within_one_another() -> None:
    scopes = importlib.import_module("fluidtool.fluid.default_scope_funcs")
    outer = scopes.get_cur_scope()
    scopes.var("outer").set_int(3)

    def within() -> None:
        assert scopes.get_cur_scope() is not outer
        scopes.var("inner").set_float(0.5)
        assert (scopes.find_var("outer").get_int(), scopes.find_var("inner").get_float()) == (3, 0.5)
        assert (scopes.find_var("outer").is_int(), scopes.find_var("outer").is_float()) == (True, False)

    scopes.scoped_function(within)
    assert scopes.get_cur_scope() is outer
    assert scopes.find_var("inner") is None
    with pytest.raises(TypeError, match="holds a int, not a float"):
        scopes.find_var("outer").get_float()


def test_settings_by_name() -> None:
    settings = fluid.core.globals()
    before = settings["FLAGS_eager_delete_tensor_gb"]
    fluid.core._set_eager_deletion_mode(2.0, 0.5, True)
    assert (settings["FLAGS_eager_delete_tensor_gb"], settings["FLAGS_memory_fraction_of_eager_deletion"]) == (2.0, 0.5)
    fluid.core._set_eager_deletion_mode(before, 1.0, True)
    assert "FLAGS_use_mkldnn" in settings
    with pytest.raises(ValueError, match="FLAGS_use_mkldnn is not writable"):
        settings["FLAGS_use_mkldnn"] = True
    assert ("FLAGS_nosuch" in settings, settings.get("FLAGS_nosuch", -1)) == (False, -1)
    with pytest.raises(ValueError, match="FLAGS_nosuch"):
        settings["FLAGS_nosuch"] = 1


def test_places_compare() -> None:
    places = [fluid.CUDAPlace(1), fluid.CPUPlace(), fluid.CUDAPinnedPlace()]
    assert [place._type() for place in places] == [0, 1, 2]
    assert [place._equals(fluid.CUDAPlace(1)) for place in places] == [True, False, False]


def test_gradients_that_are_stopped() -> None:
    fluid.data("x", [1], "float32").stop_gradient = True
    kept = fluid.data("y", [1], "float32")
    kept.stop_gradient = False
    assert fluid.backward._get_stop_gradients_(fluid.default_main_program()) == {0: {"x@GRAD"}}
    assert kept.grad_name == "y@GRAD"
    assert [fluid.backward._as_list(value) for value in (None, kept, (1, 2))] == [[], [kept], [1, 2]]


def test_elements_of_a_tensor() -> None:
    tensor = fluid.LoDTensor()
    tensor._set_dims([2, 3])
    tensor._alloc_float(fluid.CPUPlace())
    shared = tensor.array
    tensor._set_float_element(4, 2.5)
    assert (tensor._get_float_element(4), tensor._get_float_element(0), shared.sum()) == (2.5, 0.0, 0.0)
    with pytest.raises(fluid.core.EnforceNotMet, match="it holds float32, but desires to be float64"):
        tensor._get_double_element(0)
    with pytest.raises(fluid.core.EnforceNotMet, match="6 elements, found element 6"):
        tensor._get_float_element(6)


@pytest.mark.parametrize(
    ("index", "shape"),
    [(1, [1, 3, 4]), (-1, [1, 3, 4]), ((slice(0, 2), 1), [2, 1, 4]), (slice(2, -1, -1), [0, 3, 4])],
)
def test_parts_of_a_tensor_keep_their_axes(index: Any, shape: list[int]) -> None:
    array = np.arange(24, dtype="float32").reshape(2, 3, 4)
    tensor = fluid.create_lod_tensor(array, [[1, 1]], fluid.CPUPlace())
    part = tensor[index]
    assert (part.shape(), part.lod()) == (shape, [])
    assert (np.array(part).ravel() == array[index].ravel()).all()


@pytest.mark.parametrize("index", [2, -3, (0, 0, 0, 0), "a"])
def test_parts_beyond_a_tensor(index: Any) -> None:
    tensor = fluid.create_lod_tensor(np.zeros((2, 3, 4), "float32"), [[1, 1]], fluid.CPUPlace())
    with pytest.raises(IndexError):
        tensor[index]


def test_dlpack_there_and_back() -> None:
    tensor = fluid.create_lod_tensor(np.arange(4).reshape(2, 2), [[1, 1]], fluid.CPUPlace())
    back = fluid.core.from_dlpack(tensor._to_dlpack())
    assert (back.dtype(), np.array(back).tolist()) == (VarType.INT64, [[0, 1], [2, 3]])


def test_memory_of_a_tensor() -> None:
    array = np.ones((2, 2), "float32")
    tensor = fluid.LoDTensor(array)
    address = tensor._mutable_data(fluid.CPUPlace(), VarType.FP32)
    assert address == tensor.array.ctypes.data != array.ctypes.data
    assert np.array(tensor).sum() == 4


def test_a_place_holds_places() -> None:
    place = fluid.core.Place()
    place.set_place(fluid.CUDAPlace(2))
    assert (place.is_gpu_place(), place.is_cpu_place(), place.is_cuda_pinned_place()) == (True, False, False)
    assert (place.gpu_device_id(), place._type(), place._equals(fluid.CUDAPlace(2))) == (2, 0, True)
    place.set_place(fluid.CPUPlace())
    with pytest.raises(TypeError, match="found CPUPlace"):
        place.gpu_device_id()


def test_the_operator_that_writes_a_variable() -> None:
    x = fluid.data("x", [1], "float32")
    out = fluid.layers.scale(x)
    fluid.layers.increment(out)
    assert x.op is None
    assert out.op.type == "increment"
    assert out.op.desc.attr_type("step") == fluid.core.AttrType.FLOAT
    out.op.desc._set_attr("step", 2.0)
    assert out.op.attr("step") == 2.0


def test_descriptions_infer() -> None:
    block = fluid.default_main_program().global_block()
    out = fluid.layers.concat([fluid.data("x", [2, 3], "float32")] * 2)
    out.shape = (1,)
    block.ops[-1].desc.infer_shape(block.desc)
    assert out.shape == (4, 3)


def test_the_operators_between_variables() -> None:
    x = fluid.data("x", [2, 3], "float32")
    x.stop_gradient = False
    first, second = fluid.layers.split(x, [1, 2], dim=1)
    loss = fluid.layers.mean(first)
    fluid.layers.scale(loss)
    block, backward = fluid.default_main_program().global_block(), fluid.backward
    path = backward._find_op_path_(block, [loss], [x], set())
    assert [op.type for op in path] == ["split", "mean"]
    assert backward._find_no_grad_vars(block, path, [loss], set()) == {second.name}
    assert backward._strip_grad_suffix_("x@GRAD") == "x"


def test_names_of_accumulators() -> None:
    names = {
        fluid.optimizer.Momentum(0.1, 0.9): {"_velocity_acc_str": "velocity"},
        fluid.optimizer.Adam(): {"_moment2_acc_str": "moment2", "_beta1_pow_acc_str": "beta1_pow_acc"},
        fluid.optimizer.Adadelta(0.1): {"_avg_squared_grad_acc_str": "_avg_squared_grad"},
    }
    for optimizer, expected in names.items():
        assert {name: getattr(optimizer, name) for name in expected} == expected
        assert not hasattr(optimizer, "_nosuch_acc_str")


def test_a_function_is_not_hidden_by_the_module_of_its_name() -> None:
    with install():
        layers = importlib.import_module("paddle.fluid.layers")
        importlib.import_module("paddle.fluid.layers.rnn")
        assert callable(layers.rnn)
        assert importlib.import_module("paddle.fluid.layers.nn") is layers.nn


def test_batch_is_a_module_and_a_function() -> None:
    with install():
        paddle = importlib.import_module("paddle")
        module = importlib.import_module("paddle.batch")
        assert paddle.batch is module.batch
        assert list(paddle.batch(lambda: range(3), 2)()) == [[0, 1], [2]]


def test_old_scripts_set_the_role_of_operators_by_its_first_name() -> None:
    program, before = fluid.Program(), fluid.Program()._current_role
    program._current_role = fluid.core.op_proto_and_checker_maker.OpRole.Backward
    with fluid.program_guard(program):
        fluid.layers.fill_constant([1], "float32", 1.0)
    assert program.global_block().ops[0].attr("op_role") == program._current_role != before


def test_settings_that_are_not_public() -> None:
    assert not fluid.core.globals().is_public("FLAGS_use_mkldnn")
    with pytest.raises(ValueError, match="FLAGS_use_mkldnn cannot get"):
        fluid.get_flags("FLAGS_use_mkldnn")


def test_notes_about_a_variable() -> None:
    x = fluid.data("x", [1], "float32")
    x._set_info("name", 3)
    assert (x._get_info("name"), x._get_info("other")) == (3, None)


def test_a_global_variable_from_an_array_of_one_number() -> None:
    var = fluid.layers.create_global_var([2], np.array([1.5]), "float32", persistable=True)
    assert run([var])[0].tolist() == [1.5, 1.5]


def test_slices_of_variables() -> None:
    slice_variable = importlib.import_module("fluidtool.fluid.transpiler.distribute_transpiler").slice_variable
    block = fluid.default_main_program().global_block()
    variables = [block.create_var(name="a", shape=[3, 5]), block.create_var(name="b", shape=[28, 784])]
    assert slice_variable(variables, 10, 8192) == ["a:0:15", "b:0:10976", "b:1:10976"]


def test_saving_nothing_warns() -> None:
    with pytest.warns(UserWarning, match="no variable in your model"):
        fluid.io.save_persistables(fluid.Executor(), None)


def test_what_a_program_says_of_its_job() -> None:
    source, target = fluid.Program(), fluid.Program()
    source._is_chief, source._endpoints = True, ["127.0.0.1:6174"]
    target._copy_dist_param_info_from(source)
    assert (target._is_chief, target._endpoints) == (True, ["127.0.0.1:6174"])
    with pytest.raises(TypeError, match="_copy_dist_param_info_from"):
        target._copy_dist_param_info_from("program")
    with pytest.raises(ValueError, match="must be an integer"):
        target.random_seed = "seed"


def test_variables_take_arguments_that_nothing_reads() -> None:
    block = fluid.Program().global_block()
    assert block.create_var(name="v", shape=[2], dtype="float32", trainable=True).shape == (2,)
    assert block.create_parameter(name="w", shape=[3], dtype="float32", anything=1).shape == (3,)
