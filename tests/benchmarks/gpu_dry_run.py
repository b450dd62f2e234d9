"""A row's process on the stand-in: cupy stands for a GPU, a processor for what PyTorch would run on one."""

from __future__ import annotations

import sys

from benchmarks import gpu, gpu_rows, gpu_training
from tests.gpu.standin import installed

if __name__ == "__main__":
    gpu.DEVICE, gpu.RUNS, gpu_training.MANY = "cpu", 1, 1
    with installed(devices=1):
        sys.exit(gpu_rows.main())
