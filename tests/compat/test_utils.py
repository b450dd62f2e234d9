"""`paddle.utils` and `paddle.sysconfig`, and names of modules that Paddle 1.8.5 has and scripts import from."""

from __future__ import annotations

import io
from importlib import import_module
from pathlib import Path

import pytest

from fluidtool.compat import install
from fluidtool.compat.utils import plotcurve
from fluidtool.compat.utils.plot import Ploter
from fluidtool.errors import AssertedError


def test_curves_need_nothing_where_they_are_not_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DISABLE_PLOT", "True")
    ploter = Ploter("train", "test")
    ploter.append("train", 0, 1.5)
    ploter.plot(str(tmp_path / "curve.png"))
    ploter.reset()
    assert not list(tmp_path.iterdir())
    with pytest.raises(AssertedError, match="no curve 'nosuch'; there are train, test"):
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
"""


@pytest.mark.parametrize("path", NAMES.split())
def test_modules_of_paddle_have_their_names(path: str) -> None:
    module, _, name = path.rpartition(".")
    with install():
        assert callable(getattr(import_module(module), name))
