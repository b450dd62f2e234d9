"""Programs as ONNX models: a rendering for each operator, and the messages that are written (docs/onnx.md)."""
