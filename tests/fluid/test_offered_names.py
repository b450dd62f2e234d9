"""Names that Paddle 1.8.5 offers in `paddle.fluid` and `paddle.fluid.io` because other modules define them."""

from __future__ import annotations

import pytest

import fluidtool.fluid as fluid
from fluidtool.fluid import reader_decorators
from fluidtool.fluid.data_feeder import DataFeeder
from fluidtool.passes.append_backward import append_backward

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


def test_fluid_offers_the_feeder_and_the_gradients() -> None:
    assert fluid.DataFeeder is DataFeeder
    assert fluid.append_backward is append_backward
    assert {"DataFeeder", "append_backward"} <= set(fluid.__all__)
