"""`paddle.fluid.dygraph` under the stand-in: what has classes of dynamic graphs can be imported, and not use them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from fluidtool import fluid
from fluidtool.compat import install
from fluidtool.errors import UnsupportedOperatorError

PATHS = """
dygraph.base.to_variable
dygraph.container.Sequential
dygraph.jit.declarative
dygraph.layers.Layer
dygraph.learning_rate_scheduler.LearningRateDecay
dygraph.nn.Conv2D
core.VarBase
Linear
"""
REFUSED = "fluid.dygraph.{}: dynamic graphs are not supported"


@pytest.fixture
def paddle() -> Iterator[Any]:
    with install():
        yield importlib.import_module("paddle.fluid")


def test_layers_can_be_extended_and_not_made(paddle: Any) -> None:
    class Net(paddle.dygraph.Layer):
        def __init__(self, size: int) -> None:
            super().__init__()

    assert issubclass(Net, paddle.Layer)
    assert not isinstance(3, Net)
    with pytest.raises(UnsupportedOperatorError, match=REFUSED.format("Net")):
        Net(3)


def test_decorated_functions_can_be_defined_and_not_called(paddle: Any) -> None:
    @paddle.dygraph.no_grad
    def evaluate(x: int) -> int:
        return x

    assert evaluate.__name__ == "evaluate"
    with pytest.raises(UnsupportedOperatorError, match=REFUSED.format("evaluate")):
        evaluate(3)


@pytest.mark.parametrize("name", ["guard", "no_grad", "to_variable", "grad", "load_dygraph", "prepare_context"])
def test_functions_are_refused(paddle: Any, name: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match=REFUSED.format(name)):
        getattr(paddle.dygraph, name)()


@pytest.mark.parametrize("path", PATHS.split())
def test_names_are_where_paddle_has_them(paddle: Any, path: str) -> None:
    module, _, name = f"paddle.fluid.{path}".rpartition(".")
    assert hasattr(importlib.import_module(module), name)


def test_it_is_known_that_graphs_are_static(paddle: Any) -> None:
    assert paddle.dygraph.enabled() is False
    assert paddle.in_dygraph_mode() is False


def test_the_job_is_known_as_it_is_to_static_graphs(paddle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert paddle.dygraph.parallel.Env().nranks == 1
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    monkeypatch.setenv("PADDLE_TRAINER_ENDPOINTS", "a:1,b:2")
    env = paddle.dygraph.ParallelEnv()
    assert (env.nranks, env.local_rank, env.dev_id, env.trainer_endpoints) == (2, 1, 0, ["a:1", "b:2"])


def test_fluidtool_itself_has_no_dynamic_graphs() -> None:
    assert not hasattr(fluid, "dygraph")
