"""Gradient operators for a loss or for variables, op by op and name by name as Paddle 1.8.5 appends them (backward.py)."""

from fluidtool.passes.backward.append import append_backward
from fluidtool.passes.backward.gradients import gradients

__all__ = ["append_backward", "gradients"]
