"""Operators of neural networks over images and volumes: convolution, pooling, normalisation, interpolation, dropout."""
