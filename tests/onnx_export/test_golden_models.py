"""Whole models: ONNX Runtime gives what real Paddle gave, those with sequences one sequence after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidtool
from fluidtool.onnx_export.exporter import export
from fluidtool.onnx_export.messages import write_model
from fluidtool.workflows.onnx_model import run_written
from tests.models.test_golden_models import tensor
from tests.onnx_export.support import require_onnx
from tests.support.golden import corpus, names_in, read_arrays, read_json

require_onnx()

BLOCKED_BEFORE_14 = {name: {"write_to_array", "while"} for name in ("seq2seq_train", "seq2seq_beam")}


@pytest.mark.parametrize("opset", [13, 17, 23])
@pytest.mark.parametrize("name", names_in("models"))
def test_outputs_are_real_paddles(name: str, opset: int) -> None:
    folder = corpus("models") / name
    spec, arrays = read_json(folder / "case.json"), read_arrays(folder / "golden.npz")
    model = fluidtool.load(folder / ("separate" if (folder / "separate").exists() else "combined"))
    exported = export(model.program, model.feeds, model.fetches, model.files.parameters, opset=opset)
    blocked = BLOCKED_BEFORE_14.get(name) if opset < 14 else None
    if blocked:
        assert blocked <= {each.type for each in exported.blockers}
        return
    assert exported.blockers == ()
    feed = {entry["name"]: tensor(arrays, f"feed_{i}", entry) for i, entry in enumerate(spec["feeds"])}
    found = run_written(write_model(exported.graph, name="main"), feed, model.fetches, exported)
    for index, value in enumerate(found.values()):
        check(value, arrays[f"fetch_{index}"], f"{name} {index}")


TOGETHER = ["text_bow", "text_cnn", "text_lstm", "text_lstm_pool_zoo", "crf_tagger", "srl_db_lstm"]


@pytest.mark.parametrize("opset", [13, 17, 23])
@pytest.mark.parametrize("name", TOGETHER)
def test_all_sequences_in_one_run(name: str, opset: int) -> None:
    folder = corpus("models") / name
    spec, arrays = read_json(folder / "case.json"), read_arrays(folder / "golden.npz")
    model = fluidtool.load(folder / ("separate" if (folder / "separate").exists() else "combined"))
    exported = export(model.program, model.feeds, model.fetches, model.files.parameters, opset=opset, several=True)
    assert exported.blockers == () and not exported.single_sequence
    feed = {entry["name"]: tensor(arrays, f"feed_{i}", entry) for i, entry in enumerate(spec["feeds"])}
    assert set(exported.lengths) == {entry["name"] for entry in spec["feeds"] if entry["lod_level"]}
    found = run_written(write_model(exported.graph, name="main"), feed, model.fetches, exported)
    for index, value in enumerate(found.values()):
        check(value, arrays[f"fetch_{index}"], f"{name} {index}")


def check(found: Any, want: Any, name: str) -> None:
    assert not isinstance(found, str), f"{name}: {found}"
    assert (found.dtype, found.shape) == (want.dtype, want.shape), name
    np.testing.assert_allclose(
        found, want, rtol=0, atol=1e-4 * max(float(np.abs(want).max(initial=0)), 1e-6), err_msg=name
    )
