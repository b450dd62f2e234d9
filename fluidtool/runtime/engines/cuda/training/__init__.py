"""Training steps on a GPU: forward, backward and update as one CUDA graph."""
