"""`fluid.contrib.quantize`: `QuantizeTranspiler`."""

from fluidtool.fluid.contrib.quantize.quantize_transpiler import QuantizeTranspiler

__all__ = ["QuantizeTranspiler"]
