"""How each operator is rendered in ONNX: one module per family."""
