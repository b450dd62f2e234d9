"""Operators of neural networks over images and volumes: convolution, pooling, normalization, interpolation, dropout."""
