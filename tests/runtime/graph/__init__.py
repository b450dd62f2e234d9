"""The graph of a region: imported, rewritten, verified; no engine is needed."""
