"""The document of `quantize`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict

from fluidtool.report.common import Number


class ChangedOutput(TypedDict):
    """How an output of the quantized model differs from that of the model, over all batches of the data."""

    name: Annotated[str, "the name of the output"]
    largest_difference: Annotated[Number, "the largest difference of an element"]
    root_mean_square: Annotated[Number, "the root of the mean of the squared differences"]
    largest_value: Annotated[Number, "the largest absolute value of the output of the model"]


class OperatorWithWeights(TypedDict):
    """A convolution or a product by a parameter."""

    type: Annotated[str, "the type of the operator"]
    output: Annotated[str, "the variable that it computes"]
    quantized: Annotated[bool, "whether it computes in 8 bits"]
    reason: Annotated[str | None, "why it does not; null if it does"]
    input: Annotated[str | None, "its input; null if it is not quantized"]
    input_scale: Annotated[float | None, "the largest absolute value of its input that is kept: 127 steps"]
    weight_scales: Annotated[
        Sequence[float] | None, "the largest absolute weight by output channel: the least and the greatest of these"
    ]


class QuantizeReport(TypedDict):
    """A model in 8 bits, and how its outputs change."""

    schema: Annotated[Literal["fluidtool.quantize/1"], "the kind of this document"]
    files: Annotated[Sequence[str], "the files that were written"]
    batches: Annotated[int, "the number of batches of the data"]
    outputs: Annotated[Sequence[ChangedOutput], "the outputs"]
    operators: Annotated[Sequence[OperatorWithWeights], "the operators with weights, in order"]
