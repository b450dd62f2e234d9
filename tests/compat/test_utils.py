"""`paddle.utils` and `paddle.sysconfig`, and names of modules that Paddle 1.8.5 has and scripts import from."""

from __future__ import annotations

import io
from importlib import import_module
from pathlib import Path

import pytest

from fluidtool import fluid
from fluidtool.compat import install, version
from fluidtool.compat.utils import plotcurve
from fluidtool.compat.utils.plot import Ploter
from fluidtool.errors import AssertedError, ProgramError
from fluidtool.fluid.feed_operators import has_feed_operators, has_fetch_operators
from fluidtool.proto import framework_pb2


def test_curves_need_nothing_where_they_are_not_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DISABLE_PLOT", "True")
    ploter = Ploter("train", "test")
    ploter.append("train", 0, 1.5)
    ploter.plot(str(tmp_path / "curve.png"))
    ploter.reset()
    assert not list(tmp_path.iterdir())
    with pytest.raises(AssertedError, match="no curve 'nosuch'; expected one of train, test"):
        ploter.append("nosuch", 0, 1.5)


def test_curves_are_drawn_into_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.delenv("DISABLE_PLOT", raising=False)
    ploter = Ploter("train")
    ploter.append("train", 0, 1.5)
    ploter.plot(str(tmp_path / "curve.png"))
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_scores_are_read_from_logs() -> None:
    lines = ["I0406 Pass=0 Batch=7 AvgCost=0.5 Eval: error=0.25", "noise", "Pass=1 AvgCost=0.25 Eval: error=1e-1"]
    assert plotcurve._scores(lines, "Pass=([0-9]*)", ["AvgCost", "error"]).tolist() == [[0, 0.5, 0.25], [1, 0.25, 0.1]]


def test_a_log_without_scores_draws_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    target = io.BytesIO()
    plotcurve.plot_paddle_curve([], ["noise"], target)
    assert target.getvalue() == b""
    assert "No data to plot" in capsys.readouterr().err


NAMES = """
paddle.sysconfig.get_include paddle.sysconfig.get_lib paddle.utils.Ploter paddle.utils.plot.Ploter
paddle.fluid.debugger.draw_block_graphviz paddle.fluid.graphviz.GraphPreviewGenerator paddle.fluid.net_drawer.draw_graph
paddle.fluid.log_helper.get_logger paddle.fluid.annotations.deprecated paddle.fluid.layers.math_op_patch.monkey_patch_variable
paddle.fluid.trainer_desc.MultiTrainer paddle.fluid.device_worker.Hogwild paddle.fluid.trainer_factory.TrainerFactory
paddle.fluid.distribute_lookup_table.find_distributed_lookup_table paddle.fluid.data.data
paddle.fluid.proto.profiler.profiler_pb2.Profile paddle.fluid.proto.trainer_desc_pb2.TrainerDesc
paddle.fluid.contrib.slim.Compressor paddle.fluid.contrib.slim.core.Compressor paddle.fluid.contrib.slim.core.config.ConfigFactory
paddle.fluid.contrib.slim.graph.graph_wrapper.GraphWrapper paddle.fluid.contrib.slim.prune.pruner.StructurePruner
paddle.fluid.contrib.slim.nas.search_space.SearchSpace paddle.fluid.contrib.slim.quantization.QuantizationStrategy
paddle.fluid.contrib.utils.HDFSClient paddle.fluid.contrib.utils.hdfs_utils.multi_download paddle.fluid.contrib.Compressor
paddle.fluid.contrib.mixed_precision.fp16_lists.AutoMixedPrecisionLists paddle.fluid.contrib.layers.nn.multiclass_nms2
paddle.fluid.transpiler.details.program_utils.program_to_code paddle.fluid.dataloader.dataset.Dataset
paddle.fluid.layer_helper_base.LayerHelperBase paddle.fluid.core.save_op_compatible_info
paddle.fluid.executor.has_feed_operators paddle.fluid.executor.Executor paddle.fluid.layers.loss.cross_entropy2
paddle.fluid.unique_name.generate_with_ignorable_key
"""


@pytest.mark.parametrize("path", NAMES.split())
def test_modules_of_paddle_have_their_names(path: str) -> None:
    module, _, name = path.rpartition(".")
    with install():
        assert callable(getattr(import_module(module), name))


def test_the_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    version.show()
    assert capsys.readouterr().out.splitlines()[:2] == ["full_version: 1.8.5", "major: 1"]


@pytest.fixture
def saved() -> fluid.Program:
    """A program with a feed operator of x and a fetch operator of y."""
    program = fluid.Program()
    block = program.global_block()
    x, y = block.create_var(name="x", shape=[2], dtype="float32"), block.create_var(name="y")
    feed, fetch = block.create_var(name="feed"), block.create_var(name="fetch")
    block.append_op(type="feed", inputs={"X": [feed]}, outputs={"Out": [x]}, attrs={"col": 0})
    block.append_op(type="relu", inputs={"X": [x]}, outputs={"Out": [y]})
    block.append_op(type="fetch", inputs={"X": [y]}, outputs={"Out": [fetch]}, attrs={"col": 0})
    return program


def test_a_block_is_asked_for_its_feeds_and_fetches(saved: fluid.Program) -> None:
    block, empty = saved.global_block(), fluid.Program().global_block()
    assert has_feed_operators(block, {"x": 0}, "feed")
    assert has_fetch_operators(block, [block.var("y")], "fetch")
    assert not has_feed_operators(empty, {"x": 0}, "feed")
    assert not has_fetch_operators(empty, [], "fetch")


def test_feeds_and_fetches_that_do_not_match_are_named(saved: fluid.Program) -> None:
    block = saved.global_block()
    with pytest.raises(ProgramError, match="'feed_targets' does not have x"):
        has_feed_operators(block, {"z": 0}, "feed")
    with pytest.raises(ProgramError, match="do not match 'feed_targets'"):
        has_feed_operators(block, {"x": 0, "z": 0}, "feed")
    with pytest.raises(AssertedError, match="use feed, expected holder"):
        has_feed_operators(block, {"x": 0}, "holder")
    with pytest.raises(ProgramError, match="'fetch_targets' does not have y"):
        has_fetch_operators(block, [block.var("x")], "fetch")
    with pytest.raises(ProgramError, match="do not match 'fetch_targets'"):
        has_fetch_operators(block, [block.var("y"), block.var("x")], "fetch")
    with pytest.raises(AssertedError, match="column 0 fetches y, expected x"):
        has_fetch_operators(block, [block.var("x"), block.var("y")], "fetch")


def test_a_program_says_which_operators_older_readers_may_not_know(saved: fluid.Program) -> None:
    fluid.core.save_op_compatible_info(saved.desc)
    read = framework_pb2.ProgramDesc.FromString(saved.clone().desc.serialize_to_string()).op_compatible_map
    known = {pair.op_name: (pair.compatible_info.version, pair.compatible_info.type) for pair in read.pair}
    kinds = framework_pb2.CompatibleInfo
    assert read.default_required_version == "1.5.0"
    assert len(known) == 64
    assert known["conv2d"] == ("1.6.0", kinds.POSSIBLE)
    assert known["sequence_pad"] == ("1.6.0", kinds.DEFINITELY_NOT)
    assert known["layer_norm"] == ("1.6.0", kinds.BUG_FIX)
