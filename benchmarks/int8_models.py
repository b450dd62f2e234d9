"""The networks in 8 bits: ours by `fluidtool.quantize`, the peers' by ONNX Runtime's own quantization, on the same inputs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fluidtool
from benchmarks import onnx_models

ONLY_CONVOLUTIONS = ("slim_db",)
"""Networks of which the peers quantize, as we do, nothing else: additions and resampled levels stay floats for all."""
BATCHES = 2  # of inputs that activations are measured on
Feeds = dict[str, Any]


def ours(folder: Path) -> Path:
    """The program with fake quantization, in `int8` below the model's folder."""
    path = folder / "int8" / "model.pdmodel"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        fluidtool.quantize(str(folder / "model.pdmodel"), list(batches(folder)), path.with_suffix(""))
    return path


def batches(folder: Path) -> Iterator[Feeds]:
    """What the networks are measured with, and other numbers of the same sizes."""
    with np.load(folder / "io.npz") as stored:
        first = {name.removeprefix("in_"): stored[name] for name in stored.files if name.startswith("in_")}
    yield first
    random = np.random.RandomState(1)
    for _ in range(BATCHES - 1):
        yield {name: random.standard_normal(array.shape).astype(array.dtype) for name, array in first.items()}


def onnx_file(folder: Path, batch: int) -> Path:
    """`model_bsN_int8.onnx`: quantizers and dequantizers around each operation, weights by channel.

    Raises ImportError without onnxruntime and onnx.
    """
    path = folder / f"model_bs{batch}_int8.onnx"
    if path.exists():
        return path
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = batches(folder)

        def get_next(self) -> Feeds | None:
            found = next(self.left, None)
            return found and {name: np.concatenate([array] * batch) for name, array in found.items()}

    model = onnx.load(str(onnx_models.write(folder, batch)))
    for number, node in enumerate(model.graph.node):
        node.name = node.name or f"node{number}"  # nodes are chosen by name
    # OpenVINO cannot compile the addition of the bias of the classes, and probabilities would all be rounded to 0.
    last = [node.name for node in model.graph.node[-6:] if node.op_type in ("Add", "Softmax")]
    named = folder / f"model_bs{batch}_named.onnx"
    onnx.save(model, str(named))
    settings: dict[str, Any] = {
        "per_channel": True,
        "activation_type": QuantType.QUInt8,
        "weight_type": QuantType.QInt8,
    }
    if folder.name in ONLY_CONVOLUTIONS:
        settings["op_types_to_quantize"] = ["Conv"]
    quantize_static(
        str(named), str(path), Reader(), quant_format=QuantFormat.QDQ, nodes_to_exclude=last, **settings
    )  # fmt: skip
    named.unlink()
    return path
