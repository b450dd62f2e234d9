"""`fluid.contrib.slim.quantization.quantization_pass`: the passes, and the lists that PaddleSlim reads there."""

from fluidtool.fluid.contrib.slim.quantization.freezing import (
    ConvertToInt8Pass,
    QuantizationFreezePass,
    TransformForMobilePass,
)
from fluidtool.fluid.contrib.slim.quantization.nodes import DEQUANTIZERS, QUANTIZERS, SLOTS
from fluidtool.fluid.contrib.slim.quantization.out_scales import (
    OPERATORS,
    OutScaleForInferencePass,
    OutScaleForTrainingPass,
)
from fluidtool.fluid.contrib.slim.quantization.transform import AddQuantDequantPass, QuantizationTransformPass

__all__ = [
    "AddQuantDequantPass",
    "ConvertToInt8Pass",
    "OutScaleForInferencePass",
    "OutScaleForTrainingPass",
    "QuantizationFreezePass",
    "QuantizationTransformPass",
    "TransformForMobilePass",
]

_fake_quant_op_list = list(QUANTIZERS)
_fake_dequant_op_list = list(DEQUANTIZERS)
_fake_quant_dequant_op_list = ["fake_quantize_dequantize_moving_average_abs_max"]
_out_scale_op_list = list(OPERATORS)
_op_real_in_out_name = {type_: [list(inputs), [output]] for type_, (inputs, output) in SLOTS.items()}
