"""`paddle.utils`: curves of training."""

from fluidtool.compat.utils.plot import Ploter

__all__ = ["Ploter"]
