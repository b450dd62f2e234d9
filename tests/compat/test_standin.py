"""What stands in for `paddle`: its modules, its names, what is said about those that are missing, how it leaves."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from fluidtool import fluid as our_fluid
from fluidtool.compat import install
from fluidtool.errors import (
    ArgumentTypeError,
    NotOfferedError,
    NotOfferedImportError,
    UnsupportedOperatorError,
    UsageError,
)


@pytest.fixture
def paddle() -> Iterator[Any]:
    main, startup = our_fluid.Program(), our_fluid.Program()
    guards = our_fluid.program_guard(main, startup), our_fluid.scope_guard(our_fluid.Scope())
    with install(), guards[0], guards[1], our_fluid.unique_name.guard():
        import paddle

        yield paddle


def test_the_ways_to_import_fluid_give_our_names(paddle: Any) -> None:
    import paddle.fluid as fluid
    import paddle.fluid.layers as layers
    from paddle.fluid import core, framework, unique_name
    from paddle.fluid.initializer import Constant
    from paddle.fluid.layers.nn import fc
    from paddle.fluid.param_attr import ParamAttr

    assert fluid.Program is our_fluid.Program is framework.Program
    assert layers.fc is our_fluid.layers.fc is fc is fluid.layers.fc
    assert ParamAttr is our_fluid.ParamAttr
    assert Constant is our_fluid.initializer.Constant
    assert core.LoDTensor is our_fluid.LoDTensor
    assert unique_name.generate("x") == "x_0"
    assert paddle.fluid is fluid


def test_the_api_before_fluid_gives_what_fluid_shared_with_it(paddle: Any) -> None:
    import paddle.v2 as v2
    import paddle.v2.dataset.mnist as mnist
    import paddle.v2.fluid as fluid
    from paddle.v2.fluid.layers import fc

    assert fluid.Program is our_fluid.Program
    assert fc is our_fluid.layers.fc
    assert mnist.train is paddle.dataset.mnist.train is v2.dataset.mnist.train
    assert v2.batch is v2.minibatch.batch is paddle.batch
    assert v2.reader.shuffle is paddle.reader.shuffle
    assert v2.plot.Ploter is paddle.utils.plot.Ploter
    assert v2.image.center_crop is paddle.dataset.image.center_crop


def test_the_rest_of_the_api_before_fluid_is_not_offered(paddle: Any) -> None:
    import paddle.v2 as v2

    with pytest.raises(
        NotOfferedError, match=r"paddle\.v2 has no 'init' in fluidtool: the API before Fluid is not supp"
    ):
        v2.init(use_gpu=False, trainer_count=1)
    with pytest.raises(
        NotOfferedImportError, match=r"paddle\.v2 has no 'layer' in fluidtool: .* batch, dataset, fluid, "
    ):
        __import__("paddle.v2.layer")
    with pytest.raises(NotOfferedImportError, match=r"paddle\.v2\.fluid has no 'nothing' in fluidtool"):
        __import__("paddle.v2.fluid.nothing")


def test_debugger_has_the_name_that_it_had_first(paddle: Any) -> None:
    from paddle.fluid import debuger

    assert debuger.draw_block_graphviz is our_fluid.debugger.draw_block_graphviz


def test_star_import_gives_what_is_public(paddle: Any) -> None:
    names: dict[str, Any] = {}
    exec("from paddle.fluid.layers import *", names)
    assert {"fc", "conv2d", "data"} <= set(names)


def test_the_version_is_the_one_that_is_followed(paddle: Any) -> None:
    assert paddle.__version__ == "1.8.5"


def test_readers(paddle: Any) -> None:
    reader = paddle.batch(paddle.reader.firstn(lambda: iter(range(9)), 5), batch_size=2)
    assert list(reader()) == [[0, 1], [2, 3], [4]]


def test_paddle_goes_when_the_block_ends() -> None:
    finders = list(sys.meta_path)
    with install():
        import paddle.fluid.layers  # noqa: F401
    assert not [name for name in sys.modules if name.partition(".")[0] == "paddle"]
    assert sys.meta_path == finders


def test_paddle_goes_when_the_block_fails() -> None:
    with pytest.raises(RuntimeError, match="mine"), install():
        import paddle  # noqa: F401

        raise RuntimeError("mine")
    assert "paddle" not in sys.modules


def test_a_paddle_that_is_there_is_not_shadowed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ModuleType("paddle")
    monkeypatch.setitem(sys.modules, "paddle", real)
    with pytest.raises(UsageError, match="paddle has already been imported"), install():
        pass
    assert sys.modules["paddle"] is real


def test_a_missing_attribute_is_named_with_near_ones(paddle: Any) -> None:
    with pytest.raises(NotOfferedError, match=r"paddle\.fluid has no 'Programm' in fluidtool; did you mean Program\?"):
        _ = paddle.fluid.Programm
    with pytest.raises(
        NotOfferedError, match=r"paddle\.fluid\.layers has no 'conv2' in fluidtool; did you mean conv2d"
    ):
        _ = paddle.fluid.layers.conv2
    assert not hasattr(paddle, "no_such_thing")


def test_a_missing_attribute_comes_with_a_list_of_what_is_there(paddle: Any) -> None:
    with pytest.raises(NotOfferedError, match=r"It offers .*, … \(\d+ names in all"):
        _ = paddle.fluid.zzz


@pytest.mark.parametrize("module", ["vision", "fluid.no_such_module", "nn.functional"])
def test_a_missing_module_is_named(paddle: Any, module: str) -> None:
    first = module.rsplit(".", maxsplit=1)[-1] if module.startswith("fluid") else module.split(".", maxsplit=1)[0]
    with pytest.raises(NotOfferedImportError, match=f"has no '{first}' in fluidtool"):
        __import__(f"paddle.{module}")


def test_a_missing_name_in_a_from_import_is_named(paddle: Any) -> None:
    with pytest.raises(ImportError, match=r"paddle\.fluid\.layers has no 'nope' in fluidtool"):
        from paddle.fluid.layers import nope  # noqa: F401
    with pytest.raises(ImportError, match=r"paddle\.fluid\.param_attr has no 'ParamAttrs'.*did you mean ParamAttr"):
        from paddle.fluid.param_attr import ParamAttrs  # noqa: F401


def test_our_own_packages_say_the_same() -> None:
    with pytest.raises(
        NotOfferedError, match=r"paddle\.fluid\.layers has no 'softmx' in fluidtool; did you mean softmax"
    ):
        _ = our_fluid.layers.softmx
    with pytest.raises(NotOfferedError, match=r"paddle\.fluid has no 'Executer' in fluidtool; did you mean Executor"):
        _ = our_fluid.Executer
    assert not hasattr(our_fluid.layers, "__no_such_thing__")


def test_dynamic_graphs_are_refused(paddle: Any) -> None:
    paddle.enable_static()
    with pytest.raises(UnsupportedOperatorError, match="dynamic graphs are not supported"):
        paddle.disable_static()


def test_static_program_in_the_spelling_of_paddle_2(paddle: Any, tmp_path: Any) -> None:
    import paddle.static as static

    x = static.data(name="X", shape=[None, 1], dtype="float32")
    hidden = static.nn.fc(x=x, size=10, activation="tanh")
    loss = paddle.mean(hidden)
    test_program = static.default_main_program().clone(for_test=True)
    paddle.optimizer.SGD(learning_rate=0.1).minimize(loss)
    executor = static.Executor(paddle.CPUPlace())
    executor.run(static.default_startup_program())
    feed = {"X": np.full((4, 1), 0.5, "float32")}
    losses = [float(executor.run(feed=feed, fetch_list=[loss])[0].item()) for _ in range(5)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]

    prefix = str(tmp_path / "folder" / "net")
    expected = executor.run(test_program, feed=feed, fetch_list=[hidden.name])[0]
    static.save_inference_model(prefix, [x], [test_program.global_block().var(hidden.name)], executor, test_program)
    assert {path.name for path in (tmp_path / "folder").iterdir()} == {"net.pdmodel", "net.pdiparams"}
    program, feeds, fetches = static.load_inference_model(prefix, executor)
    assert feeds == ["X"]
    np.testing.assert_array_equal(executor.run(program, feed=feed, fetch_list=fetches)[0], expected)


@pytest.mark.parametrize("kind", ["SGD", "Momentum", "Adam", "Adamax", "Adagrad", "Adadelta", "RMSProp"])
def test_optimizers_in_the_spelling_of_paddle_2(paddle: Any, kind: str) -> None:
    x = paddle.static.data("x", [None, 3])
    loss = paddle.mean(paddle.static.nn.fc(x, 2, weight_attr="kept", bias_attr="trained"))
    optimizer = getattr(paddle.optimizer, kind)(learning_rate=0.5, parameters=["trained"], weight_decay=0.1)
    _, pairs = optimizer.minimize(loss)
    assert [param.name for param, _ in pairs] == ["trained"]
    assert kind.lower() in [op.type for op in our_fluid.default_main_program().global_block().ops]


def test_optimizer_arguments_of_the_wrong_name(paddle: Any) -> None:
    with pytest.raises(ArgumentTypeError, match=r"paddle\.optimizer\.SGD takes learning_rate, parameters.*param_list"):
        paddle.optimizer.SGD(0.1, param_list=[])
    with pytest.raises(ArgumentTypeError, match="several values for learning_rate"):
        paddle.optimizer.SGD(0.1, learning_rate=0.1)


def test_path_prefix_without_a_name(paddle: Any) -> None:
    with pytest.raises(UsageError, match="path_prefix must end with the name"):
        paddle.static.load_inference_model("folder/", None)
