"""One role of a job for the benchmark of distributed training: also for Python 3.7 and real Paddle.

distributed_worker.py MODULE NETWORK ROLE INDEX ENDPOINTS TRAINERS STEPS BURSTS MODE; a trainer reads a line before each burst of
steps, and prints its seconds and the last loss.
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
    config = fluid.DistributeTranspilerConfig()
    config.sync_mode = mode == "sync"
    config.runtime_split_send_recv = False
    transpiler = fluid.DistributeTranspiler(config)
    transpiler.transpile(
        index if role == "trainer" else 0, pservers=endpoints, trainers=int(trainers), sync_mode=mode == "sync"
    )
    executor = fluid.Executor(fluid.CPUPlace())
    if role == "pserver":
        endpoint = endpoints.split(",")[index]
        program, startup = transpiler.get_pserver_programs(endpoint)
        executor.run(startup)
        executor.run(program)
        return
    program = transpiler.get_trainer_program()
    executor.run(fluid.default_startup_program())
    value = 0.0
    for _ in range(bursts):
        sys.stdin.readline()
        start = time.perf_counter()
        for _ in range(steps):
            (value,) = executor.run(program, feed=feed, fetch_list=[loss])
        print(time.perf_counter() - start, float(value[0]), flush=True)
    executor.close()


if __name__ == "__main__":
    main()
