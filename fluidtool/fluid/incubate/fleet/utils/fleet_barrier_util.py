"""Trainers that wait for each other by files on Hadoop (Paddle 1.8.5 incubate/fleet/utils/fleet_barrier_util.py)."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

from fluidtool.fluid.contrib.utils import HDFSClient
from fluidtool.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet
from fluidtool.fluid.log_helper import get_logger

__all__ = ["check_all_trainers_ready"]

_logger = get_logger(__name__, logging.INFO, fmt="%(asctime)s-%(levelname)s: %(message)s")
PAUSE = 10.0  # seconds between two looks


def check_all_trainers_ready(ready_path: str, epoch: int) -> None:
    """Put a file of this trainer and epoch into a folder on Hadoop, and wait until it has a file of every trainer.

    `HADOOP_HOME`, `FS_NAME` and `FS_UGI` say how Hadoop is reached.
    """
    settings = {"fs.default.name": os.getenv("FS_NAME", ""), "hadoop.job.ugi": os.getenv("FS_UGI", "")}
    client = HDFSClient(os.getenv("HADOOP_HOME", ""), settings)
    trainers, mine = fleet.worker_num(), f"ready.{epoch}.{fleet.worker_index()}.done"
    Path(mine).write_text("")
    if not client.is_dir(ready_path):
        client.makedirs(ready_path)
    client.upload(hdfs_path=ready_path, local_path=mine, overwrite=True, retry_times=0)
    _logger.info("PUT %s ON HDFS %s OK", mine, ready_path)
    while len(client.ls(ready_path)) % trainers:
        _logger.info("have %d trainers need to be ready", trainers - len(client.ls(ready_path)) % trainers)
        time.sleep(PAUSE)
    _logger.info("All trainers are ready, continue training")
