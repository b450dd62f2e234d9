"""ONNX Runtime as an engine, if it is installed."""

from __future__ import annotations

from fluidtool.runtime.engines import onnxruntime
from fluidtool.runtime.engines.delegate import DelegateEngine, delegate_engine


def open_engine(precision: str, *, required: bool) -> DelegateEngine:
    """The engine; raises DeviceError if its package is not installed."""
    return delegate_engine("onnxruntime", onnxruntime)
