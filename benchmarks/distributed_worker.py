"""One role of a job for the benchmark of distributed training: also for Python 3.7 and real Paddle.

distributed_worker.py MODULE NETWORK ROLE INDEX ENDPOINTS TRAINERS STEPS BURSTS MODE; a trainer reads a line before each burst of
steps, and prints its seconds and the last loss. In the mode `local` it trains by itself, without servers.
"""

import importlib
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from training_networks import NETWORKS


def main():
    module, network, role, index, endpoints, trainers, steps, bursts, mode = sys.argv[1:10]
    index, steps, bursts = int(index), int(steps), int(bursts)
    fluid = importlib.import_module(module)
    function, batch = NETWORKS[network]
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 1
    loss, optimizer, feed = function(fluid, batch)
    optimizer.minimize(loss)
    if mode == "local":
        train(fluid, fluid.default_main_program(), feed, loss, bursts, steps)
        return
    config = fluid.DistributeTranspilerConfig()
    config.sync_mode = mode == "sync"
    config.runtime_split_send_recv = False
    transpiler = fluid.DistributeTranspiler(config)
    transpiler.transpile(
        index if role == "trainer" else 0, pservers=endpoints, trainers=int(trainers), sync_mode=mode == "sync"
    )
    if role == "pserver":
        executor = fluid.Executor(fluid.CPUPlace())
        endpoint = endpoints.split(",")[index]
        program, startup = transpiler.get_pserver_programs(endpoint)
        executor.run(startup)
        executor.run(program)
        return
    train(fluid, transpiler.get_trainer_program(), feed, loss, bursts, steps)


def train(fluid, program, feed, loss, bursts, steps):
    """Bursts of steps, each after a line of stdin, until that ends."""
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    value = 0.0
    for _ in range(int(bursts)):
        if not sys.stdin.readline():
            break
        start = time.perf_counter()
        for _ in range(steps):
            (value,) = executor.run(program, feed=feed, fetch_list=[loss])
        print(time.perf_counter() - start, float(value[0]), flush=True)
    executor.close()


if __name__ == "__main__":
    main()
