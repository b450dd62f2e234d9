"""The engine for NVIDIA GPUs: a region is a CUDA graph of generated kernels, products by cuBLASLt, convolutions by cuDNN."""
