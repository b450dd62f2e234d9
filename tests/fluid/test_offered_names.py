"""Names that Paddle 1.8.5 offers in `paddle.fluid` and `paddle.fluid.io` because other modules define them."""

from __future__ import annotations

import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import NotOfferedError
from fluidtool.fluid import reader_decorators
from fluidtool.fluid.data_feeder import DataFeeder
from fluidtool.passes.backward import append_backward

READER_NAMES = [
    "ComposeNotAligned",
    "batch",
    "buffered",
    "cache",
    "chain",
    "compose",
    "firstn",
    "map_readers",
    "multiprocess_reader",
    "shuffle",
    "xmap_readers",
]


@pytest.mark.parametrize("name", READER_NAMES)
def test_io_offers_what_makes_readers_from_readers(name: str) -> None:
    assert getattr(fluid.io, name) is getattr(reader_decorators, name)


def test_all_names_of_io_are_imported_by_a_star() -> None:
    names: dict[str, object] = {}
    exec("from fluidtool.fluid.io import *", names)
    assert {*READER_NAMES, "DataLoader", "PyReader", "save_inference_model", "set_program_state"} <= names.keys()
    assert not {"get_parameter_value", "np", "os"} & names.keys()


def test_the_executor_offers_what_scripts_take_from_it() -> None:
    assert fluid.executor._fetch_var is fluid.fetch_var
    assert fluid.executor._switch_scope is fluid.switch_scope


def test_fluid_offers_the_feeder_and_the_gradients() -> None:
    assert fluid.DataFeeder is DataFeeder
    assert fluid.append_backward is append_backward
    assert {"DataFeeder", "append_backward"} <= set(fluid.__all__)


MODULES = (
    "io layers optimizer initializer metrics nets clip regularizer profiler backward evaluator average core contrib"
)


@pytest.mark.parametrize("module", MODULES.split())
def test_a_name_that_is_not_offered_is_an_error_that_lists_those_that_are(module: str) -> None:
    with pytest.raises(NotOfferedError, match=f"paddle.fluid.{module} has no 'nosuch' in fluidtool.* It offers "):
        getattr(getattr(fluid, module), "nosuch")  # noqa: B009


def test_a_variable_is_cloned_into_another_program_as_persistable() -> None:
    source, target = fluid.Program(), fluid.Program()
    var = source.global_block().create_var(name="w", shape=[2, 3], dtype="float32", lod_level=1)
    clone = fluid.io._clone_var_in_block_(target.global_block(), var)
    assert (clone.name, clone.shape, clone.lod_level, clone.persistable) == ("w", (2, 3), 1, True)
