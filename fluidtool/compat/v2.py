"""`paddle.v2`: the API before Fluid, from which scripts of 0.11 to 0.14 took data sets and readers."""

from fluidtool.fluid.reader_decorators import batch

__all__ = ["batch"]
