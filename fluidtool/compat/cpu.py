"""What scripts get for GPUs if everything is to run on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fluidtool.compat.predictor import create_paddle_predictor
from fluidtool.fluid import layers
from fluidtool.fluid.parallel_executor import ParallelExecutor
from fluidtool.ir import Variable
from fluidtool.tensor import CPUPlace

NOTE = "GPUs are replaced by the CPU (--device cpu)"


def on_cpu(say: Callable[[str], None]) -> dict[str, Any]:
    """Names of Paddle and their replacements; a note tells who uses one."""

    class CUDAPlace:
        """Creates a CPUPlace."""

        def __new__(cls, device_id: int = 0) -> Any:  # noqa: ARG004, RUF100 - ignored
            say(NOTE)
            return CPUPlace()

    def cuda_places(device_ids: int | Sequence[int] | None = None) -> list[CPUPlace]:
        say(NOTE)
        return [CPUPlace()] * (len(device_ids) if isinstance(device_ids, Sequence) else 1)

    def parallel_executor(use_cuda: bool, *args: Any, **named: Any) -> ParallelExecutor:
        if use_cuda:
            say(NOTE)
        return ParallelExecutor(False, *args, **named)

    def get_places(device_count: int | None = None, device_type: str | None = None) -> Variable:
        if device_type == "CUDA":
            say(NOTE)
        return layers.get_places(device_count)

    return {
        "CUDAPlace": CUDAPlace,
        "cuda_places": cuda_places,
        "is_compiled_with_cuda": lambda: True,
        "get_places": get_places,
        "get_cuda_device_count": lambda: 1,
        "create_paddle_predictor": lambda config: create_paddle_predictor(config, CPUPlace()),
        "ParallelExecutor": parallel_executor,
    }
