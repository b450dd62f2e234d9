"""Engines: what computes, one folder each; registry.py lists them."""
