"""`fluid.contrib.slim.quantization`: training with rounded numbers, and inference programs with weights of 8 bits."""

from fluidtool.fluid.contrib.slim.quantization import quantization_pass
from fluidtool.fluid.contrib.slim.quantization.freezing import (
    ConvertToInt8Pass,
    QuantizationFreezePass,
    TransformForMobilePass,
)
from fluidtool.fluid.contrib.slim.quantization.out_scales import OutScaleForInferencePass, OutScaleForTrainingPass
from fluidtool.fluid.contrib.slim.quantization.post_training_quantization import (
    PostTrainingQuantization,
    WeightQuantization,
)
from fluidtool.fluid.contrib.slim.quantization.quantization_strategy import QuantizationStrategy
from fluidtool.fluid.contrib.slim.quantization.transform import AddQuantDequantPass, QuantizationTransformPass
from fluidtool.fluid.offers import refuse_other_names

__all__ = [
    "AddQuantDequantPass",
    "ConvertToInt8Pass",
    "OutScaleForInferencePass",
    "OutScaleForTrainingPass",
    "PostTrainingQuantization",
    "QuantizationFreezePass",
    "QuantizationStrategy",
    "QuantizationTransformPass",
    "TransformForMobilePass",
    "WeightQuantization",
    "quantization_pass",
]

__getattr__ = refuse_other_names("paddle.fluid.contrib.slim.quantization", __all__)
