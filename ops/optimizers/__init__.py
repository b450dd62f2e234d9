"""Operators that update parameters."""
