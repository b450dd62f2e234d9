"""Activations: elementwise functions of one input, and softmax."""
