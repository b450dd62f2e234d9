"""Operators that quantize and dequantize."""
