"""Operators that measure: accuracy, AUC, chunk and edit distances."""
