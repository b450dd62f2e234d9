"""Modules that Python has dropped."""
