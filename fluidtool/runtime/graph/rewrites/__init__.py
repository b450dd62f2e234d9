"""Rewrites: graph to graph, the same numbers by fewer or faster computations (pipeline.py says in which order)."""
