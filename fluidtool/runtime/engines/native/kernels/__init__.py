"""Faster kernels for single operators: the same results as the kernels in ops/, from the native library.

Regions (partition.py) need an inference program; these serve training, loops and sequences, too. A kernel here gets the
library as an extra first argument, and returns NotImplemented for unsupported cases: other data types,
SelectedRows, attributes of later versions of Paddle. Then the reference kernel computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from fluidtool.runtime.engines.native.kernels.convolution import conv2d, conv2d_gradient
from fluidtool.runtime.engines.native.kernels.pooling import pool2d, pool2d_gradient
from fluidtool.runtime.engines.native.kernels.recurrent import lstm, lstm_gradient
from fluidtool.runtime.engines.native.library import Library
from fluidtool.tensor import SelectedRows

Kernel = Callable[..., Any]


def later(module: str, name: str) -> Kernel:
    """A kernel of a module that is loaded on first use."""

    @cache
    def found() -> Kernel:
        there: Kernel = getattr(import_module(f"{__name__}.{module}"), name)
        return there

    def kernel(*inputs: Any, **attrs: Any) -> Any:
        return found()(*inputs, **attrs)

    return kernel


UPDATES: Mapping[str, Mapping[str, str]] = {
    "adagrad": {"Param": "ParamOut", "Moment": "MomentOut"},
    "adam": {"Param": "ParamOut", "Moment1": "Moment1Out", "Moment2": "Moment2Out"},
    "decayed_adagrad": {"Param": "ParamOut", "Moment": "MomentOut"},
    "ftrl": {"Param": "ParamOut", "SquaredAccumulator": "SquaredAccumOut", "LinearAccumulator": "LinearAccumOut"},
    "momentum": {"Param": "ParamOut", "Velocity": "VelocityOut"},
    "rmsprop": {"Param": "ParamOut", "MeanSquare": "MeanSquareOut", "Moment": "MomentOut"},
    "sgd": {"Param": "ParamOut"},
}
"""Operators whose kernels here can change inputs in place: the inputs, and the outputs that take them over."""
OVERWRITES: Mapping[str, tuple[str, ...]] = {
    "dropout": ("X",),
    "dropout_grad": ("Out@GRAD",),
    "elementwise_add": ("X", "Y"),
    "gelu": ("X",),
    "gelu_grad": ("X", "Out@GRAD"),
    "leaky_relu_grad": ("Out@GRAD", "Out"),
    "relu": ("X",),
    "relu6_grad": ("Out@GRAD", "Out"),
    "relu_grad": ("Out@GRAD", "Out"),
    "sigmoid": ("X",),
    "sigmoid_grad": ("Out@GRAD", "Out"),
    "softmax": ("X",),
    "softmax_grad": ("Out@GRAD", "Out"),
    "sum": ("X",),
    "tanh": ("X",),
    "tanh_grad": ("Out@GRAD", "Out"),
}
"""Operators whose kernels here can compute in the place of an input that nobody reads afterwards: the slots, the best first."""
KERNELS: Mapping[str, Kernel] = {
    "adagrad": later("updates", "adagrad"),
    "adam": later("updates", "adam"),
    "batch_norm": later("normalization", "batch_norm"),
    "batch_norm_grad": later("normalization", "batch_norm_gradient"),
    "conv2d": conv2d,
    "conv2d_grad": conv2d_gradient,
    "conv2d_transpose": later("transposed", "conv2d_transpose"),
    "conv2d_transpose_grad": later("transposed", "conv2d_transpose_gradient"),
    "crf_decoding": later("viterbi", "crf_decoding"),
    "deformable_conv": later("deformable", "deformable_conv"),
    "deformable_conv_v1": later("deformable", "deformable_conv_v1"),
    "decayed_adagrad": later("updates", "decayed_adagrad"),
    "depthwise_conv2d": later("depthwise", "depthwise_conv2d"),
    "depthwise_conv2d_grad": later("depthwise", "depthwise_conv2d_gradient"),
    "dropout": later("backward", "dropout"),
    "dropout_grad": later("backward", "dropout_gradient"),
    "elementwise_add": later("biases", "elementwise_add"),
    "elementwise_add_grad": later("biases", "elementwise_add_gradient"),
    "elementwise_mul_grad": later("biases", "elementwise_mul_gradient"),
    "ftrl": later("updates", "ftrl"),
    "gelu": later("backward", "gelu"),
    "gelu_grad": later("backward", "gelu_gradient"),
    "generate_proposals": later("detection", "generate_proposals"),
    "generate_proposals_v2": later("detection", "generate_proposals_v2"),
    "gru": later("gru", "gru"),
    "gru_grad": later("gru", "gru_gradient"),
    "layer_norm": later("normalization", "layer_norm"),
    "layer_norm_grad": later("normalization", "layer_norm_gradient"),
    "leaky_relu_grad": later("activations", "leaky_relu_gradient"),
    "lookup_table_grad": later("rows", "lookup_table_gradient"),
    "lookup_table_v2_grad": later("rows", "lookup_table_gradient"),
    "lstm": lstm,
    "lstm_grad": lstm_gradient,
    "lstmp": later("lstmp", "lstmp"),
    "lstmp_grad": later("lstmp", "lstmp_gradient"),
    "momentum": later("updates", "momentum"),
    "matmul": later("products", "matmul"),
    "matmul_grad": later("products", "matmul_gradient"),
    "mul": later("products", "mul"),
    "mul_grad": later("products", "mul_gradient"),
    "multiclass_nms": later("detection", "multiclass_nms"),
    "multiclass_nms2": later("detection", "multiclass_nms2"),
    "multiclass_nms3": later("detection", "multiclass_nms3"),
    "pool2d": pool2d,
    "pool2d_grad": pool2d_gradient,
    "relu": later("backward", "relu"),
    "relu6_grad": later("activations", "relu6_gradient"),
    "relu_grad": later("activations", "relu_gradient"),
    "retinanet_detection_output": later("detection", "retinanet_detection_output"),
    "rmsprop": later("updates", "rmsprop"),
    "roi_align": later("regions", "roi_align"),
    "roi_pool": later("regions", "roi_pool"),
    "sequence_conv_grad": later("sequences", "sequence_conv_gradient"),
    "sequence_expand": later("sequences", "sequence_expand"),
    "sequence_expand_grad": later("sequences", "sequence_expand_gradient"),
    "sequence_pool": later("sequences", "sequence_pool"),
    "sequence_pool_grad": later("sequences", "sequence_pool_gradient"),
    "sequence_softmax": later("sequences", "sequence_softmax"),
    "sequence_softmax_grad": later("sequences", "sequence_softmax_gradient"),
    "sgd": later("updates", "sgd"),
    "sigmoid": later("backward", "sigmoid"),
    "sigmoid_grad": later("activations", "sigmoid_gradient"),
    "softmax": later("backward", "softmax"),
    "softmax_grad": later("backward", "softmax_gradient"),
    "softmax_with_cross_entropy": later("losses", "softmax_with_cross_entropy"),
    "softmax_with_cross_entropy_grad": later("losses", "softmax_with_cross_entropy_gradient"),
    "sum": later("rows", "sum"),
    "tanh": later("backward", "tanh"),
    "tanh_grad": later("activations", "tanh_gradient"),
    "top_k": later("ranking", "top_k"),
}


def dense(value: Any) -> Any:
    """A gradient that was kept as rows, as an array; other values unchanged."""
    if not isinstance(value, SelectedRows):
        return value
    whole = np.zeros((value.table_height, *value.value.shape[1:]), value.value.dtype)
    np.add.at(whole, value.row_ids, value.value)
    return whole


def fastest_kernel(type: str, own: Kernel, library: Library | None) -> Kernel:
    """The kernel for operators of this type: `own`, or a faster one wrapped around it."""
    faster = KERNELS.get(type) if library is not None else None
    if faster is None:
        return own

    def kernel(*inputs: Any, **attrs: Any) -> Any:
        result = faster(library, *inputs, **attrs)
        return own(*inputs, **attrs) if result is NotImplemented else result

    def overwriting(*inputs: Any, over: Any = None, **attrs: Any) -> Any:
        result = faster(library, *inputs, over=over, **attrs)
        return own(*inputs, **attrs) if result is NotImplemented else result

    def updating(
        *inputs: Any, in_place: bool = False, stands_for_dense: bool = False, pending: Any = None, **attrs: Any
    ) -> Any:
        told = {"in_place": in_place, "stands_for_dense": stands_for_dense, "pending": pending}
        result = faster(library, *inputs, **told, **attrs)
        if result is not NotImplemented:
            return result
        return own(*(map(dense, inputs) if stands_for_dense else inputs), **attrs)

    if type in OVERWRITES:
        return overwriting
    return updating if type in UPDATES else kernel
