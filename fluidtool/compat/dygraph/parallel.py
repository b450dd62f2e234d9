"""`fluid.dygraph.ParallelEnv`, by which static graphs learn of the job, too."""

from __future__ import annotations

import os


class ParallelEnv:
    """The job's variables of the environment as they were when this was made (Paddle 1.8.5 dygraph/parallel.py)."""

    def __init__(self) -> None:
        self.nranks = int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))
        self.local_rank = int(os.environ.get("PADDLE_TRAINER_ID", "0"))
        self.dev_id = int(os.environ.get("FLAGS_selected_gpus", "0"))  # noqa: SIM112 - its name
        self.trainer_endpoints = os.environ.get("PADDLE_TRAINER_ENDPOINTS", "").split(",")
        self.current_endpoint = os.environ.get("PADDLE_CURRENT_ENDPOINT", "")


Env = ParallelEnv
