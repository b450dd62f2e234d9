"""Where a quantized model of a third party differs in ONNX Runtime: in ties of its quantizers, and nowhere else.

Every quantizer gets the input that it has in our own run, whose outputs are Paddle's.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool
from fluidtool.ir import Operator
from fluidtool.onnx_export.exporter import export
from tests.models.test_golden_models import tensor
from tests.onnx_export.support import require_onnx, run_onnx
from tests.support.golden import read_arrays, read_json

require_onnx()
STEPS = 127
# Models of others are not part of the project: the folder of golden data may have them.
FOLDER = Path(os.environ.get("FLUIDTOOL_GOLDEN", "")) / "thirdparty" / "ppocr_ppOCRv3_det_slim"


def scales_of(op: Operator, parameters: Any) -> Any:
    """The scale of a quantizer, so that it broadcasts over the input: given, or the largest of each channel."""
    if "channel_wise" not in op.type:
        return parameters[op.input("InScale")[0]].numpy().reshape(())
    weights, axis = parameters[op.input("X")[0]].numpy(), op.attr("quant_axis")
    return np.abs(weights).max(axis=tuple(i for i in range(weights.ndim) if i != axis), keepdims=True)


@pytest.mark.skipif(not FOLDER.exists(), reason="needs thirdparty/ppocr_ppOCRv3_det_slim in $FLUIDTOOL_GOLDEN")
def test_quantizers_differ_in_ties_alone() -> None:
    spec, arrays = read_json(FOLDER / "case_p26.json"), read_arrays(FOLDER / "golden_p26.npz")
    model = fluidtool.load(FOLDER / "model", engine="numpy")
    block, parameters = model.program.global_block(), model.files.parameters
    quantizers = [op for op in block.ops if "quantize" in op.type]
    assert len(quantizers) == 144
    feed = {entry["name"]: tensor(arrays, f"feed_{i}", entry) for i, entry in enumerate(spec["feeds"])}
    inputs = [op.input("X")[0] for op in quantizers]
    outputs = [op.output("Out")[0] for op in quantizers]
    fed = list(dict.fromkeys(name for name in inputs if name not in parameters))
    own = {name: np.asarray(value) for name, value in model.run(feed, fetch=[*fed, *outputs]).items()}

    block.ops[:] = quantizers
    model.program.touch()
    exported = export(model.program, fed, outputs, parameters)
    found = dict(zip(outputs, run_onnx(exported, {name: own[name] for name in fed}, outputs), strict=True))
    ties = 0
    for op, given, out in zip(quantizers, inputs, outputs, strict=True):
        scale = scales_of(op, parameters)
        x = parameters[given].numpy() if given in parameters else own[given]
        one, two = (np.rint(np.float64(each) * STEPS / scale) for each in (own[out], found[out]))
        # What both say of a whole number is the same to two units in the last place.
        np.testing.assert_allclose(found[out] * (one == two), own[out] * (one == two), rtol=2.5e-7, atol=0)
        apart = one != two
        ties += int(apart.sum())
        steps = np.clip(x, -scale, scale)[apart] * (np.float32(STEPS) / np.broadcast_to(scale, x.shape)[apart])
        half = np.abs(np.abs(steps) - np.floor(np.abs(steps)) - np.float32(0.5))
        assert np.all(half <= np.spacing(np.abs(steps).astype("float32"))), (op.type, out)
        assert np.all(np.abs(one - two)[apart] == 1), (op.type, out)
    assert ties > 0
