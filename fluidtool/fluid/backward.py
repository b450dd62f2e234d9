"""`fluid.backward`: gradients appended to programs (Paddle 1.8.5 backward.py)."""

from fluidtool.fluid.offers import refuse_other_names
from fluidtool.passes.backward import append_backward, gradients

__all__ = ["append_backward", "gradients"]

__getattr__ = refuse_other_names("paddle.fluid.backward", __all__)
