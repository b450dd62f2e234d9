"""Rewrites: graph to graph, the same results by fewer or faster computations (in the order of pipeline.py)."""
