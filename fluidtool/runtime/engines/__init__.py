"""Engines: one folder per library that computes; registry.py lists them."""
