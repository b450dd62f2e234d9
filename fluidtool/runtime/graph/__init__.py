"""A region as a graph: nodes of few kinds and values of known shapes; imported from operators, rewritten, lowered."""
