"""Operators of arithmetic: elementwise, reductions, matrix products, norms, comparison and logic."""
