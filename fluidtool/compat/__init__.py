"""Stands in for `paddle` while a script runs: `with install(): import paddle.fluid as fluid`."""

from fluidtool.compat.standin import install

__all__ = ["install"]
