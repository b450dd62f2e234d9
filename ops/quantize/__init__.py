"""Operators that quantise and dequantise."""
