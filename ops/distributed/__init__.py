"""Operators that talk to other processes."""
