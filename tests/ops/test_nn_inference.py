"""Shapes of the operators of neural networks without running them: open sizes stay open, as at Paddle's build time."""

from __future__ import annotations

from typing import Any

import pytest

from fluidtool.errors import OperatorError
from fluidtool.ir import Program
from fluidtool.ops.inference import infer_operator
from fluidtool.ops.registry import get_op
from fluidtool.ops.schema import TensorMeta
from fluidtool.proto.enums import VarType

FP32 = VarType.FP32


def infer(
    op_type: str, shapes: dict[str, Any], attrs: dict[str, Any] | None = None, lod_level: int = 0
) -> dict[str, TensorMeta]:
    """Metadata by output slot from the shapes of the inputs."""
    block = Program().global_block()
    outputs = {slot.name: [slot.name + "@out"] for slot in get_op(op_type).outputs}
    op = block.append_op(type=op_type, inputs={slot: [slot] for slot in shapes}, outputs=outputs, attrs=attrs or {})
    metas = infer_operator(op, lambda name: TensorMeta(shapes[name], FP32, lod_level) if name in shapes else None)
    return {name.removesuffix("@out"): meta for name, meta in metas.items()}


@pytest.mark.parametrize(
    ("op_type", "shapes", "attrs", "expected"),
    [
        (
            "conv2d",
            {"Input": (-1, 3, -1, 8), "Filter": (6, 3, 3, 3)},
            {"paddings": [1, 1], "strides": [2, 2]},
            {"Output": (-1, 6, -1, 4)},
        ),
        (
            "conv2d",
            {"Input": (-1, 9, 8, 3), "Filter": (6, 3, 2, 2)},
            {"data_format": "NHWC", "padding_algorithm": "SAME"},
            {"Output": (-1, 9, 8, 6)},
        ),
        ("conv3d", {"Input": (2, 3, 4, -1, 8), "Filter": (6, 3, 1, 3, 3)}, {}, {"Output": (2, 6, 4, -1, 6)}),
        (
            "conv2d_transpose",
            {"Input": (-1, 3, -1, 4), "Filter": (3, 2, 3, 3)},
            {"strides": [2, 2], "groups": 3},
            {"Output": (-1, 6, -1, 9)},
        ),
        (
            "pool2d",
            {"X": (-1, 3, -1, 5)},
            {"pooling_type": "max", "ksize": [2, 2], "strides": [2, 2], "ceil_mode": True},
            {"Out": (-1, 3, -1, 3)},
        ),
        (
            "pool2d",
            {"X": (-1, 3, -1, 5)},
            {"pooling_type": "avg", "ksize": [1, 2], "adaptive": True},
            {"Out": (-1, 3, 1, 2)},
        ),
        ("spp", {"X": (-1, 3, 8, 8)}, {"pyramid_height": 3, "pooling_type": "max"}, {"Out": (-1, 63)}),
        ("layer_norm", {"X": (-1, 4, 5)}, {"begin_norm_axis": 2}, {"Y": (-1, 4, 5), "Mean": (-1,), "Variance": (-1,)}),
        ("group_norm", {"X": (-1, 4, 5, 5)}, {"groups": 2}, {"Y": (-1, 4, 5, 5), "Mean": (-1, 2), "Variance": (-1, 2)}),
        ("instance_norm", {"X": (2, 4, 5)}, {}, {"Y": (2, 4, 5), "SavedMean": (8,), "SavedVariance": (8,)}),
        ("bilinear_interp", {"X": (-1, 3, 4, 5)}, {"scale": 1.5}, {"Out": (-1, 3, 6, 7)}),
        ("bilinear_interp_v2", {"X": (-1, 3, 4, 5), "Scale": (1,)}, {}, {"Out": (-1, 3, -1, -1)}),
        ("im2sequence", {"X": (-1, 3, 8, 8)}, {"kernels": [2, 3]}, {"Out": (-1, 18)}),
        ("matmul", {"X": (3, 4), "Y": (4, 5)}, {"head_number": 2}, {"Out": (3, 10)}),
        ("matmul", {"X": (3, 4), "Y": (2, 6)}, {"head_number": 2}, {"Out": (3, 6)}),
        ("matmul", {"X": (3, 4), "Y": (-1, 6)}, {"head_number": 2}, {"Out": (3, -1)}),
        (
            "unfold",
            {"X": (-1, 3, 8, -1)},
            {"kernel_sizes": [2, 2], "strides": [1, 1], "paddings": [0] * 4, "dilations": [1, 1]},
            {"Y": (-1, 12, -1)},
        ),
        ("fc", {"Input": (-1, 4, 5), "W": (20, 7)}, {}, {"Out": (-1, 7)}),
        ("affine_grid", {"Theta": (-1, 2, 3)}, {"output_shape": [1, 1, 2, 2]}, {"Output": (-1, -1, -1, 2)}),
    ],
)
def test_shapes(op_type: str, shapes: dict[str, Any], attrs: dict[str, Any], expected: dict[str, Any]) -> None:
    metas = infer(op_type, shapes, attrs)
    assert {slot: metas[slot].shape for slot in expected} == expected


def test_types_and_lod_levels() -> None:
    shapes = {"X": (-1, 3, 4, 4)}
    assert infer("dropout", shapes)["Mask"].dtype == VarType.UINT8 and "Mask" not in infer(
        "dropout", shapes, {"is_test": True}
    )
    assert infer("max_pool2d_with_index", shapes, {"ksize": [2, 2]}, lod_level=1)["Mask"].dtype == VarType.INT32
    assert infer("im2sequence", shapes, {"kernels": [2, 2]})["Out"].lod_level == 1
    convolved = {"Input": (-1, 3, 4, 4), "Filter": (2, 3, 1, 1)}
    assert infer("conv2d", convolved, lod_level=1)["Output"].lod_level == 1
    assert infer("conv2d_transpose", {**convolved, "Filter": (3, 2, 1, 1)}, lod_level=1)["Output"].lod_level == 0


def test_shapes_that_cannot_work_are_refused() -> None:
    with pytest.raises(OperatorError, match=r"operator conv2d: Input .* has 3 channels; Filter .* expects 2"):
        infer("conv2d", {"Input": (-1, 3, 8, 8), "Filter": (6, 2, 3, 3)})
    with pytest.raises(OperatorError, match="operator batch_norm: input Scale must have shape"):
        infer("batch_norm", {"X": (-1, 3, 8), "Scale": (4,), "Bias": (4,), "Mean": (4,), "Variance": (4,)})
